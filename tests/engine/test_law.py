"""Replies at a temperature follow the target's own distribution, whoever drafts: chi-square of the first tokens.

Each case draws `REPLIES` replies with the seeds 0, 1, 2, ... and compares how often their first three tokens came out
with the probabilities that plain decoding gives them, enumerated with llama.cpp's samplers over the whole vocabulary.
The second and third token come out of one block. A right engine fails a case for one in 10,000 sets of seeds; which
set is used is fixed, so a case that passes keeps passing until the arithmetic or the engine changes. A wrong one is
found: test_a_biased_rule_is_found has p-values below 1e-12.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats

from engine import RoundDone, SamplingParams
from engine.acceptance import AcceptanceModel
from engine.adaptive_length import AdaptiveLength
from engine.drafters.model import ModelDrafter
from engine.length import LengthPolicy
from engine.sampling import Distribution
from engine.values import Draft
from tests.engine.helpers import FREE, Loop, Reference, Samplers, costs, fixed

REPLIES = 1000
DEPTH = 3
FALSE_ALARM = 1e-4
PROMPT = "abcab abc bac"
Outcome = tuple[int | None, ...]
"""Tokens of a reply's beginning; None at the end stands for every token without an entry of its own."""


def exact_law(reference: Reference, prompt: list[int], params: SamplingParams, floor: float) -> dict[Outcome, float]:
    """What plain decoding gives each beginning of DEPTH tokens, down to probabilities of `floor`."""
    law: dict[Outcome, float] = {}
    open_prefixes: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while open_prefixes:
        prefix, mass = open_prefixes.pop()
        if len(prefix) == DEPTH:
            law[prefix] = mass
            continue
        with Samplers(reference.model, params, 512, prompt) as samplers:
            for token in prefix:
                samplers.accept(token)
            p = samplers.probabilities(reference.logits([*prompt, *prefix]))
        large = [int(t) for t in (p * mass >= floor).nonzero()[0] if not reference.model.is_end(int(t))]
        law[(*prefix, None)] = mass * (1 - float(p[large].sum()))
        open_prefixes += [((*prefix, token), mass * float(p[token])) for token in large]
    assert abs(sum(law.values()) - 1) < 1e-6
    return law


def outcome(tokens: Sequence[int], law: dict[Outcome, float]) -> Outcome:
    beginning = tuple(tokens[:DEPTH])
    return beginning if beginning in law else next(
        (*beginning[:n], None) for n in range(len(beginning), -1, -1) if (*beginning[:n], None) in law
    )


def p_value(counts: Counter[Outcome], law: dict[Outcome, float]) -> float:
    """Of Pearson's test; outcomes expected fewer than five times count as one."""
    total = counts.total()
    large = [o for o, p in law.items() if p * total >= 5]
    assert len(large) >= 6
    observed, expected = [counts[o] for o in large], [law[o] * total for o in large]
    rest = total - sum(expected)
    if rest > 1e-6 * total:
        observed.append(total - sum(observed))
        expected.append(rest)
    else:
        assert sum(observed) == total, "an outcome of probability 0 came out"
        expected[0] += rest
    return float(stats.chisquare(observed, expected).pvalue)


def draw(loop: Loop, prompt: list[int], law: dict[Outcome, float], policy: Callable[[], LengthPolicy], **how: Any) -> tuple[Counter[Outcome], float]:
    """The outcomes of REPLIES replies, and the share of drafted tokens that were kept. A reply is left as soon as
    DEPTH tokens are there."""
    counts: Counter[Outcome] = Counter()
    drafted = kept = 0
    for seed in range(REPLIES):
        reply = loop.start(prompt, policy=policy(), seed=seed, max_tokens=DEPTH + 2, **how)
        for event in loop.decoder.run(reply):
            if isinstance(event, RoundDone):
                drafted += len(event.round.candidates)
                kept += event.round.accepted
                if len(reply.tokens) >= DEPTH:
                    break
        loop.end(reply)
        counts[outcome(reply.tokens, law)] += 1
    return counts, kept / max(1, drafted)


def everyone() -> AdaptiveLength:
    return AdaptiveLength(costs(), AcceptanceModel(), learn_costs=False)


LETTERS = replace(FREE, grammar="root ::= [a-f ]*", temperature=1.8)
FEW = replace(FREE, logit_bias=tuple((ord(c), 12.0) for c in "abcdef "))
"""Seven tokens have nearly all of the mass, so that a penalty for a token just drafted is often felt."""
CASES: dict[str, tuple[str, Callable[[], LengthPolicy], dict[str, Any]]] = {
    "a good draft": ("good", lambda: fixed(3), {"sampling": FREE}),
    "a poor draft": ("poor", lambda: fixed(3), {"sampling": FREE}),
    "filters": (
        "fair", lambda: fixed(3), {"sampling": SamplingParams(temperature=0.7, top_k=20, top_p=0.9, min_p=0.02)}
    ),
    "penalties": (
        "good", lambda: fixed(3),
        {"sampling": replace(FEW, temperature=1.5, repeat_penalty=1.2, presence_penalty=1.5, frequency_penalty=1.0)},
    ),
    "a grammar": ("fair", lambda: fixed(3), {"sampling": LETTERS}),
    "copied drafts": ("good", lambda: fixed(3, "ngram"), {"sampling": LETTERS}),
    "the rule of auto": ("good", everyone, {"sampling": LETTERS}),
    "sample and compare": ("good", lambda: fixed(3), {"sampling": FREE, "rule": "match"}),
}


@pytest.fixture(scope="module")
def reference(target: Path) -> Iterator[Reference]:
    with Reference(target) as reference:
        yield reference


@pytest.mark.parametrize("case", CASES)
def test_replies_follow_the_target_s_distribution_with(
    case: str, target: Path, drafts: dict[str, Path], reference: Reference
) -> None:
    draft, policy, how = CASES[case]
    prompt = list(PROMPT.encode())
    law = exact_law(reference, prompt, how["sampling"], 5 / REPLIES)
    with Loop(target, drafts[draft]) as loop:
        counts, kept = draw(loop, prompt, law, policy, **how)
        assert 0.03 < kept < 0.95, "the drafts were of no use, or never wrong"
        p = p_value(counts, law)
        assert p > FALSE_ALARM


# ---- the test would notice


class Choosy:
    """A drafter that leaves out what it drew because of what it is, as a threshold on the token's own probability
    or a filter on candidates does."""

    def __init__(self, drafter: ModelDrafter, wanted: Callable[[int], bool]) -> None:
        self._drafter = drafter
        self._wanted = wanted
        self.begin, self.observe, self.lag = drafter.begin, drafter.observe, drafter.lag

    def propose(self, limit: int, go_on: Any) -> Draft:
        draft = self._drafter.propose(limit, go_on)
        kept = next((i for i, token in enumerate(draft.tokens) if not self._wanted(token)), len(draft))
        return Draft(draft.tokens[:kept], draft.probs[:kept], draft.confidence[:kept], draft.origin)


class Forgetful:
    """A drafter that hands on another q than it drew from: its own at a higher temperature."""

    def __init__(self, drafter: ModelDrafter) -> None:
        self._drafter = drafter
        self.begin, self.observe, self.lag = drafter.begin, drafter.observe, drafter.lag

    def propose(self, limit: int, go_on: Any) -> Draft:
        draft = self._drafter.propose(limit, go_on)
        flat = [Distribution(q.ids, q.probs**0.7 / (q.probs**0.7).sum()) for q in draft.probs if q]
        return Draft(draft.tokens, tuple(flat), draft.confidence, draft.origin)


@pytest.mark.parametrize(
    "bias", [lambda d: Choosy(d, lambda token: token % 2 == 0), Forgetful], ids=["choosing by the token", "another q"]
)
def test_a_biased_rule_is_found(
    bias: Callable[[ModelDrafter], Any], target: Path, drafts: dict[str, Path], reference: Reference
) -> None:
    prompt = list(PROMPT.encode())
    law = exact_law(reference, prompt, FREE, 5 / REPLIES)
    with Loop(target, drafts["good"]) as loop:
        assert loop.draft is not None
        counts, _ = draw(loop, prompt, law, lambda: fixed(3), sampling=FREE, drafter=bias(loop.draft))
        p = p_value(counts, law)
        assert p < 1e-12
