"""Strips control characters and escape sequences from text that somebody else's model or file wrote.

Pure and incremental: a sequence cut in two by a delta's edge is dropped whole, because the state outlives
`feed`. Newlines and tabs stay. No ESC, C1 control, DEL or carriage return ever leaves, so nothing that is
printed can move the cursor, retitle the window or write to the clipboard; dropping the sequences' parameters
too is for the reader's sake. The characters that override or isolate a writing direction go too: on a terminal that
knows them, one of them turns all that follows on its line, borders included, and shows `exe.txt` for a file that ends
in `.exe`. Right-to-left text has its direction from its letters and stays as it is, as do the marks (LRM, RLM), which
turn nothing. A control string that never ends (an OSC without its terminator) therefore stops
at the line's end instead of swallowing the reply.
"""

from __future__ import annotations

import re
from enum import Enum, auto

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Everything in C0, DEL and C1 but the tab and the newline; embeddings, overrides and isolates of a direction."""

_STRING_OPENERS = "]PX^_"
"""After ESC: OSC, DCS, SOS, PM and APC, which run to a terminator."""
_C1_STRING_OPENERS = "\x9d\x90\x98\x9e\x9f"
_C1_CSI = "\x9b"
_STRING_ENDS = "\x07\x9c\x18\x1a"
"""BEL, ST, and CAN and SUB, which cancel a sequence."""


class _State(Enum):
    TEXT = auto()
    ESCAPE = auto()
    CSI = auto()
    STRING = auto()


class Sanitizer:
    """One stream of text. Use a fresh one for each reply."""

    def __init__(self) -> None:
        self._state = _State.TEXT

    def feed(self, text: str) -> str:
        """The printable part of `text`, the next piece of the stream."""
        if self._state is _State.TEXT and not _CONTROL.search(text):
            return text
        return "".join(char for char in text if self._keeps(char))

    def _keeps(self, char: str) -> bool:
        """Advance by one character; True if it is text to print."""
        match self._state:
            case _State.ESCAPE if " " <= char <= "/":
                return False  # an intermediate byte, as in ESC ( B
            case _State.ESCAPE if "0" <= char <= "~":
                self._state = (
                    _State.CSI if char == "[" else _State.STRING if char in _STRING_OPENERS else _State.TEXT
                )
                return False
            case _State.CSI if " " <= char <= "?":
                return False  # parameters and intermediates
            case _State.CSI if "@" <= char <= "~":
                self._state = _State.TEXT  # the final byte
                return False
            case _State.STRING if char in _STRING_ENDS:
                self._state = _State.TEXT
                return False
            case _State.STRING if char not in "\x1b\n":
                return False
        # Text, or a character that no open sequence can hold: it ends the sequence and is read afresh.
        self._state = _State.TEXT
        if not _CONTROL.match(char):
            return True
        if char == "\x1b":
            self._state = _State.ESCAPE
        elif char == _C1_CSI:
            self._state = _State.CSI
        elif char in _C1_STRING_OPENERS:
            self._state = _State.STRING
        return False


def sanitize(text: str) -> str:
    """`text` without control characters and escape sequences, for text that comes whole."""
    return Sanitizer().feed(text)


def without_controls(text: str) -> str:
    """`text` without the control characters alone, none of which has a width; the same object if there are none. A second
    lock, for what is drawn: it sees pieces of sequences."""
    return _CONTROL.sub("", text) if _CONTROL.search(text) else text
