"""Measuring a pair's costs once, when no profile of it exists on this machine.

A few seconds at the first load, instead of a first conversation decided by guesses. Row counts are taken in order of
what they decide, until the time is up: a slow machine measures fewer and reads the rest off their neighbours.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from engine.cost import CostModel, RowCosts
from engine.llama.context import Context

TARGET_ROWS = (1, 16, 4, 32, 2, 8, 64, 3, 6, 12, 24, 5, 7, 48)
DRAFT_ROWS = (1, 64, 2, 8)
BUDGET_SECONDS = 5.0
CONTEXT = 64
"""Tokens already in the cache while measuring, as in a short chat."""


def calibrate(target: Context, draft: Context | None, max_block: int, on_progress: Callable[[float], None]) -> CostModel:
    """Time decodes of both models; leaves their caches empty. Raises as Context.decode."""
    costs = CostModel()
    deadline = time.perf_counter() + BUDGET_SECONDS * (0.8 if draft else 1.0)
    _measure(target, costs.target, [n for n in TARGET_ROWS if n <= max_block], deadline, on_progress)
    if draft is not None:
        _measure(draft, costs.draft, list(DRAFT_ROWS), deadline + BUDGET_SECONDS * 0.2, lambda _: None, outputs=1)
    on_progress(1.0)
    return costs


def _measure(
    context: Context, costs: RowCosts, rows: list[int], deadline: float, on_progress: Callable[[float], None],
    outputs: int | None = None,
) -> None:
    """The lower of two readings for few rows (interference only ever adds), one for many."""
    length = min(CONTEXT, context.n_ctx // 4)
    tokens = [i % 50 + 1 for i in range(max(rows))]
    context.decode(tokens[:1] * length, 0, 1)  # also reads the weights into memory
    for i, n in enumerate(n for n in rows if length + n <= context.n_ctx):
        if i >= 2 and time.perf_counter() > deadline:
            break
        readings = []
        for _ in range(3 if n <= 2 else 2 if n <= 8 else 1):
            if not context.truncate(length):
                context.clear()
                context.decode(tokens[:1] * length, 0, 1)
            started = time.perf_counter()
            context.decode(tokens[:n], length, outputs or n)
            readings.append(time.perf_counter() - started)
        costs.set(n, length, min(readings))
        on_progress((i + 1) / len(rows))
    context.clear()
