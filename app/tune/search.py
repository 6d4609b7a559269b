"""The order in which ways of running are tried, and what is made of the times. Knows no llama.cpp: a `Timer` measures.

One setting after the other. Of several candidates the most promising is found by a few pairs; only fresh pairs, as many as
were settled on beforehand, decide whether it is taken (app/tune/decision.py). What was taken is the new standard for the
settings that follow. What is compared is the time of a usual turn of a chat, which the weights below put together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal, Protocol

from app.tune.decision import FAMILY_RISK, LEAST_GAIN, Gain, gain_of, pairs_needed
from engine import LoadConfig, LoadFailed
from engine.trial import BLOCK_ROWS, PROMPT_TOKENS, Part

TURN: Mapping[Part, int] = {"row": 120, "block": 10, "prompt": 2}
"""A turn: 256 tokens are read, 120 tokens written one by one, and 10 blocks of 16 checked."""
TURN_IN_WORDS = f"{2 * PROMPT_TOKENS} tokens read, 120 written one by one, 10 blocks of {BLOCK_ROWS} checked"
SHORT, LONG = 256, 1536
"""Tokens in the cache while timing: threads do not care, attention does."""
SCREENING, MOST_PAIRS = 3, 24

Status = Literal["taken", "no gain", "another gains more", "within noise", "does not fit", "no time", "failed", "not tried"]


class Timer(Protocol):
    """engine.trial.Trial, or a test's recording."""

    def open(self, config: LoadConfig, depth: int, longest: int) -> int: ...
    def sample(self, number: int, parts: Sequence[Part], prompt_tokens: int = PROMPT_TOKENS) -> dict[Part, float]: ...
    def close(self, number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Dimension:
    """One setting and the other values it may have."""

    name: str
    candidates: tuple[Mapping[str, Any], ...]
    """LoadConfig fields each."""
    parts: tuple[Part, ...]
    """What it can change the time of."""
    depth: int = SHORT
    prompt_tokens: int = PROMPT_TOKENS
    weight: int = 1
    """Of its share of the time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What trying one candidate came to."""

    name: str
    tried: Mapping[str, Any]
    status: Status
    gain: Gain | None = None
    """Of a turn; None where too few pairs were timed for an interval."""
    ratio: float | None = None
    """Median of a turn's ratio, however few the pairs."""
    parts: Mapping[Part, float] = field(default_factory=dict)
    """Median ratio of each part's time."""
    reason: str = ""


@dataclass(slots=True)
class _Pairs:
    """Samples of the present way and the tried one, taken in turns."""

    now: list[dict[Part, float]] = field(default_factory=list)
    tried: list[dict[Part, float]] = field(default_factory=list)

    def turns(self) -> tuple[list[float], list[float]]:
        return [_turn(sample) for sample in self.now], [_turn(sample) for sample in self.tried]

    def ratio(self) -> float:
        return median(b / a for a, b in zip(*self.turns(), strict=True))

    def parts(self) -> dict[Part, float]:
        return {part: median(b[part] / a[part] for a, b in zip(self.now, self.tried, strict=True)) for part in self.now[0]}


class Search:
    """Goes through the dimensions; may be continued with another timer when one has broken."""

    def __init__(
        self, config: LoadConfig, dimensions: Sequence[Dimension], deadline: float, clock: Callable[[], float],
        tell: Callable[[str], None], tests: int | None = None,
    ) -> None:
        """tests: how many comparisons share the risk of a false gain; the dimensions unless there are others besides."""
        self.config = config
        self.outcomes: list[Outcome] = []
        self._left = list(dimensions)
        self._deadline, self._clock, self._tell = deadline, clock, tell
        self._budget = deadline - clock()
        self.confidence = 1 - FAMILY_RISK / max(1, tests or len(dimensions))
        self._trying: tuple[Dimension, Mapping[str, Any]] | None = None
        self._standard: tuple[int, int] | None = None
        """Number and depth of the present way's cache."""
        self._depths: dict[int, int] = {}

    @property
    def done(self) -> bool:
        return not self._left

    def run(self, timer: Timer) -> None:
        """Try what is left. Raises EngineDied and LoadCancelled; what was decided stays."""
        self._standard = None
        while self._left:
            self._dimension(timer, self._left[0])
            self._left.pop(0)

    def broken(self, reason: str) -> None:
        """The timer died over what was being tried: that is left out."""
        if self._trying is not None:
            dimension, tried = self._trying
            self.outcomes.append(Outcome(dimension.name, tried, "failed", reason=reason))
        if self._left:
            self._left.pop(0)

    def out_of_time(self) -> None:
        """Nothing more will be tried."""
        for dimension in self._left:
            known = [outcome.tried for outcome in self.outcomes]
            self.outcomes += [Outcome(dimension.name, tried, "no time") for tried in dimension.candidates if tried not in known]
        self._left = []

    # ---- one dimension

    def _dimension(self, timer: Timer, dimension: Dimension) -> None:
        if dimension.name == "kv_type" and self.config.flash_attention is False:
            self._skip(dimension, "not tried", "a quantised KV cache needs flash attention")
            return
        share = dimension.weight / sum(other.weight for other in self._left)
        until = self._clock() + share * (self._deadline - self._clock())
        now = self._prepare(timer, dimension)
        started = self._clock()
        timer.sample(now, dimension.parts, dimension.prompt_tokens)
        samples = 2 * (SCREENING * len(dimension.candidates) + 1 + pairs_needed(self.confidence))
        if self._clock() + samples * (self._clock() - started) > until:
            self._skip(dimension, "no time")
            return
        best: tuple[float, int, Mapping[str, Any], Outcome] | None = None
        for tried in dimension.candidates:
            self._trying = (dimension, tried)
            self._tell(f"{dimension.name}: trying {next(iter(tried.values()))}")
            try:
                number = timer.open(replace(self.config, **tried), self._depths[dimension.depth], self._longest(dimension))
            except LoadFailed as error:
                self.outcomes.append(Outcome(dimension.name, tried, "does not fit", reason=str(error)))
                continue
            screened = self._pairs(timer, dimension, now, number, SCREENING)
            outcome = Outcome(dimension.name, tried, "no gain", ratio=screened.ratio(), parts=screened.parts())
            promising = screened.ratio() < 1 - LEAST_GAIN / 2
            if promising and (best is None or screened.ratio() < best[0]):
                if best is not None:
                    timer.close(best[1])
                    self.outcomes.append(replace(best[3], status="another gains more"))
                best = (screened.ratio(), number, tried, outcome)
            else:
                timer.close(number)
                self.outcomes.append(replace(outcome, status="another gains more") if promising else outcome)
        if best is not None:
            self._trying = (dimension, best[2])
            self._decide(timer, dimension, now, best[1], best[2], best[3], until)
        self._trying = None

    def _skip(self, dimension: Dimension, status: Status, reason: str = "") -> None:
        self.outcomes += [Outcome(dimension.name, tried, status, reason=reason) for tried in dimension.candidates]

    def _decide(
        self, timer: Timer, dimension: Dimension, now: int, number: int, tried: Mapping[str, Any], screened: Outcome,
        until: float,
    ) -> None:
        """Fresh pairs, as many as there is time for; their number is settled before the first."""
        started = self._clock()
        self._pairs(timer, dimension, now, number, 1)  # how long a pair takes; not counted, as the rest depends on it
        each = max(self._clock() - started, 1e-6)
        count = min(MOST_PAIRS, int((until - self._clock()) / each))
        if count < pairs_needed(self.confidence):
            timer.close(number)
            self.outcomes.append(replace(screened, status="no time"))
            return
        self._tell(f"{dimension.name}: {count} pairs decide")
        pairs = self._pairs(timer, dimension, now, number, count)
        gain = gain_of(*pairs.turns(), self.confidence)
        taken = gain is not None and gain.beats_the_noise
        status: Status = "taken" if taken else "no gain" if pairs.ratio() > 1 - LEAST_GAIN else "within noise"
        self.outcomes.append(Outcome(dimension.name, tried, status, gain, pairs.ratio(), pairs.parts()))
        timer.close(now if taken else number)
        if taken:
            self.config = replace(self.config, **tried)
            self._standard = (number, dimension.depth)

    def _prepare(self, timer: Timer, dimension: Dimension) -> int:
        """The present way's cache at this dimension's depth."""
        if self._standard is not None and self._standard[1] == dimension.depth:
            return self._standard[0]
        self._tell("reading a text into the cache")
        if self._standard is not None:
            timer.close(self._standard[0])
        if not self._depths:
            self._depths[SHORT] = min(SHORT, self._room(dimension))
        if dimension.depth not in self._depths:
            self._depths[dimension.depth] = self._affordable(timer, dimension)
        number = timer.open(self.config, self._depths[dimension.depth], self._longest(dimension))
        self._standard = (number, dimension.depth)
        return number

    def _affordable(self, timer: Timer, dimension: Dimension) -> int:
        """As deep as can be read in a few per cent of the time, since every candidate has to."""
        number = timer.open(self.config, self._depths[SHORT], self._longest(dimension))
        seconds = timer.sample(number, ("prompt",))["prompt"]
        timer.close(number)
        tokens = int(0.08 * self._budget / seconds * PROMPT_TOKENS) // SHORT * SHORT
        return max(self._depths[SHORT], min(dimension.depth, tokens, self._room(dimension)))

    def _room(self, dimension: Dimension) -> int:
        return max(64, self.config.context - self._longest(dimension) - 64)

    @staticmethod
    def _longest(dimension: Dimension) -> int:
        return max(BLOCK_ROWS, dimension.prompt_tokens if "prompt" in dimension.parts else 0)

    def _pairs(self, timer: Timer, dimension: Dimension, now: int, number: int, count: int) -> _Pairs:
        """In turns; who goes first changes from pair to pair."""
        pairs = _Pairs()
        for i in range(count):
            for which in (now, number) if i % 2 == 0 else (number, now):
                sample = timer.sample(which, dimension.parts, dimension.prompt_tokens)
                (pairs.now if which == now else pairs.tried).append(sample)
        return pairs


def _turn(sample: Mapping[Part, float]) -> float:
    return sum(TURN[part] * seconds for part, seconds in sample.items())


def dimensions_for(config: LoadConfig, physical: int, logical: int, fixed: Sequence[str], gpu: bool) -> list[Dimension]:
    """What to try on a machine with these cores, in order; nothing that the user fixed (LoadConfig fields)."""
    threads = config.threads or physical
    rows = {max(1, threads // 2), 3 * threads // 4, threads - 1, logical} - {threads, 0}
    blocks = {logical, threads - 1} - {threads, 0} if threads > 2 or logical > threads else set()
    whole: tuple[Part, ...] = ("row", "block", "prompt")
    batches = (1024, 2048) if gpu else (256, 128)
    found = [
        Dimension("threads", tuple({"threads": n} for n in sorted(rows)), ("row",)),
        Dimension("batch_threads", tuple({"batch_threads": n} for n in sorted(blocks)), ("block", "prompt"), weight=2),
        Dimension("flash_attention", ({"flash_attention": False},), whole, LONG, weight=5),
        Dimension("kv_type", ({"kv_type": "q8_0"},), whole, LONG, weight=4),
        Dimension(
            "batch", tuple({"batch": n} for n in batches if n != config.batch), ("prompt",),
            prompt_tokens=2048 if gpu else 512,
        ),
    ]
    if gpu:  # threads of a CPU that only waits
        found = [dimension for dimension in found if dimension.name not in ("threads", "batch_threads")]
    if config.flash_attention is False:
        fixed = [*fixed, "flash_attention", "kv_type"]  # a quantised cache needs flash attention
    return [dimension for dimension in found if dimension.name not in fixed and dimension.candidates]
