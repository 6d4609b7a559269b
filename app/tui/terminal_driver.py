"""Textual's driver for Unix terminals, with the reading of input done by TerminalInput. See there for what that gains. The
thread that reads sleeps while nothing is typed: every time it wakes it takes a core from the engine.

The only module that touches Textual's parser; where Textual has none of these names any more, its own driver serves.
"""

from __future__ import annotations

import os
import selectors
import signal
import sys
from codecs import getincrementaldecoder
from time import monotonic
from typing import Any

from textual import events
from textual.driver import Driver

from app.tui.terminal_input import Input, Pasted, Pressed, TerminalInput

READ = 65_536
WAKE = 0.1
"""Seconds after which the thread looks whether an unfinished sequence is one,"""
SETTLED = 1.0
"""until nothing was read for so long."""


def terminal_driver() -> type[Driver] | None:
    """The driver class for this system; None for Textual's own choice."""
    if sys.platform == "win32" or os.environ.get("TEXTUAL_DRIVER"):
        return None
    try:
        from textual._xterm_parser import XTermParser
        from textual.drivers.linux_driver import LinuxDriver
    except ImportError:
        return None

    class TerminalDriver(LinuxDriver):
        """Reads the terminal in a thread of its own until the app ends."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._ending, self._end = os.pipe()

        def disable_input(self) -> None:
            os.write(self._end, b"\0")
            super().disable_input()  # waits for the thread
            os.read(self._ending, READ)

        def run_input_thread(self) -> None:
            parser = XTermParser()
            typed = TerminalInput()
            decode = getincrementaldecoder("utf-8")("replace").decode

            def pass_on(found: Input) -> None:
                if isinstance(found, Pasted):
                    self.process_message(events.Paste(found.text.replace("\0", "")))
                elif isinstance(found, Pressed):
                    self.process_message(events.Key(found.key, "\x1b" if found.key == "escape" else None))
                else:
                    for message in parser.feed(found.data):
                        self.process_message(message)

            with selectors.SelectSelector() as selector:
                selector.register(self.fileno, selectors.EVENT_READ)
                selector.register(self._ending, selectors.EVENT_READ)
                last = monotonic()
                while not self.exit_event.is_set():
                    due = typed.due(monotonic())
                    unsure = WAKE if monotonic() - last < SETTLED else None
                    ready = selector.select(min(WAKE, due) if due is not None else unsure)
                    if any(key.fd == self.fileno for key, _ in ready):
                        last = monotonic()
                        try:
                            data = os.read(self.fileno, READ)
                        except OSError:
                            data = b""
                        if not data:  # the terminal is gone, though nobody was told
                            if not self.exit_event.is_set():
                                os.kill(os.getpid(), signal.SIGHUP)
                            break
                        for found in typed.feed(decode(data), monotonic()):
                            pass_on(found)
                    for found in typed.tick(monotonic()):
                        pass_on(found)
                    for message in parser.tick():
                        self.process_message(message)

    return TerminalDriver
