"""Whose the characters of a reply are: of the token that completed them, also where they were held back and given out later.

Pure bookkeeping beside a TextStream: it says how many characters each token completed, then how many were given out.
"""

from __future__ import annotations

from collections import deque

from engine.values import Origin


class Attribution:
    """One reply's. Fill by `add` for every token, empty by `take` for every piece of text that is given out."""

    def __init__(self) -> None:
        self._held: deque[tuple[Origin, int]] = deque()
        """Of the characters that were completed and not given out yet: by token, first to last."""
        self._last: Origin = "target"

    def add(self, origin: Origin, completed: int) -> None:
        """The next token completed that many characters (0 where one is only begun)."""
        self._last = origin
        if completed:
            self._held.append((origin, completed))

    def take(self, characters: int) -> tuple[tuple[Origin, ...], tuple[int, ...]]:
        """The next `characters` are given out: the proposers of their tokens, and how many are each token's.

        Characters that no token completed, the end of a reply inside one, are the last token's.
        """
        origins: list[Origin] = []
        lengths: list[int] = []
        while characters:
            origin, completed = self._held.popleft() if self._held else (self._last, characters)
            taken = min(completed, characters)
            if completed > taken:
                self._held.appendleft((origin, completed - taken))
            origins.append(origin)
            lengths.append(taken)
            characters -= taken
        return tuple(origins), tuple(lengths)
