"""Tells pasted keys from typed ones, for terminals that do not mark a paste (no bracketed paste: some SSH clients, old
multiplexers, the Linux console).

There a paste is a burst of keys, and an Enter in it must not send. Nobody types two keys within a few milliseconds, so such
keys are held back until the burst is over; the Enter at its end sends only if the burst was a single line, which is also how
a script types. Pure: times come in with the keys, in seconds of one clock, as the terminal's reader noted them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

FAST = 0.008
"""Closer together than anybody types (a rolled pair of keys is 20 ms apart)."""
PACKET = 0.25
"""A paste over a network comes in packets; the pause between two is shorter than between pasting and pressing Enter."""
QUIET = 0.03
"""A burst is over when nothing came for so long."""


@dataclass(frozen=True, slots=True)
class Burst:
    """Held keys that go into the text as one, and whether the Enter at the end sends."""

    text: str
    sends: bool = False


@dataclass(slots=True)
class BurstDetector:
    """Fed with every key that stands for text, in order."""

    _held: list[str] = field(default_factory=list)
    _last: float = float("-inf")
    _fast_keys: int = 0
    """Keys of the burst so far; 0 outside of one."""
    _broken: bool = False
    """The burst has had a line's end with something after it."""

    @property
    def holding(self) -> bool:
        return bool(self._held)

    def is_fast(self, time: float) -> bool:
        """Whether a key now would follow the last one faster than anybody types."""
        return time - self._last < FAST

    def holds(self, character: str, time: float) -> bool:
        """Whether this key is held back: a typed character is not, an Enter ("\\r") always is for a moment."""
        gap, self._last = time - self._last, time
        if gap >= PACKET or (gap >= FAST and not self._fast_keys and not self._held):
            self._fast_keys, self._broken = 0, False
        if gap < FAST:
            self._fast_keys += 1
        if self._held and self._held[-1] in "\r\n":
            self._broken = True
        if character == "\r" or self._held or gap < FAST:
            self._held.append(character)
            return True
        return False

    def release(self) -> Burst:
        """What was held, once nothing more came for QUIET seconds."""
        held = self._taken()
        sends = held.endswith("\r") and not self._broken
        return Burst(_lines(held[:-1]), True) if sends else Burst(_lines(held))

    def interrupted(self) -> Burst:
        """What was held, when some other key ends the burst: it is text, nothing is sent."""
        return Burst(_lines(self._taken()))

    def _taken(self) -> str:
        held = "".join(self._held)
        self._held.clear()
        return held


def _lines(held: str) -> str:
    return held.replace("\r\n", "\n").replace("\r", "\n")
