"""How fast a reply is made, and where its time goes: counters over the rounds of one reply. Pure; seconds, tokens, bytes.

All rates come from the engine's own times. The first round is left out of them: it ends the reading of the prompt.
The ratio to plain decoding is `seconds the same tokens would have taken plainly / seconds they really took`, where a
plain token takes the target's measured time for one row at that context, and what plain rounds of this reply took besides
(sampling above all); where there were none, as much of that as fell to each token.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

if TYPE_CHECKING:
    from engine import RoundDone

WINDOW_SECONDS = 2.0
"""What `tokens_per_second` looks back on: shorter jumps with every block, longer hides a change of state."""
RECENT_LENGTHS = 64
LOG_LINES = 8
HELD_ROUNDS = 4
"""Rounds that a state has to last to be logged: copying a word or two is no news."""

ORIGINS = ("target", "model", "ngram")


@dataclass(frozen=True, slots=True)
class PaceSnapshot:
    """The numbers of one moment, or of a finished reply."""

    tokens: int = 0
    tokens_per_second: float = 0.0
    """Over the last seconds; 0.0 before there is a second token."""
    reply_tokens_per_second: float = 0.0
    """Over the whole reply."""
    ratio_to_plain: float | None = None
    """Above 1: faster than plain decoding of the same tokens here. None: not measured."""
    acceptance_by_position: tuple[float, ...] = ()
    """Of the blocks that reached position 1, 2, ..., the share that kept it; in [0, 1]."""
    lengths: tuple[int, ...] = ()
    """Candidates in each of the recent rounds, the latest last; 0 is a plain round."""
    draft_seconds: float = 0.0
    check_seconds: float = 0.0
    other_seconds: float = 0.0
    by_origin: Mapping[str, int] = field(default_factory=dict)
    """Tokens of the reply by who proposed them: target, model, ngram."""
    context_used: int = 0
    """Tokens in the context now."""
    context_size: int = 0
    memory_bytes: int | None = None
    """Resident memory of the engine's process."""
    state: str = ""
    """One sentence on what the engine does and why."""
    log: tuple[str, ...] = ()
    """The last changes of state that lasted, the latest last, each with the token at which it came."""

    @property
    def decode_seconds(self) -> float:
        return self.draft_seconds + self.check_seconds + self.other_seconds

    def as_json(self) -> dict[str, Any]:
        """What a saved reply keeps. Lengths are those of the last rounds only."""
        values = asdict(self)
        rounded = {name: round(value, 4) for name, value in values.items() if isinstance(value, float)}
        shares = [round(share, 4) for share in self.acceptance_by_position]
        return {**values, **rounded, "acceptance_by_position": shares, "lengths": list(self.lengths), "log": list(self.log)}

    @classmethod
    def from_report(cls, report: Mapping[str, Any] | None) -> PaceSnapshot | None:
        """The numbers that a saved reply kept in its report; None if it has none, or none that can be read."""
        kept = (report or {}).get("pace")
        if not isinstance(kept, dict):
            return None
        try:
            snapshot = _reader().validate_python({name: kept[name] for name in kept if name in cls.__dataclass_fields__})
        except ValidationError:  # edited by hand, or of another version
            return None
        counts = (*snapshot.lengths, *snapshot.by_origin.values(), snapshot.tokens, snapshot.context_used, snapshot.context_size)
        seconds = (snapshot.draft_seconds, snapshot.check_seconds, snapshot.other_seconds)
        sound = min(counts) >= 0 and min(seconds) >= 0 and all(0 <= share <= 1 for share in snapshot.acceptance_by_position)
        return snapshot if sound else None


@cache
def _reader() -> TypeAdapter[PaceSnapshot]:
    return TypeAdapter(PaceSnapshot)


class PaceMeter:
    """Fill by `add`, one reply each; read by `snapshot`."""

    def __init__(self, context_size: int) -> None:
        self._context_size = context_size
        self._context_used = 0
        self._rounds = 0
        self._origins: Counter[str] = Counter()
        self._judged: Counter[int] = Counter()
        self._kept: Counter[int] = Counter()
        self._lengths: deque[int] = deque(maxlen=RECENT_LENGTHS)
        self._window: deque[tuple[float, int]] = deque()
        self._draft = self._check = self._other = 0.0
        self._timed_tokens = 0
        self._plain_seconds = self._compared_seconds = 0.0
        self._compared_tokens = 0
        self._plain_rounds, self._plain_other = 0, 0.0
        self._state = ""
        self._log: deque[str] = deque(maxlen=LOG_LINES)
        self._logged_kind = self._kind = ""
        self._held = 0

    def add(self, done: RoundDone) -> None:
        """One more round of the reply."""
        round_ = done.round
        emitted = len(round_.emitted)
        proposed = min(round_.accepted, emitted)
        self._origins[round_.origin] += proposed
        self._origins["target"] += emitted - proposed
        self._context_used = round_.context + emitted
        self._rounds += 1
        if self._rounds > 1:
            self._time(round_.draft_seconds, round_.target_seconds, round_.total_seconds, round_.produced, round_.plain_seconds)
            if not round_.candidates:
                self._plain_rounds += 1
                self._plain_other += max(0.0, round_.total_seconds - round_.draft_seconds - round_.target_seconds)
            self._lengths.append(len(round_.candidates))
            self._judged.update(range(round_.judged))
            self._kept.update(range(min(round_.accepted, round_.judged)))
        self._note_state(done.state)

    def snapshot(self, memory_bytes: int | None = None) -> PaceSnapshot:
        seconds = sum(took for took, _ in self._window)
        total = self._draft + self._check + self._other
        return PaceSnapshot(
            tokens=self._origins.total(),
            tokens_per_second=sum(tokens for _, tokens in self._window) / seconds if seconds > 0 else 0.0,
            reply_tokens_per_second=self._timed_tokens / total if total > 0 else 0.0,
            ratio_to_plain=self._ratio(),
            acceptance_by_position=tuple(self._kept[i] / self._judged[i] for i in range(len(self._judged))),
            lengths=tuple(self._lengths),
            draft_seconds=self._draft, check_seconds=self._check, other_seconds=self._other,
            by_origin={origin: self._origins[origin] for origin in ORIGINS},
            context_used=self._context_used, context_size=self._context_size, memory_bytes=memory_bytes,
            state=self._state, log=tuple(self._log),
        )

    def _time(self, draft: float, check: float, total: float, tokens: int, plain: float | None) -> None:
        other = max(0.0, total - draft - check)
        self._draft += draft
        self._check += check
        self._other += other
        self._timed_tokens += tokens
        if plain is not None:
            self._plain_seconds += plain * tokens
            self._compared_seconds += total
            self._compared_tokens += tokens
        self._window.append((total, tokens))
        while self._window and sum(took for took, _ in self._window) - self._window[0][0] >= WINDOW_SECONDS:
            self._window.popleft()

    def _ratio(self) -> float | None:
        if self._compared_seconds <= 0:
            return None
        if self._plain_rounds:
            besides = self._plain_other / self._plain_rounds
        else:
            besides = self._other / max(1, self._timed_tokens)
        return (self._plain_seconds + besides * self._compared_tokens) / self._compared_seconds

    def _note_state(self, state: str) -> None:
        """Log a state that lasts. Numbers in the sentence change with every round and make no new state."""
        self._state = state
        kind = re.sub(r"[\d.,]+", "", state)
        self._held = self._held + 1 if kind == self._kind else 1
        self._kind = kind
        if self._held >= HELD_ROUNDS and kind != self._logged_kind:
            self._logged_kind = kind
            self._log.append(f"token {self._origins.total()}: {state}")
