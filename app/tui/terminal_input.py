"""From what a terminal sends to keys and pastes. Pure: data and times in, keys and pastes out.

Three things are done here because the bytes tell more than the keys made of them:

- A paste that the terminal does not mark (no bracketed paste: some SSH clients and multiplexers, the Linux console) is a burst
  of characters, and an Enter in it must not send. Nobody types two keys within a few milliseconds, so such characters are held
  until the burst is over; an Enter or Tab at its end is a key only if the burst was a single line, which is how a script types.
- Alt+Enter (ESC CR) is a key of its own.
- Esc is told from the beginning of a sequence after 40 ms, and a marked paste of a megabyte costs nothing per character.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field

FAST = 0.008
"""Seconds between keys that nobody types (a rolled pair of keys is 20 ms apart)."""
QUIET = 0.03
"""A burst is over when nothing came for so long."""
PACKET = 0.25
"""A paste over a network comes in packets; the pause between two is shorter than between pasting and pressing Enter."""
ESCAPE = 0.04
"""An ESC with nothing behind it for so long is the key."""
LOST = 2.0
"""A marked paste whose end does not come is taken as it is."""
FEW = 12
"""A burst of so few characters without a line's end may as well be keys that a slow line brought together."""

_START, _END = "\x1b[200~", "\x1b[201~"
_UNDECIDED = re.compile(r"\x1b(\[(2(00?)?)?)?\Z")
"""What may be the beginning of a paste's mark, or of any sequence."""
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_ALT_ENTER = "\x1b\r"


@dataclass(frozen=True, slots=True)
class Typed:
    """Characters and escape sequences as they came, each a key of its own."""

    data: str


@dataclass(frozen=True, slots=True)
class Pasted:
    """One text."""

    text: str


@dataclass(frozen=True, slots=True)
class Pressed:
    """A key by Textual's name."""

    key: str


Input = Typed | Pasted | Pressed


@dataclass(slots=True)
class TerminalInput:
    """Fed with what is read, in the order it is read; times are seconds of one clock."""

    _undecided: str = ""
    _paste: list[str] | None = None
    """The pieces of a marked paste so far; the last may hold part of the end's mark."""
    _held: str = ""
    _in_burst: bool = False
    _broken: bool = False
    """The burst has had a line's end with something after it."""
    _last: float = field(default=float("-inf"))

    def feed(self, data: str, time: float) -> Iterator[Input]:
        """What `data` comes to, as far as that is certain; see `due`."""
        data, self._undecided = self._undecided + data, ""
        gap, self._last = time - self._last, time
        while data:
            if self._paste is not None:
                data = yield from self._marked(data)
            else:
                before, mark, rest = data.partition(_START)
                if not mark and (found := _UNDECIDED.search(data)):
                    before, self._undecided = data[: found.start()], found[0]
                yield from self._unmarked(before, gap)
                if mark:
                    yield from self._interrupted()
                    self._paste = []
                data = rest

    def due(self, time: float) -> float | None:
        """Seconds until `tick` has something to decide; None while nothing waits."""
        if patience := self._patience:
            return max(0.0, self._last + patience - time)
        return None

    def tick(self, time: float) -> Iterator[Input]:
        """What is certain by now because nothing more came."""
        patience = self._patience
        if not patience or time < self._last + patience:
            return
        if self._paste is not None:
            text, self._paste = "".join(self._paste), None
            yield Pasted(_lines(text))
        elif self._undecided:
            data, self._undecided = self._undecided, ""
            yield from self._interrupted()
            yield Pressed("escape") if data == "\x1b" else Typed(data)
        else:
            yield from self._released()

    @property
    def _patience(self) -> float:
        if self._paste is not None:
            return LOST
        return ESCAPE if self._undecided else QUIET if self._held else 0.0

    def _marked(self, data: str) -> Generator[Input, None, str]:
        """Part of a marked paste; returns what comes after it."""
        assert self._paste is not None
        joined = (self._paste.pop() if self._paste else "") + data
        text, mark, rest = joined.partition(_END)
        if not mark:
            self._paste += [joined[: -len(_END)], joined[-len(_END) :]]
            return ""
        whole, self._paste = "".join((*self._paste, text)), None
        yield Pasted(_lines(whole))
        return rest

    def _unmarked(self, data: str, gap: float) -> Iterator[Input]:
        for number, part in enumerate(data.split(_ALT_ENTER)):
            if number:
                yield from self._interrupted()
                yield Pressed("alt+enter")
            if part and _NO_TEXT.search(part):
                yield from self._interrupted()
                self._in_burst = self._broken = False
                yield Typed(part)
            elif part and self._holds(part, gap):
                self._held += part
            elif part:
                yield Typed(part)

    def _holds(self, part: str, gap: float) -> bool:
        """Whether these characters are part of a burst, or an Enter, which may be the first of one."""
        burst = len(part) > 1 or gap < FAST
        if gap >= PACKET or (gap >= FAST and not self._in_burst and not self._held):
            self._in_burst = self._broken = False
        self._in_burst |= burst
        if self._held.endswith(("\r", "\n")) or re.search(r"[\r\n](?!\n?\Z)", part):
            self._broken = True
        return burst or bool(self._held) or part == "\r"

    def _released(self) -> Iterator[Input]:
        """The burst is over."""
        held, self._held = self._held, ""
        last = held[-1] if held[-1] in "\r\t" and not self._broken else ""
        text = held[: len(held) - len(last)]
        if _may_be_keys(text):
            yield Typed(held)
        else:
            yield Pasted(_lines(text))
            if last:
                yield Typed(last)

    def _interrupted(self) -> Iterator[Input]:
        """A key that is no text ends the burst: what was held is text, nothing is sent."""
        held, self._held = self._held, ""
        if held:
            yield Typed(held) if _may_be_keys(held) else Pasted(_lines(held))


def _may_be_keys(text: str) -> bool:
    """Whether a burst is as likely keys that a slow line brought together: few, or one held down. An emoji of several code
    points, or what an input method puts in, is one text."""
    characters = set(text)
    return text.isascii() and not characters & {"\r", "\n"} and (len(text) < FEW or len(characters) == 1)


def _lines(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")
