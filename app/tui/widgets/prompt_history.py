"""Walking through earlier prompts, with what was being written kept as the newest. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

MOST = 200

RecentPrompts = Callable[[int], Sequence[str]]
"""So many earlier prompts at most, the newest first."""


class PromptHistory:
    """Reads the earlier prompts when they are first asked for, and again after a prompt was sent."""

    def __init__(self, recent: RecentPrompts) -> None:
        self._recent = recent
        self._entries: list[str] = []
        self._place = 0
        self._aside: list[str] = []

    def set_aside(self, text: str) -> None:
        """`text` was not sent and gives way to another: it comes before the earlier prompts from now on."""
        if text.strip():
            self._aside.insert(0, text)

    def earlier(self, current: str) -> str | None:
        """The prompt before the one shown; None at the oldest. `current` is what is shown now."""
        if self._place == 0:
            earlier = [prompt for prompt in dict.fromkeys([*self._aside, *self._recent(MOST)]) if prompt and prompt != current]
            self._entries = [current, *earlier]
        if self._place + 1 >= len(self._entries):
            return None
        self._entries[self._place] = current  # what was changed in a recalled prompt stays while walking
        self._place += 1
        return self._entries[self._place]

    def later(self, current: str) -> str | None:
        """The prompt after the one shown, at last what was being written; None there."""
        if self._place == 0:
            return None
        self._entries[self._place] = current
        self._place -= 1
        return self._entries[self._place]

    def forget(self) -> None:
        """Start afresh: what is shown now is new."""
        self._place = 0
