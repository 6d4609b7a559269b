"""`paceline chat` in a real pseudo-terminal with a tiny real model: what a user sees, and what is left behind.

What is drawn is kept without its control sequences, so that words can be looked for in it.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic

import psutil
import pytest

from app.paths import Paths
from app.store import ChatStore
from tests.app.conftest import ROOT

PATIENCE = 90.0
_CONTROL = re.compile(rb"\x1b\[[0-9;?<>=]*[ -/]*[@-~]|\x1b[\]P][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b.")
LEAVE_SCREEN, SHOW_CURSOR, MOUSE_OFF = b"\x1b[?1049l", b"\x1b[?25h", b"\x1b[?1000l"


class Chat:
    """The real command, in a terminal of 80 by 24."""

    def __init__(self, home: Path, *args: object, before: str = "") -> None:
        self.home = home
        self.side, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        self.attributes = termios.tcgetattr(theirs)
        environ = {**os.environ, "TERM": "xterm-256color", "PACELINE_HOME": str(home)}
        for name in ("NO_COLOR", "PACELINE_MODELS", "TMUX"):
            environ.pop(name, None)
        code = f"{before}\nimport sys\nfrom app.cli import main\nsys.exit(main({['chat', *map(str, args)]!r}))"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environ, start_new_session=True
        )
        self.theirs = theirs  # kept open, to look at the terminal's state afterwards
        self.raw = b""

    @property
    def words(self) -> str:
        """Everything that was drawn so far, without blanks between: the screen is drawn in pieces."""
        return "".join(_CONTROL.sub(b"", self.raw).decode("utf-8", "replace").split())

    def read(self) -> None:
        if select.select([self.side], [], [], 0.05)[0]:
            self.raw += os.read(self.side, 65536)

    def until(self, true: Callable[[], object]) -> None:
        end = monotonic() + PATIENCE
        while not true():
            assert monotonic() < end, self.words[-3000:]
            self.read()

    def type(self, text: str) -> None:
        for char in text:  # a burst would be taken for a paste
            os.write(self.side, char.encode())
            self.read()

    def ready(self) -> None:
        self.until(lambda: "context" in self.words)

    def ask(self, text: str) -> None:
        self.type(text)
        self.until(lambda: text.replace(" ", "") in self.words)
        self.type("\r")

    def ended(self) -> int:
        """Wait for the end; the exit code."""
        self.until(lambda: self.process.poll() is not None)
        for _ in range(5):
            self.read()
        assert self.process.returncode is not None
        return self.process.returncode

    def messages(self) -> list[tuple[str, str, str]]:
        """What is stored now, in a fresh look at the file."""
        store = ChatStore.open(Paths.find({"PACELINE_HOME": str(self.home)}).chat_store)
        try:
            return [(m.role, m.text, m.state) for chat in store.chats() for m in store.path(chat.id)]
        finally:
            store.close()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.side)
        os.close(self.theirs)


@pytest.fixture
def chat(tmp_path: Path) -> Iterator[Callable[..., Chat]]:
    """Starts the chat; ends what is still running afterwards."""
    started: list[Chat] = []

    def start(*args: object, before: str = "") -> Chat:
        started.append(Chat(tmp_path / "home", *args, before=before))
        return started[-1]

    yield start
    for each in started:
        each.close()


def left_clean(chat: Chat) -> None:
    """The terminal is as it was: its modes, its screen, its cursor, its mouse."""
    assert termios.tcgetattr(chat.theirs)[:4] == chat.attributes[:4]
    for sequence in (LEAVE_SCREEN, SHOW_CURSOR, MOUSE_OFF):
        assert sequence in chat.raw
    assert chat.raw.rindex(LEAVE_SCREEN) > chat.raw.rindex(b"\x1b[?1049h")


MODEL = ("--draft", "none", "--ctx", "2048", "--threads", "1")


def test_write_stop_quit_and_find_it_again(chat: Callable[..., Chat], target: Path) -> None:
    first = chat("--target", target, *MODEL)
    first.ready()
    first.ask("hello there [b]x[/b]")
    first.until(lambda: any(role == "assistant" and len(text) > 20 for role, text, _ in first.messages()))
    first.type("\x1b")
    first.until(lambda: any(state == "cancelled" for _, _, state in first.messages()))
    first.type("\x11")
    assert first.ended() == 0
    left_clean(first)
    again = chat("--target", target, *MODEL)
    again.until(lambda: "Ask" in again.words)
    again.type("\x0f")
    again.until(lambda: "searchallchats" in again.words)
    again.type("hello")
    again.until(lambda: "hellothere[b]x[/b]" in again.words)
    again.type("\r")
    again.until(lambda: re.search(r"You\W?hellothere\[b\]x\[/b\]", again.words))  # selected: a bar stands before each line


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_the_terminal_clean_while_a_reply_is_written(
    chat: Callable[..., Chat], target: Path, number: signal.Signals, code: int
) -> None:
    running = chat("--target", target, *MODEL)
    running.ready()
    running.ask("go on")
    running.until(lambda: any(role == "assistant" and text for role, text, _ in running.messages()))
    engine = psutil.Process(running.process.pid).children(recursive=True)
    running.process.send_signal(number)
    assert running.ended() == code
    left_clean(running)
    assert psutil.wait_procs(engine, timeout=PATIENCE)[1] == []
    assert any(state in ("cancelled", "interrupted", "length") and text for _, text, state in running.messages())


def test_kill_9_loses_nothing_but_the_last_moment(chat: Callable[..., Chat], target: Path) -> None:
    running = chat("--target", target, *MODEL)
    running.ready()
    running.ask("go on")
    running.until(lambda: any(role == "assistant" and len(text) > 10 for role, text, _ in running.messages()))
    engine = psutil.Process(running.process.pid).children(recursive=True)
    running.process.kill()
    running.ended()
    user, reply = running.messages()
    assert user == ("user", "go on", "complete")
    assert reply[1]
    assert reply[2] in ("interrupted", "length")
    assert psutil.wait_procs(engine, timeout=PATIENCE)[1] == []


def test_a_fault_of_ours_is_one_line_on_a_clean_terminal(chat: Callable[..., Chat], target: Path) -> None:
    fault = "import app.tui.screens.chat_dialogs as c\nasync def fail(self, *_):\n    return 1 / 0\nc.ChatDialogs.action_details = fail"
    running = chat("--target", target, *MODEL, before=fault)
    running.until(lambda: "Ask" in running.words)
    running.type("\x1b[19~")  # F8
    assert running.ended() == 1
    left_clean(running)
    after = _CONTROL.sub(b"", running.raw[running.raw.rindex(LEAVE_SCREEN) :]).decode()
    assert "ZeroDivisionError" in after
    assert "Traceback" not in after
    assert len(after.strip().splitlines()) == 1
    assert "Traceback" in (running.home / "logs" / "crash.log").read_text()


def test_without_a_terminal_it_is_one_line(paceline: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    for args in ((), ("chat",)):
        done = paceline(*args)
        assert done.returncode == 1
        assert done.stdout == ""
        assert re.fullmatch(r"paceline: the chat needs a terminal; .*\n", done.stderr)
