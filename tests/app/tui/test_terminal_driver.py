"""The driver in a real pseudo-terminal: bytes in, messages out."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest

from app.tui.terminal_input import PACKET

ROOT = Path(__file__).resolve().parents[3]
PATIENCE = 60.0

APP = """
import json, sys
from textual.app import App
from app.tui.keys import bind
from app.tui.terminal_driver import terminal_driver
from app.tui.widgets.prompt import Prompt

class Told(App):
    BINDINGS = [bind("cancel", "tell('cancel')"), bind("quit", "quit")]
    def compose(self):
        yield Prompt(lambda most: [])
    def on_mount(self):
        self.query_one(Prompt).focus()
        self.call_after_refresh(self.action_tell, "ready")
    def action_tell(self, what):
        with open(sys.argv[1], "a") as file:
            print(json.dumps(what), file=file)
    def on_prompt_submitted(self, event):
        self.action_tell([event.text, [attachment.text for attachment in event.attachments]])

Told(driver_class=terminal_driver()).run()
"""


class Terminal:
    """An app in a pseudo-terminal."""

    def __init__(self, told: Path) -> None:
        self.told_in = told
        self.side, theirs = pty.openpty()
        environ = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT)}
        environ.pop("NO_COLOR", None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", APP, str(told)], stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=environ, start_new_session=True
        )
        os.close(theirs)
        self.drawn = b""

    def until(self, true: Callable[[], object]) -> None:
        """Read what is drawn until something is so."""
        end = monotonic() + PATIENCE
        while not true():
            assert monotonic() < end, self.drawn[-2000:]
            if select.select([self.side], [], [], 0.05)[0]:
                self.drawn += os.read(self.side, 65536)

    def type(self, text: str) -> None:
        data = text.encode()
        while data:  # the terminal takes a few kilobytes at a time
            self.until(lambda: select.select([], [self.side], [], 0)[1])
            data = data[os.write(self.side, data[:1024]) :]

    @property
    def told(self) -> list[object]:
        return [json.loads(line) for line in self.told_in.read_text().splitlines()] if self.told_in.exists() else []

    def next(self) -> object:
        """The next thing the app tells."""
        seen = len(self.told)
        self.until(lambda: len(self.told) > seen)
        return self.told[-1]


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path / "told")
    terminal.until(lambda: terminal.told == ["ready"])
    yield terminal
    terminal.process.kill()
    terminal.process.wait()
    os.close(terminal.side)


def test_keys_and_pastes_in_a_real_terminal(terminal: Terminal) -> None:
    terminal.type("hello\r")
    assert terminal.next() == ["hello", []]

    terminal.type("\x1b")
    assert terminal.next() == "cancel"

    terminal.type("a")
    terminal.type("\x1b\r")
    terminal.type("b\r")
    assert terminal.next() == ["a\nb", []]

    lines = [f"line {number} of thirty\twith a tab" for number in range(30)]
    terminal.type("\r".join(lines) + "\r")
    drawn = len(terminal.drawn)
    terminal.until(lambda: b"29 of thirty" in terminal.drawn[drawn:])
    assert len(terminal.told) == 4
    sleep(2 * PACKET)  # an Enter right behind a paste still belongs to it
    terminal.type("\r")
    assert terminal.next() == ["\n".join([*lines, ""]), []]

    long = "0123456789abcde\r" * 8192
    terminal.type(f"\x1b[200~{long}\x1b[201~")
    terminal.until(lambda: b"8,192 lines" in terminal.drawn)
    terminal.type("\r")
    assert terminal.next()[1] == [long.replace("\r", "\n")]  # type: ignore[index]

    terminal.type("\x11")
    terminal.until(lambda: terminal.process.poll() is not None or b"\x1b[?2004l" in terminal.drawn)
    assert terminal.process.wait(PATIENCE) == 0
