"""How well a draft foretells its target, looked at once, when a pair is first loaded.

Both models read a few lines that neither wrote, and each place shows what the target would make of the draft's likeliest
token. That says little of what the acceptance will be, which is the text's matter, but much of whether this draft's
confidence means anything: a draft of another training, or a damaged file, is seen through before it has cost a reply
anything, and a good one need not prove itself in a conversation first.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from engine.cost import CostModel
from engine.llama.context import Context
from engine.values import PairPlace, TokenId

TEXT = (
    "def average(numbers):\n    total = 0\n    for number in numbers:\n        total += number\n    return total / len(numbers)\n\n"
    "The function above adds up all the numbers in a list and divides the sum by how many there are. If the list is empty, it "
    "fails, because nothing can be divided by zero."
)
CONTEXT, PLACES, FEWEST = 24, 40, 24
"""Tokens before the first place; places, and how many at least are worth looking at."""
MOST_SECONDS = 6.0
"""It ends then even where other programs have taken the cores."""


def agreement(target: Context, draft: Context, tokens: Sequence[TokenId], costs: CostModel) -> list[PairPlace]:
    """`tokens` (of TEXT) read by both: up to PLACES places; none where by `costs` not even FEWEST can be had in MOST_SECONDS. Leaves both caches empty.
    Raises as Context.decode.

    40 places take about 0.5 s of a 1.5B target's and 0.7 s of a 0.5B draft's time on two CPU cores (by the cost table).
    """
    start = min(CONTEXT, len(tokens) // 3)
    room = min(len(tokens), target.n_ctx, draft.n_ctx) - start - 1
    step = costs.draft_step(start)
    places = next((n for n in range(min(PLACES, room), FEWEST - 1, -1) if costs.verify(n, start) + n * step <= MOST_SECONDS), 0)
    if places == 0:
        return []
    tokens, deadline = tokens[: start + places], time.perf_counter() + MOST_SECONDS
    try:
        target.decode(tokens[:start], 0, 1)
        target.decode(tokens[start:], start, places)
        found: list[PairPlace] = []
        draft.decode(tokens[:start], 0, 1)
        for i in range(places):
            if time.perf_counter() > deadline:
                break
            draft.decode(tokens[start + i : start + i + 1], start + i, 1)
            found.append(_place(_softmax(target.logits(i)), _softmax(draft.logits(0))))
        return found
    finally:
        target.clear()
        draft.clear()


def _place(p: NDArray[np.float64], q: NDArray[np.float64]) -> PairPlace:
    best = int(q.argmax())
    chance = float(p[best]) if best < len(p) else 0.0
    return round(float(q[best]), 5), round(float(p.max()), 5), round(min(1.0, chance / float(q[best])), 5)


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))
    return np.asarray(weights / weights.sum(), dtype=np.float64)
