"""Every kind of end: the terminal is as it was, and what was said is there when the chat is opened again."""

from __future__ import annotations

import signal

import psutil
import pytest

from app.chat.conversation import Message
from tests.e2e.conftest import Home, Start, ask_long, ends_alike, ready, reply_on
from tests.e2e.terminal import ALTERNATE_SCREEN, BRACKETED_PASTE, CURSOR, MOUSE_MODES, PATIENCE, Terminal

FAULT = "import app.tui.screens.chat_dialogs as c\nasync def fail(self, *_):\n    return 1 / 0\nc.ChatDialogs.action_details = fail"

NO_CONTROLLING_TERMINAL = """
import fcntl, signal, termios
signal.signal(signal.SIGHUP, signal.SIG_IGN)
fcntl.ioctl(0, termios.TIOCNOTTY)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""


def stored(home: Home) -> Message:
    """The reply, after the user's own message."""
    prompt, reply = home.messages()
    assert (prompt.role, prompt.text, prompt.state) == ("user", "before the end", "complete")
    assert reply.text
    return reply


def left_clean(terminal: Terminal) -> None:
    """The main screen, a cursor, no mouse, no marked pastes, and the line discipline as before."""
    assert CURSOR in terminal.modes()
    assert not terminal.modes() & {ALTERNATE_SCREEN, BRACKETED_PASTE, *MOUSE_MODES}
    assert terminal.is_as_before()


def open_again(start: Start, home: Home) -> Terminal:
    """The app once more, without its model, and in it the chat that was used last."""
    terminal = start(home, "chat", "--target", "none.gguf")
    terminal.wait_for("Ask something")
    terminal.press("ctrl+o")
    terminal.wait_for("1 chat")
    terminal.type("before")
    terminal.wait_for("found")
    terminal.press("enter")
    terminal.wait_for("Ask something")
    return terminal


def test_quitting_while_a_reply_streams_and_opening_again(start: Start, home: Home) -> None:
    first = ready(start(home, "chat", *home.model))
    ask_long(first, "before the end")
    engine = first.engine()
    first.press("ctrl+q")
    assert first.ended() == 0
    left_clean(first)
    assert first.screen() == ""
    assert psutil.wait_procs([engine], timeout=PATIENCE)[1] == []
    assert stored(home).state == "cancelled"
    again = open_again(start, home)
    assert ends_alike(stored(home).text, reply_on(again))
    again.press("ctrl+q")
    assert again.ended() == 0
    left_clean(again)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal(start: Start, home: Home, number: signal.Signals) -> None:
    terminal = ready(start(home, "chat", *home.model))
    ask_long(terminal, "before the end")
    engine = terminal.engine()
    terminal.process.send_signal(number)
    assert terminal.ended() == 128 + number
    left_clean(terminal)
    assert terminal.screen() == ""
    assert psutil.wait_procs([engine], timeout=PATIENCE)[1] == []
    assert stored(home).state == "cancelled"


def test_the_window_is_closed(start: Start, home: Home) -> None:
    terminal = ready(start(home, "chat", *home.model))
    ask_long(terminal, "before the end")
    engine = terminal.engine()
    terminal.hang_up()
    terminal.process.wait(PATIENCE)
    assert psutil.wait_procs([engine], timeout=PATIENCE)[1] == []
    assert stored(home).state in ("cancelled", "interrupted")


def test_the_terminal_vanishes_and_no_signal_says_so(start: Start, home: Home) -> None:
    terminal = ready(start(home, "chat", *home.model, before=NO_CONTROLLING_TERMINAL))
    ask_long(terminal, "before the end")
    engine = terminal.engine()
    terminal.hang_up()
    assert terminal.process.wait(PATIENCE) == 128 + signal.SIGHUP
    assert psutil.wait_procs([engine], timeout=PATIENCE)[1] == []
    assert stored(home).state == "cancelled"


def test_a_fault_of_the_app(start: Start, home: Home) -> None:
    terminal = start(home, "chat", "--target", "none.gguf", before=FAULT)
    terminal.wait_for("Ask something")
    terminal.press("f8")
    assert terminal.ended() == 1
    left_clean(terminal)
    assert terminal.screen().startswith("paceline: internal error: ZeroDivisionError: division by zero (details in ")
    assert "Traceback" not in terminal.screen()
    assert "Traceback" in home.paths.crash_log.read_text()


def test_the_app_is_killed_in_the_middle_of_a_reply_and_opened_again(start: Start, home: Home) -> None:
    first = ready(start(home, "chat", *home.model))
    ask_long(first, "before the end")
    engine, seen = first.engine(), reply_on(first)
    first.wait(lambda: home.messages()[-1].text, "the first of the reply in the store")
    first.process.kill()
    assert first.ended() == -signal.SIGKILL
    assert psutil.wait_procs([engine], timeout=PATIENCE)[1] == []
    again = open_again(start, home)
    again.wait_for("cut short: the program or the engine ended")
    assert stored(home).state == "interrupted"
    assert ends_alike(stored(home).text, reply_on(again))
    assert seen
