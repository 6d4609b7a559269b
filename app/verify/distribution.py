"""Temperature above 0: how often the first tokens of a reply come out, against the target's own law for them.

At a fixed context the real engine draws many short replies: a first token, then two out of one drafted block. Their law
is computed without any draft or sampling: the target reads each beginning that is likely enough, and the request's own
sampler chain turns its logits into probabilities (`law_of`). What a filter's edge lets through may hang on rounding, so
the law itself is right to a percent or so: hundreds of samples cannot see that, many thousands would.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from app.verify.replies import Stopped
from app.verify.statistics import ChiSquare, chi_square
from engine import Engine, Finished, GenerationRequest, RoundDone, SamplingParams
from engine.exactness import Law, Rereader

DEPTH = 3
"""Tokens counted: one that no draft precedes, and two of a block."""
FEWEST = 60
"""Samples below which a context that time ran out on is not judged."""

Beginning = tuple[int | None, ...]
"""Tokens of a reply; None at the end stands for every token (or end) without an entry of its own."""


@dataclass(frozen=True, slots=True)
class ContextTest:
    """One fixed context. `test` is None where it was too certain to test: nearly all replies begin alike."""

    prompt: str
    samples: int
    drafted: int
    accepted: int
    test: ChiSquare | None


@dataclass(frozen=True, slots=True)
class Samples:
    """What was drawn at one context."""

    beginnings: tuple[tuple[int, ...], ...]
    drafted: int
    accepted: int


def draw(
    engine: Engine, request: GenerationRequest, samples: int, stopped: Callable[[], bool], done: Callable[[], None]
) -> Samples:
    """Up to `samples` beginnings, each from a random stream of its own; the context is read once and kept in the cache."""
    request = replace(request, max_tokens=DEPTH + 1, seed=None)
    beginnings: list[tuple[int, ...]] = []
    drafted = accepted = 0
    engine.forget()
    while len(beginnings) < samples and not stopped():
        tokens: list[int] = []
        over = False
        events = engine.generate(request)
        with closing(events):
            for event in events:
                if isinstance(event, RoundDone):
                    tokens += event.round.emitted
                    drafted += event.round.judged
                    accepted += min(event.round.accepted, event.round.judged)
                    over = len(tokens) >= DEPTH
                elif isinstance(event, Finished):
                    over = event.reason != "cancelled"
                if over or stopped():
                    break
        if over:
            beginnings.append(tuple(tokens[:DEPTH]))
            done()
    return Samples(tuple(beginnings), drafted, accepted)


def law_of(
    reader: Rereader, prompt: Sequence[int], params: SamplingParams, floor: float, stopped: Callable[[], bool] = lambda: False
) -> dict[Beginning, float]:
    """The probability of each beginning of DEPTH tokens, down to `floor`. Raises Stopped, and as Rereader.after."""
    law: dict[Beginning, float] = {}
    waiting: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
    while waiting:
        if stopped():
            raise Stopped
        beginning, mass = waiting.pop()
        if len(beginning) == DEPTH:
            law[beginning] = mass
            continue
        logits = reader.after(prompt, beginning)
        with Law(reader.model, params, reader.context.n_ctx, prompt) as chain:
            for token in beginning:
                chain.accept(token)
            p = chain.distribution(logits)
        rest = mass
        for token, share in zip(p.ids.tolist(), p.probs.tolist(), strict=True):
            if mass * share >= floor and not reader.model.is_end(token):
                waiting.append(((*beginning, token), mass * share))
                rest -= mass * share
        law[(*beginning, None)] = max(rest, 0.0)
    return law


def judge(name: str, samples: Samples, law: Mapping[Beginning, float]) -> ContextTest:
    """Compare what was drawn with the law."""
    count = len(samples.beginnings)
    test = chi_square(Counter(_cell(beginning, law) for beginning in samples.beginnings), law) if count >= FEWEST else None
    return ContextTest(name, count, samples.drafted, samples.accepted, test)


def _cell(beginning: Sequence[int], law: Mapping[Beginning, float]) -> Beginning:
    """The entry of the law that this beginning counts for."""
    whole = tuple(beginning)
    if whole in law:
        return whole
    return next((*whole[:n], None) for n in range(len(whole), -1, -1) if (*whole[:n], None) in law)
