"""How long a run will still take, from how long its conversations took so far. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import fmean


class Pace:
    """Seconds of a conversation by category; a category that was not seen yet is taken to be like the others."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def add(self, category: str, seconds: float) -> None:
        """A conversation, with all its replies, took that long."""
        self._seconds[category].append(seconds)

    def left(self, categories: Iterable[str]) -> float | None:
        """Seconds for one conversation in each of `categories`; None as long as nothing is known."""
        if not self._seconds:
            return None
        known = {category: fmean(seconds) for category, seconds in self._seconds.items()}
        usual = fmean(known.values())
        return sum(known.get(category, usual) for category in categories)


def in_words(seconds: float | None) -> str:
    """`3 min left`."""
    if seconds is None:
        return ""
    if seconds < 60:
        return f"{max(seconds, 1):.0f} s left"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min left"
    return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60):02d} min left"
