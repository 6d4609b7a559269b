"""One long session at 80 by 24, flow after flow, as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.tui.terminal_input import PACKET
from tests.e2e.conftest import ROOT, Home, ask_long, ends_alike, ready, reply_on, send, terminals
from tests.e2e.terminal import Terminal

THIRTY = "\n".join(f"line {number} of thirty" for number in range(1, 31))
NASTY = "before \x1b[31mred\x1b[0m \x1b]0;owned\x07 \x1b]52;c;aGk=\x07 \x9b2J \x1bc \x1b[?1049l after [b]not bold[/b]"


@pytest.fixture(scope="module")
def long_home(make_home: Callable[[Path], Home], tmp_path_factory: pytest.TempPathFactory) -> Home:
    """With one imported chat, in which the model says control sequences."""
    folder = tmp_path_factory.mktemp("conversation")
    home = make_home(folder)
    messages = [
        {"id": 1, "parent": None, "role": "user", "text": "say what you should not", "created": 1.0},
        {"id": 2, "parent": 1, "role": "assistant", "text": NASTY, "created": 2.0},
    ]
    chat = {"title": "imported \x1b]0;owned\x07", "created": 1.0, "updated": 2.0, "shown": 2, "messages": messages}
    (folder / "chats.json").write_text(json.dumps({"format": "paceline-chats", "version": 1, "chats": [chat]}))
    command = [sys.executable, "-m", "app", "chats", "import", str(folder / "chats.json")]
    subprocess.run(command, cwd=ROOT, env=home.environ, check=True, capture_output=True, timeout=90)
    return home


@pytest.fixture(scope="module")
def session(long_home: Home) -> Iterator[Terminal]:
    """The app, running through all tests of this module."""
    with terminals() as start:
        terminal = start(long_home, "chat", *long_home.model)
        yield ready(terminal)
        terminal.press("ctrl+q")
        assert terminal.ended() == 0


@pytest.fixture
def chat(session: Terminal) -> Terminal:
    """The session, in a new chat."""
    session.press("ctrl+n")
    session.wait_for("What shall we talk about?")
    return session


def test_type_and_see_the_reply_stream_to_its_end(chat: Terminal, long_home: Home) -> None:
    send(chat, "hello [b]there[/b]")
    chat.wait_for("You hello [b]there[/b] Reply")
    chat.wait_for("the reply was cut at 60 tokens")
    prompt, reply = long_home.messages()
    assert (prompt.text, reply.state) == ("hello [b]there[/b]", "length")
    assert ends_alike(reply.text, reply_on(chat))
    chat.wait_for("tokens/s")


def test_escape_cancels_and_the_partial_reply_stays(chat: Terminal, long_home: Home) -> None:
    ask_long(chat, "go on and on")
    chat.press("escape")
    chat.wait_for("stopped by you")
    reply = long_home.messages()[-1]
    assert reply.state == "cancelled"
    assert ends_alike(reply.text, reply_on(chat))


@pytest.mark.parametrize("bracketed", [True, False])
def test_a_paste_of_thirty_lines_is_one_message(chat: Terminal, long_home: Home, bracketed: bool) -> None:
    chat.paste(THIRTY, bracketed=bracketed)
    chat.wait_for("line 30 of thirty")
    chat.wait_quiet(2 * PACKET)  # an Enter right behind a paste that has no marks is still part of it
    chat.press("enter")
    chat.wait_for("the reply was cut")
    assert [m.text for m in long_home.messages() if m.role == "user"] == [THIRTY]


def test_regenerate_and_walk_the_branches(chat: Terminal, long_home: Home) -> None:
    send(chat, "twice please")
    chat.wait_for("the reply was cut")
    chat.press("ctrl+r")
    chat.wait_for("2/2")
    chat.wait_for("the reply was cut")
    second = long_home.messages()[-1].id
    chat.wait_for("F1 help")
    chat.press("escape")
    chat.wait_for("Enter copy")
    chat.press("left")
    chat.wait_for("1/2")
    assert long_home.messages()[-1].id != second
    chat.press("right")
    chat.wait_for("2/2")
    assert long_home.messages()[-1].id == second


def test_the_engine_is_killed_in_the_middle_of_a_reply(chat: Terminal, long_home: Home) -> None:
    ask_long(chat, "then it dies")
    chat.engine().kill()
    chat.wait_for("the engine was killed")
    chat.wait_for("F5 loads the model")
    kept = long_home.messages()[-1]
    assert kept.state == "interrupted"
    assert ends_alike(kept.text, reply_on(chat))
    chat.press("f5")
    ready(chat)
    chat.press("ctrl+n")
    send(chat, "still there?")
    chat.wait_for("the reply was cut at 60 tokens")
    assert long_home.messages()[-1].text


def test_the_window_is_resized_while_a_reply_streams(chat: Terminal) -> None:
    ask_long(chat, "through all sizes")
    for cols, rows in ((200, 50), (40, 12), (80, 24)):
        chat.resize(cols, rows)
        chat.wait(lambda: "pty" in chat.screen().split("\n")[-1] and chat.screen().count("\n") == rows - 1)  # noqa: B023
        chat.wait(lambda: f"╭{'─' * (cols - 2)}╮" in chat.screen() or cols > 110)  # noqa: B023
        before = reply_on(chat)
        chat.wait(lambda: reply_on(chat) != before, "more of the reply")  # noqa: B023
    chat.press("escape")
    chat.wait_for("stopped by you")


def test_search_over_all_chats_finds_the_text(chat: Terminal) -> None:
    chat.press("ctrl+o")
    chat.wait_for("search all chats")
    chat.type("never said")
    chat.wait_for("Nothing holds all of that.")
    chat.press(*["\x7f"] * 10)
    chat.type("twice")
    chat.wait_for("twice please")
    chat.press("enter")
    chat.wait_for("█ twice please Reply")  # the message that was found is picked


def test_control_sequences_of_a_model_do_not_reach_the_terminal(chat: Terminal) -> None:
    written = len(chat.raw)
    chat.press("ctrl+o")
    chat.wait_for("imported")
    chat.type("should not")
    chat.wait_for("say what you should not")
    chat.press("enter")
    chat.wait_for("after [b]not bold[/b]")
    drawn = chat.raw[written:]
    for sequence in (b"\x1b]0;", b"\x1b]52", b"owned", b"\x1bc", b"\x1b[?1049l", b"\x1b[2J", b"\xc2\x9b"):
        assert sequence not in drawn, sequence
    assert "before red" in chat.screen()


def test_two_windows_on_one_store(chat: Terminal, long_home: Home) -> None:
    with terminals() as start:
        other = ready(start(long_home, "chat", *long_home.model))
        ask_long(chat, "from the first window")
        send(other, "from the second window")
        other.wait_for("the reply was cut")
        chat.press("escape")
        chat.wait_for("stopped by you")
        other.press("ctrl+o")
        other.type("window")
        other.wait_for("from the first window")
        other.wait_for("from the second window")
        other.press("escape", "escape", "ctrl+q")
        assert other.ended() == 0
