"""What a reader takes for one character may be several code points: a family emoji, a flag, a letter with its accent.

The cursor steps over such a cluster, Backspace deletes it whole, and a style never ends inside it: a terminal draws the parts of
a cluster that is cut in two wider than the whole, which pushes the rest of the line out of its place.
"""

from __future__ import annotations

from unicodedata import category

from rich.style import Style
from rich.text import Text

JOINER = "\u200d"


def next_boundary(text: str, index: int) -> int:
    """Where the cluster that starts at `index` ends."""
    end = index + 1
    while end < len(text) and _belongs(text, end):
        end += 1
    return min(end, len(text))


def previous_boundary(text: str, index: int) -> int:
    """Where the cluster that ends at `index` starts."""
    start = max(0, index - 1)
    while start > 0 and _belongs(text, start):
        start -= 1
    return start


def _belongs(text: str, index: int) -> bool:
    """Whether the code point at `index` is drawn with the one before it."""
    character, before = text[index], text[index - 1]
    if character == JOINER or (before == JOINER and ord(character) > 0x2000):
        return True
    if category(character) in ("Mn", "Me") or "\U0001f3fb" <= character <= "\U0001f3ff":  # marks; skin tones
        return True
    return _flag_letter(character) and _flag_letters_before(text, index) % 2 == 1


def _flag_letter(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"


def _flag_letters_before(text: str, index: int) -> int:
    """A flag is a pair of letters; in a row of them the pairs count from its start."""
    start = index
    while start > 0 and _flag_letter(text[start - 1]):
        start -= 1
    return index - start


class ClusterText(Text):
    """A line whose styles cover whole clusters."""

    def stylize(self, style: str | Style, start: int = 0, end: int | None = None) -> None:
        plain = self.plain
        if end is not None and 0 < end < len(plain):
            while end < len(plain) and _belongs(plain, end):
                end += 1
        if 0 < start < len(plain):
            while start > 0 and _belongs(plain, start):
                start -= 1
        super().stylize(style, start, end)
