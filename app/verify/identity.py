"""Temperature 0: speculative replies against plain ones, token by token.

Every reply that differs is read again under the target, one token at a time. Wherever its token is not the target's
first choice, the distance between the two (the gap) is held against the rounding measured on the same texts: within the
bound it is a near tie, beyond it a fault. How many near ties went the other way is held against how many rounding
explains, so that a rule that is merely a bit too generous is found as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from app.verify.replies import Reply, write
from app.verify.statistics import poisson_tail
from engine import Engine, GenerationRequest
from engine.exactness import Place, Rereader, Rounding, read, rounding

PLAIN = "plain"
BLOCKS = (5, 16)
"""Rows in which plain replies are read again to measure rounding: a usual block of a draft model, and of a copy. (On
the CPU, kernels change at 4 rows; 2 and 3 give the bits of single rows.)"""
_QUOTED = 24
"""Characters of text quoted before a place."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A place where a reply has another token than the target's first choice there."""

    index: int
    token: int
    best: int
    gap: float
    """In nats, from single rows."""
    before: str
    """The end of the text before it."""
    token_text: str
    best_text: str


@dataclass(frozen=True, slots=True)
class Compared:
    """One mode's reply to one prompt. Of plain itself: against what reading it again says."""

    prompt: str
    mode: str
    tokens: int
    first_difference: int | None
    departures: tuple[Departure, ...]
    expected_flips: float
    """Departures that rounding explains; filled in when all is known."""
    log_likelihood: float
    """Sum over its tokens at temperature 1."""
    places: int
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class _Raw:
    compared: Compared
    places: Sequence[Place]


class Identity:
    """Collects prompt after prompt; `finish` judges."""

    def __init__(self, engine: Engine, reader: Rereader, modes: Sequence[str], stopped: Callable[[], bool]) -> None:
        self._engine, self._reader, self._modes, self._stopped = engine, reader, modes, stopped
        self._raw: list[_Raw] = []
        self._readings: list[tuple[list[Place], list[Place]]] = []

    @property
    def steps(self) -> int:
        """Steps of `compare`, for a progress bar."""
        return 2 + len(self._modes)

    def compare(self, name: str, request: GenerationRequest, step: Callable[[str], None]) -> None:
        """One prompt in every mode. Raises Stopped, DecodeAborted, ContextFull; nothing of it is kept then."""
        request = replace(request, sampling=replace(request.sampling, temperature=0.0))
        step(PLAIN)
        plain = write(self._engine, replace(request, mode=PLAIN), self._stopped)
        replies = {}
        for mode in self._modes:
            step(mode)
            replies[mode] = write(self._engine, replace(request, mode=mode), self._stopped)
        step("reading again")
        singly = self._read(plain, request, 1)
        raw = [self._raw_of(name, PLAIN, plain, plain, singly)]
        for mode, reply in replies.items():
            same = reply.sequence == plain.sequence
            raw.append(self._raw_of(name, mode, reply, plain, singly if same else self._read(reply, request, 1)))
        readings = [(singly, self._read(plain, request, block)) for block in BLOCKS]
        self._raw += raw
        self._readings += readings

    def finish(self) -> tuple[Rounding, list[Compared]]:
        """What rounding does here, and every comparison."""
        measured = rounding(self._readings)
        return measured, [
            replace(raw.compared, expected_flips=sum(measured.flip_chance(place) for place in raw.places)) for raw in self._raw
        ]

    def _read(self, reply: Reply, request: GenerationRequest, block: int) -> list[Place]:
        if self._stopped():
            self._engine.cancel()
        written = reply.written
        return read(self._reader, written.prompt, written.reply, request.sampling, block=block, ended=written.ended)

    def _raw_of(self, name: str, mode: str, reply: Reply, plain: Reply, places: list[Place]) -> _Raw:
        ours, theirs = reply.sequence, plain.sequence
        first = next((i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b), None)
        if first is None and len(ours) != len(theirs):
            first = min(len(ours), len(theirs))
        departures = tuple(self._departure(reply, i, place) for i, place in enumerate(places) if place.gap > 0)
        return _Raw(Compared(
            name, mode, len(reply.written.reply), first, departures, 0.0, sum(place.log_probability for place in places),
            len(places), reply.drafted, reply.accepted,
        ), places)

    def _departure(self, reply: Reply, index: int, place: Place) -> Departure:
        def text(tokens: Iterable[int]) -> str:
            return b"".join(self._engine.target.piece(token) for token in tokens).decode("utf-8", errors="replace")

        def one(token: int) -> str:
            ends = token < 0 or self._engine.target.is_end(token)
            return "(end)" if ends else text([token])

        before = text(reply.written.reply[max(0, index - _QUOTED) : index])[-_QUOTED:]
        return Departure(index, place.token, place.best, place.gap, before, one(place.token), one(place.best))


def faults(compared: Iterable[Compared], bound: float) -> list[tuple[Compared, Departure]]:
    """The places that rounding does not explain."""
    return [(one, place) for one in compared for place in one.departures if place.gap > bound]


def flip_p_value(compared: Sequence[Compared]) -> float:
    """Whether the departures of one mode are more than rounding explains."""
    return poisson_tail(sum(len(one.departures) for one in compared), sum(one.expected_flips for one in compared))
