"""Ctrl-C and SIGTERM as an orderly stop: the first asks, a second Ctrl-C insists.

llama.cpp must not be left in the middle of a call by an exception, so while an `Interrupt` is active the signal
only raises a flag and calls a hook (the engine's `cancel`); whoever works looks at the flag. Python runs signal
handlers between its own instructions, and one decode of a long prompt is a single instruction that takes seconds;
so the hook is called by a thread that the interpreter wakes through a socket the moment the signal comes.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType, TracebackType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupt:
    """A context manager for the main thread. The previous handlers come back on leaving."""

    def __init__(self) -> None:
        self.hook: Callable[[], None] | None = None
        """Called once, from another thread or from the signal handler."""
        self._signal: int | None = None
        self._handled = False
        self._undo = ExitStack()

    @property
    def seen(self) -> bool:
        """True once a signal came."""
        return self._signal is not None

    @property
    def exit_code(self) -> int:
        """What a shell expects of a process that this signal ended: 130 for Ctrl-C."""
        return 128 + (self._signal or signal.SIGINT)

    def __enter__(self) -> Interrupt:
        ours, interpreters = socket.socketpair()
        self._undo.callback(ours.close)
        interpreters.setblocking(False)  # the interpreter insists
        watcher = threading.Thread(target=self._watch, args=(ours,), name="interrupt", daemon=True)
        watcher.start()
        self._undo.callback(watcher.join)
        self._undo.callback(interpreters.close)  # ends the watcher
        self._undo.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(interpreters.fileno(), warn_on_full_buffer=False))
        for number in SIGNALS:
            self._undo.callback(signal.signal, number, signal.signal(number, self._handle))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._undo.close()

    def _watch(self, wake_ups: socket.socket) -> None:
        """One byte for each signal; nothing more once the other end is closed."""
        while byte := wake_ups.recv(1):
            if byte[0] in SIGNALS:
                self._note(byte[0])

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self._handled:
            raise KeyboardInterrupt
        self._handled = True
        self._note(number)

    def _note(self, number: int) -> None:
        if self._signal is None:
            self._signal = number
            if self.hook is not None:
                self.hook()
