"""A program in a pseudo-terminal of its own, and the screen it draws, emulated by pyte.

Waits are on what is seen. The program's session has the terminal as its controlling one, so that a resize or a hang-up
reaches it as it would in a window.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from time import monotonic
from typing import Any

import psutil
import pyte

PATIENCE = 90.0
"""Seconds before a wait fails: much longer than anything takes."""
KEYS = {
    "enter": "\r", "escape": "\x1b", "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D",
    "pageup": "\x1b[5~", "pagedown": "\x1b[6~", "f3": "\x1bOR", "f5": "\x1b[15~", "f8": "\x1b[19~",
    **{f"ctrl+{letter}": chr(ord(letter) - 96) for letter in "abcdefghijklmnopqrstuvwxyz"},
}
ALTERNATE_SCREEN, BRACKETED_PASTE, CURSOR, WRAPPING = 1049, 2004, 25, 7
MOUSE_MODES = (1000, 1002, 1003, 1006, 1015, 1016)
_MODE = re.compile(rb"\x1b\[\?([0-9;]+)([hl])")


class _Screen(pyte.Screen):
    """pyte's screen with the alternate one, which it does not know."""

    _main: tuple[Any, Any] | None = None

    def set_mode(self, *modes: int, **how: Any) -> None:
        if ALTERNATE_SCREEN in modes and self._main is None:
            self._main = (self.buffer, copy(self.cursor))
            self.buffer = copy(self.buffer)
            self.buffer.clear()
            self.dirty.update(range(self.lines))
        super().set_mode(*modes, **how)

    def reset_mode(self, *modes: int, **how: Any) -> None:
        super().reset_mode(*modes, **how)
        if ALTERNATE_SCREEN in modes and self._main is not None:
            (self.buffer, self.cursor), self._main = self._main, None


class Terminal:
    """Runs `command` in a terminal of `cols` by `rows` cells. What it writes is read whenever something is waited for."""

    def __init__(
        self, cols: int, rows: int, command: Sequence[str], environ: Mapping[str, str], cwd: str | os.PathLike[str],
        *, emulated: bool = True,
    ) -> None:
        """Without emulation there is only `raw`, at no cost."""
        self._ours, self._theirs = pty.openpty()  # theirs stays open, to look at the terminal's state afterwards
        self._size(cols, rows)
        self._emulated = emulated
        self._screen = _Screen(cols, rows)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        """Everything the program wrote."""
        self._before = termios.tcgetattr(self._theirs)
        self.process = subprocess.Popen(
            command, stdin=self._theirs, stdout=self._theirs, stderr=self._theirs, cwd=cwd, env=dict(environ),
            start_new_session=True, preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )

    # ---- keys

    def type(self, text: str) -> None:
        """Key by key, as a user does; a burst would be taken for a paste."""
        for key in text:
            self._write(key.encode())
            self._pass(0.02)

    def press(self, *keys: str) -> None:
        """Keys by name, or single characters."""
        for key in keys:
            self._write(KEYS.get(key, key).encode())
            self._pass(0.06)  # Esc or Enter with something right behind it would be something else

    def paste(self, text: str, *, bracketed: bool = True) -> None:
        """Lines end in CR, as terminals send them."""
        data = text.replace("\n", "\r").encode()
        self._write(b"\x1b[200~" + data + b"\x1b[201~" if bracketed else data)

    def resize(self, cols: int, rows: int) -> None:
        self._screen.resize(rows, cols)
        self._size(cols, rows)

    # ---- what is seen

    def screen(self) -> str:
        """The lines on the screen, without blanks at their ends."""
        return "\n".join(line.rstrip() for line in self._screen.display).rstrip()

    def shows(self, text: str) -> bool:
        """Whether the text is on the screen; blanks and line ends count alike, so it may be wrapped."""
        screen, wanted = self.screen().replace("│", " "), " ".join(text.split())
        toasts = " ".join(line.partition("▌")[2] for line in screen.splitlines())
        return any(wanted in " ".join(seen.split()) for seen in (screen, toasts))

    def wait_for(self, text: str) -> None:
        self.wait(lambda: self.shows(text), f"{text!r} on the screen")

    def wait(self, true: Callable[[], object], what: str = "it to come to that") -> None:
        """Read until something is so."""
        end = monotonic() + PATIENCE
        while not true():
            assert monotonic() < end, f"waited for {what}:\n{self.screen()}"
            self.read(0.05)

    def wait_quiet(self, seconds: float) -> None:
        """Read until nothing was written for so long."""
        while self.read(seconds):
            pass

    def read(self, seconds: float) -> bool:
        """Take what the program writes now, waiting so long for the first of it; whether there was any."""
        if not select.select([self._ours], [], [], seconds)[0]:
            return False
        data = os.read(self._ours, 65536)
        self.raw += data
        if self._emulated:
            self._stream.feed(data)
        return True

    # ---- the end

    def ended(self) -> int:
        """Wait for the program's end; its exit code, negative for a signal."""
        self.wait(lambda: self.process.poll() is not None, "the program to end")
        while self.read(0):
            pass
        assert self.process.returncode is not None
        return self.process.returncode

    def hang_up(self) -> None:
        """The window is closed."""
        os.close(self._ours)
        self._ours = -1

    def modes(self) -> set[int]:
        """The private modes the program has switched on and not off again; two are on to begin with."""
        on = {CURSOR, WRAPPING}
        for numbers, switch in _MODE.findall(self.raw):
            for number in map(int, numbers.split(b";")):
                (on.add if switch == b"h" else on.discard)(number)
        return on

    def is_as_before(self) -> bool:
        """Whether the line discipline is as the program found it."""
        return termios.tcgetattr(self._theirs) == self._before

    def engine(self) -> psutil.Process:
        """The program's child that has the model."""
        children = psutil.Process(self.process.pid).children()
        return next(child for child in children if "resource_tracker" not in " ".join(child.cmdline()))

    def close(self) -> None:
        """End the program if it still runs, and its children."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        for end in (self._ours, self._theirs):
            if end >= 0:
                os.close(end)

    def _write(self, data: bytes) -> None:
        while data:  # the terminal takes a few kilobytes at a time
            self.wait(lambda: select.select([], [self._ours], [], 0)[1], "the terminal to take input")
            data = data[os.write(self._ours, data[:1024]) :]

    def _pass(self, seconds: float) -> None:
        end = monotonic() + seconds
        while (left := end - monotonic()) > 0:
            self.read(left)

    def _size(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
