"""What a rule for the draft length gets, answers and learns from; and the rules that never learn.

The rule that does is engine/adaptive_length.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from engine.errors import BadRequest
from engine.values import Origin


@dataclass(frozen=True, slots=True)
class Situation:
    """What the choice may look at. Counts are tokens."""

    context: int
    limit: int
    """Most candidates the context, the reply's limit and the block size allow."""
    remaining: int
    match_length: int = 0
    """Of the n-gram lookup's best match; 0 when there is none."""
    draft_lag: int | None = None
    """What the draft model would have to read first; None without a draft model."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Who drafts (`target`: nobody) and at most how many."""

    origin: Origin
    length: int
    reason: str
    expected_seconds: float | None = None
    """Of drafting and checking the whole length, where the rule knows costs."""


PLAIN = Plan("target", 0, "plain")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a round taught. `kept[i]`: chance (0 or 1 at temperature 0) that candidate i was kept, up to the first
    refusal; `seconds` of the whole round, and of checking alone (the target's decode and what it samples); `lookup_kept`: what the lookup's guess was
    worth in a round that did not use it; `target_confidence`: the target's top probability, where known."""

    origin: Origin
    rows: int
    context: int
    emitted: int
    kept: tuple[float, ...] = ()
    confidence: tuple[float, ...] = ()
    match_length: int = 0
    lookup_kept: float | None = None
    seconds: float = 0.0
    target_seconds: float = 0.0
    target_confidence: float | None = None


class LengthPolicy(Protocol):
    """The decoder's view of a length rule."""

    @property
    def state(self) -> str:
        """One sentence for people: what the rule is doing and why."""
    @property
    def action(self) -> str | None:
        """What the rule did in this round to keep a loss away, as a sentence; mostly None."""
    @property
    def parked(self) -> bool:
        """True while a draft model is there and deliberately not used."""
    @property
    def wants_ease(self) -> bool:
        """Whether the target's confidence is worth the 0.15 ms it takes to compute."""
    def begin(self, prompt_tokens: int) -> None: ...
    def choose(self, now: Situation) -> Plan: ...
    def go_on(self, confidence: Sequence[float]) -> bool:
        """Whether the draft model should add another candidate to those drafted."""
    def check(self, confidence: Sequence[float]) -> int:
        """How many candidates of a draft made without chance are worth checking. (One drawn from a q must be
        checked whatever it is: leaving it out because of what it is would bias the reply.)"""
    def observe(self, outcome: Outcome) -> None: ...


@dataclass(slots=True)
class FixedLength:
    """Always `length` tokens of one drafter: `fixed:K`, `plain`, and the baselines of benchmarks."""

    origin: Origin
    length: int
    state: str
    action: str | None = None
    parked: bool = False
    wants_ease: bool = False

    def begin(self, prompt_tokens: int) -> None:
        pass

    def choose(self, now: Situation) -> Plan:
        able = now.match_length if self.origin == "ngram" else now.draft_lag if self.origin == "model" else 0
        length = min(self.length, now.limit) if able else 0
        return Plan(self.origin, length, self.state) if length > 0 else PLAIN

    def go_on(self, confidence: Sequence[float]) -> bool:
        return True

    def check(self, confidence: Sequence[float]) -> int:
        return len(confidence)

    def observe(self, outcome: Outcome) -> None:
        pass


def parse_mode(mode: str) -> tuple[str, int]:
    """`auto`, `plain`, `ngram`, `draft` or `fixed:K` with K from 1 to 63, as (name, K or 0). Raises BadRequest."""
    if mode in ("auto", "plain", "ngram", "draft"):
        return mode, 0
    name, _, length = mode.partition(":")
    if name == "fixed" and length.isdecimal() and 1 <= int(length) <= 63:
        return name, int(length)
    raise BadRequest(f"unknown mode {mode!r}: use auto, plain, ngram, draft or fixed:K with K from 1 to 63")
