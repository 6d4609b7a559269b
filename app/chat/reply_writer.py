"""Keeps one reply as it comes: into the store, and to the interface.

The text that leaves here is sanitised, in the store and in the events alike. It is stored as it grows: at most half a
second of it is lost when this process is killed. However the reply ends, what there is of it is kept, with its state.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from app.chat.conversation import MessageState
from app.chat.events import HostEvent, PaceChanged, ReplyEnded, ReplyGrew, StoreFailed
from app.chat.origins import OriginRuns, pieces_of
from app.chat.pace import PaceMeter
from app.sanitize import Sanitizer, sanitize
from app.store import ChatStore, StoreError

if TYPE_CHECKING:
    from engine import RoundDone, TextDelta

PACE_SECONDS = 1.0
STORE_SECONDS = 0.8
"""What a crash may cost, with the tenth of a second that text may wait to be told: below a second."""


@dataclass(frozen=True, slots=True)
class Desk:
    """What making a reply needs of its host."""

    emit: Callable[[HostEvent], None]
    store: Callable[[], ChatStore]
    """The store as it is now: it may be swapped at any time."""
    stopped: Callable[[], bool]
    """True once the user wants the job to end."""
    between: Callable[[], None]
    """To be called often: answers what others ask of the engine meanwhile."""
    memory: Callable[[], int | None]
    """Bytes the engine's process takes now."""


class ReplyWriter:
    """One reply, started in the store. Fill by `take` and `measure`; then `end`, once."""

    def __init__(self, desk: Desk, message_id: int, context_size: int) -> None:
        self.message_id = message_id
        self.dropped = 0
        """Of the request's messages, how many of the oldest the model does not read; kept in the report."""
        self._desk = desk
        self._sanitizer = Sanitizer()
        self._meter = PaceMeter(context_size)
        self._text: list[str] = []
        self._runs = OriginRuns()
        self._paced = -math.inf
        self._stored = time.monotonic()
        self._store_failed = False

    def take(self, delta: TextDelta) -> None:
        """The next piece of the reply."""
        text, runs = "", OriginRuns()
        for origin, piece in pieces_of(delta):
            printable = self._sanitizer.feed(piece)
            text += printable
            runs.add(origin, len(printable))
            self._runs.add(origin, len(printable))
        if text:
            self._text.append(text)
            self._desk.emit(ReplyGrew(self.message_id, text, runs.spans()))
        now = time.monotonic()
        if now - self._stored >= STORE_SECONDS:
            self._stored = now
            self._write(lambda store: store.grow_reply(self.message_id, self.text, self._runs.spans()))

    def measure(self, done: RoundDone) -> None:
        """The numbers of the round that made it."""
        self._meter.add(done)
        now = time.monotonic()
        if now - self._paced >= PACE_SECONDS:
            self._paced = now
            self._desk.emit(PaceChanged(self.message_id, self._meter.snapshot(self._desk.memory())))

    @property
    def text(self) -> str:
        """What there is of the reply."""
        return "".join(self._text)

    def end(self, state: MessageState, report: dict[str, Any] | None = None, line: str | None = None) -> None:
        """The reply is over. `line` says why where its state does not; it is kept in the report."""
        kept = dict(report or {})
        pace = self._meter.snapshot(self._desk.memory())
        if pace.tokens:
            self._desk.emit(PaceChanged(self.message_id, pace))
            kept["pace"] = pace.as_json()
        line = sanitize(line) if line else None
        if line:
            kept["line"] = line
        if self.dropped:
            kept["dropped"] = self.dropped
        text, spans = self.text, self._runs.spans()
        stored = self._write(lambda store: store.finish_reply(self.message_id, text, spans, state, kept))
        self._desk.emit(ReplyEnded(self.message_id, state, text, spans, kept, line, stored))

    def _write(self, write: Callable[[ChatStore], None]) -> bool:
        """Write to the store as it is now. A failure is said once; the reply goes on."""
        try:
            write(self._desk.store())
        except StoreError as error:
            if not self._store_failed:
                self._store_failed = True
                self._desk.emit(StoreFailed(str(error)))
            return False
        return True
