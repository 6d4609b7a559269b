"""One whole reply as the tokens it is made of, for checks that look at tokens and not at text."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

from engine import Engine, Finished, GenerationRequest, RoundDone, Written
from engine.exactness import END


class Stopped(Exception):
    """Somebody pressed Ctrl-C, or the time is up."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What was written, and how much of it was drafted."""

    written: Written
    drafted: int
    accepted: int

    @property
    def sequence(self) -> tuple[int, ...]:
        """The tokens, with END behind them where the reply ended by itself."""
        return (*self.written.reply, END) if self.written.ended else self.written.reply


def write(engine: Engine, request: GenerationRequest, stopped: Callable[[], bool]) -> Reply:
    """A reply from an empty cache. Raises Stopped, and what the engine raises (ContextFull)."""
    engine.forget()
    drafted = accepted = 0
    events = engine.generate(request)
    with closing(events):
        for event in events:
            if stopped():
                raise Stopped
            if isinstance(event, RoundDone):
                drafted += event.round.judged
                accepted += min(event.round.accepted, event.round.judged)
            elif isinstance(event, Finished):
                if event.reason == "cancelled":
                    raise Stopped
                return Reply(event.written, drafted, accepted)
    raise Stopped
