"""Who proposed which part of a reply's text: run lengths over its characters. Pure."""

from __future__ import annotations

from collections.abc import Iterator
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
    """The delta's text, cut where its proposer changes; text held back from earlier tokens is the first token's."""
    text, origins = delta.text, delta.origins
    if not origins:
        yield "target", text
        return
    same = next((i for i, origin in enumerate(origins) if origin != origins[0]), len(origins))
    cut = _cut(text, same, len(origins))
    if cut:
        yield origins[0], text[:cut]
    if cut < len(text):
        yield origins[min(same, len(origins) - 1)], text[cut:]


def _cut(text: str, first: int, tokens: int) -> int:
    """Where the first `first` of `tokens` tokens end in the text, to the nearest word: the engine does not say."""
    if first == tokens:
        return len(text)
    about = max(1, round(len(text) * first / tokens))
    near = range(max(1, about - 4), min(len(text), about + 5))
    starts = [i for i in near if text[i].isspace() or not text[i].isalnum()]
    return min(starts, key=lambda i: abs(i - about), default=about)
