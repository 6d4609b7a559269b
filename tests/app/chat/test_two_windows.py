"""Two windows on one chat: each a session of its own on the same file. Nothing is lost, and each shows what it shows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chat.events import ReplyEnded
from app.chat.session import ChatSession
from app.errors import AppError
from app.settings import ChatSettings
from app.store import ChatStore


class Windows:
    """`here` and `there` show the same chat of two messages."""

    def __init__(self, path: Path) -> None:
        self.here, self.there = (ChatSession(ChatStore.open(path), ChatSettings(), lambda why: None) for _ in range(2))
        exchange(self.here, "one", "two")
        assert self.here.chat is not None
        self.chat = self.here.chat.id
        self.there.open(self.chat)

    def stored(self) -> set[str]:
        return {message.text for message in self.here.store.tree(self.chat)}


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[Windows]:
    made = Windows(tmp_path / "chats.db")
    yield made
    made.here.store.close()
    made.there.store.close()


def answer(session: ChatSession, text: str, state: str = "complete") -> ReplyEnded:
    assert session.sent is not None
    session.store.finish_reply(session.sent.reply.id, text, (), state, {})  # type: ignore[arg-type]
    return ReplyEnded(session.sent.reply.id, state, text, (), {})  # type: ignore[arg-type]


def exchange(session: ChatSession, prompt: str, reply: str) -> None:
    session.send(prompt)
    session.end(answer(session, reply))


def texts(session: ChatSession) -> list[str]:
    return [message.text for message in session.path]


def test_what_one_sends_the_other_takes_up(windows: Windows) -> None:
    assert not windows.there.look_again()
    exchange(windows.here, "three", "four")
    assert windows.there.look_again()
    assert texts(windows.there) == ["one", "two", "three", "four"]
    assert not windows.there.look_again()
    windows.here.rename("Numbers")
    assert windows.there.look_again()
    assert windows.there.chat is not None
    assert windows.there.chat.title == "Numbers"


def test_a_reply_that_grows_in_one_is_seen_to_grow_and_end_in_the_other(windows: Windows) -> None:
    sent = windows.here.send("three")
    windows.here.store.grow_reply(sent.reply.id, "fo", ())
    assert windows.there.look_again()
    assert (texts(windows.there)[-1], windows.there.written_elsewhere) == ("fo", True)
    assert not windows.here.written_elsewhere
    windows.here.store.grow_reply(sent.reply.id, "four", ())
    assert windows.there.look_again()
    assert texts(windows.there)[-1] == "four"
    windows.here.end(answer(windows.here, "four!"))
    assert windows.there.look_again()
    assert (texts(windows.there)[-1], windows.there.written_elsewhere) == ("four!", False)


def test_no_message_goes_below_a_reply_that_the_other_still_writes(windows: Windows) -> None:
    windows.here.send("three")
    with pytest.raises(AppError, match="another window is writing"):
        windows.there.send("meanwhile")
    windows.here.end(answer(windows.here, "four"))
    exchange(windows.there, "meanwhile", "done")
    assert texts(windows.there) == ["one", "two", "three", "four", "meanwhile", "done"]


def test_what_both_send_at_once_are_branches_and_each_keeps_its_own(windows: Windows) -> None:
    here = windows.here.send("here")
    windows.there.regenerate()  # a reply beside "two", while the other is written below it
    windows.here.end(answer(windows.here, "one here"))
    windows.there.end(answer(windows.there, "zwei"))
    windows.here.look_again()
    assert texts(windows.here) == ["one", "two", "here", "one here"]
    assert texts(windows.there) == ["one", "zwei"]
    assert windows.stored() == {"one", "two", "here", "one here", "zwei"}
    assert windows.here.branch(windows.here.path[1].id) == (1, 2)
    windows.there.step_branch(windows.there.path[1].id, -1)
    assert windows.there.path[-1].id == here.reply.id


def test_a_reply_stays_in_sight_where_it_is_written_whatever_the_other_does(windows: Windows) -> None:
    windows.there.send("there")
    path = texts(windows.there)
    windows.here.show(windows.here.path[0].id)  # whatever the store takes for the branch shown
    windows.here.regenerate()
    windows.there.refresh()
    assert texts(windows.there) == path
    assert windows.there.job("drop").messages[-1].content == "there"


def test_the_branch_that_one_goes_to_is_not_forced_on_the_other(windows: Windows) -> None:
    windows.here.regenerate()
    windows.here.end(answer(windows.here, "zwei"))
    windows.there.look_again()
    assert texts(windows.there) == ["one", "two"]
    assert windows.there.branch(windows.there.path[1].id) == (1, 2)
    exchange(windows.there, "three", "four")
    assert texts(windows.there) == ["one", "two", "three", "four"]
    assert texts(windows.here) == ["one", "zwei"]


def test_what_one_deletes_is_gone_in_the_other_and_the_rest_stays(windows: Windows) -> None:
    exchange(windows.here, "three", "four")
    windows.there.look_again()
    windows.here.delete(windows.here.path[2].id)
    assert windows.there.look_again()
    assert texts(windows.there) == ["one", "two"]
    windows.here.undo()
    assert windows.there.look_again()
    assert texts(windows.there) == ["one", "two", "three", "four"]


def test_deleting_where_the_other_shows_another_branch_shows_what_is_beside(windows: Windows) -> None:
    windows.here.regenerate()
    windows.here.end(answer(windows.here, "zwei"))
    windows.there.look_again()
    exchange(windows.there, "three", "four")
    windows.here.delete(windows.here.path[-1].id)
    assert texts(windows.here) == ["one", "two", "three", "four"]
    assert texts(windows.there) == ["one", "two", "three", "four"]


def test_a_message_deleted_while_its_reply_is_written_ends_well(windows: Windows) -> None:
    windows.here.send("three")
    windows.there.look_again()
    windows.there.delete(windows.there.path[2].id)
    ended = windows.here.end(answer(windows.here, "four"))
    assert ended.message is not None
    assert not windows.here.replying
    assert texts(windows.here) == ["one", "two"]
    windows.here.send("five")
    windows.there.look_again()
    windows.there.delete(windows.there.path[2].id)
    assert windows.here.end(answer(windows.here, "", "cancelled")).message is None


def test_a_chat_deleted_in_the_other_stays_on_the_screen_and_comes_back_with_a_message(windows: Windows) -> None:
    windows.here.send("three")
    windows.there.delete_chat()
    windows.here.end(answer(windows.here, "four"))
    assert windows.here.gone
    assert windows.here.look_again(), "so that it is told"
    assert not windows.here.look_again()
    assert texts(windows.here) == ["one", "two", "three", "four"]
    windows.here.keep_unsent("a thought")
    exchange(windows.here, "five", "six")
    assert not windows.here.gone
    assert texts(windows.here) == ["one", "two", "three", "four", "five", "six"]
    assert windows.here.store.chats()


def test_a_chat_erased_in_the_other_refuses_in_one_line(windows: Windows) -> None:
    windows.there.store.erase_chats([windows.chat])
    assert windows.here.look_again()
    assert windows.here.gone
    windows.here.keep_unsent("a thought")
    with pytest.raises(AppError, match="deleted for good"):
        windows.here.send("three")
    assert not windows.here.replying


def test_a_reply_whose_window_was_killed_is_cut_short_in_the_other(windows: Windows) -> None:
    parent = windows.here.path[-1].id
    asked = windows.here.store.add_message(windows.chat, parent, "user", "three")
    reply = windows.here.store.start_reply(windows.chat, asked.id)
    windows.there.look_again()
    assert windows.there.written_elsewhere
    with windows.here.store._db.writing() as db:  # as a process that is gone leaves it
        db.execute("UPDATE messages SET writer = '1:1.0' WHERE id = ?", (reply.id,))
    assert windows.there.look_again()
    assert windows.there.path[-1].state == "interrupted"
