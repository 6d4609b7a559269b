"""Who proposed which part of a reply's text: run lengths over its characters. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from app.chat.conversation import Origin, OriginSpan

if TYPE_CHECKING:
    from engine import TextDelta


class OriginRuns:
    """Run lengths in the making: neighbours of one origin are one run."""

    def __init__(self) -> None:
        self._runs: list[tuple[Origin, int]] = []

    def add(self, origin: Origin, characters: int) -> None:
        if self._runs and self._runs[-1][0] == origin:
            self._runs[-1] = (origin, self._runs[-1][1] + characters)
        elif characters:
            self._runs.append((origin, characters))

    def spans(self) -> tuple[OriginSpan, ...]:
        return tuple(OriginSpan(origin, characters) for origin, characters in self._runs)


def pieces_of(delta: TextDelta) -> Iterator[tuple[Origin, str]]:
    """The delta's text, token by token."""
    start = 0
    for origin, length in zip(delta.origins, delta.lengths, strict=True):
        yield origin, delta.text[start : start + length]
        start += length


def spans_from(spans: Sequence[OriginSpan], start: int) -> list[OriginSpan]:
    """The spans of the text from the character `start` on."""
    rest: list[OriginSpan] = []
    for span in spans:
        left, start = span.characters - start, max(0, start - span.characters)
        if left > 0:
            rest.append(OriginSpan(span.origin, min(left, span.characters)))
    return rest
