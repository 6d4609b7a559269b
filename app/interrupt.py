"""Ctrl-C and SIGTERM as an orderly stop: the first asks, a second Ctrl-C insists.

llama.cpp must not be left in the middle of a call by an exception, so while an `Interrupt` is active the signal
only raises a flag and calls a hook (the engine's `cancel`); whoever works looks at the flag.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """A context manager for the main thread. The previous handlers come back on leaving."""

    def __init__(self) -> None:
        self.hook: Callable[[], None] | None = None
        """Called once from the signal handler; must be signal-safe."""
        self._signal: int | None = None
        self._previous: dict[int, Any] = {}

    @property
    def seen(self) -> bool:
        """True once a signal came."""
        return self._signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that this signal ended: 130 for Ctrl-C."""
        return 128 + (self._signal or signal.SIGINT)

    def __enter__(self) -> Interrupt:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.seen:
            raise KeyboardInterrupt
        self._signal = number
        if self.hook is not None:
            self.hook()
