"""How fast files arrive and how long they will take. Pure but for a lock: one thread reports, another one reads."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from models import DownloadProgress

WINDOW_SECONDS = 5.0
"""Rates are of this long; a shorter time would make them jump."""


@dataclass(frozen=True, slots=True)
class FileRow:
    """One file as it is now."""

    name: str
    phase: str
    done: int
    total: int | None
    rate: float | None
    """Bytes a second; None until there is something to go by."""

    @property
    def seconds_left(self) -> float | None:
        if not self.rate or self.total is None or self.done >= self.total:
            return None
        return (self.total - self.done) / self.rate


@dataclass(slots=True)
class _File:
    last: DownloadProgress
    seen: deque[tuple[float, int]] = field(default_factory=deque)


class DownloadMeter:
    """Collects what a download reports."""

    def __init__(self) -> None:
        self._files: dict[int, _File] = {}
        self._notice = ""
        self._lock = threading.Lock()

    def add(self, report: DownloadProgress, now: float) -> None:
        """`now` is in seconds of a clock that never goes back."""
        with self._lock:
            file = self._files.setdefault(report.index, _File(report))
            if file.last.phase != report.phase:
                file.seen.clear()
            file.last = report
            file.seen.append((now, report.done_bytes))
            while len(file.seen) > 2 and now - file.seen[0][0] > WINDOW_SECONDS:
                file.seen.popleft()

    def say(self, notice: str) -> None:
        with self._lock:
            self._notice = notice

    @property
    def notice(self) -> str:
        """The last remark of the download."""
        with self._lock:
            return self._notice

    def rows(self, now: float) -> list[FileRow]:
        """The files that were heard of, in their order."""
        with self._lock:
            return [_row(self._files[index], now) for index in sorted(self._files)]


def _row(file: _File, now: float) -> FileRow:
    last = file.last
    began, bytes_then = file.seen[0]
    seconds = now - began
    rate = (last.done_bytes - bytes_then) / seconds if seconds > 0.5 else None
    return FileRow(last.name, last.phase, last.done_bytes, last.total_bytes, rate)
