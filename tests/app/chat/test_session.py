"""Sending, editing, branching, deleting: what is in the store after each, without a widget or an engine."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.chat.conversation import Attachment, OriginSpan
from app.chat.events import ReplyEnded, SummaryMade
from app.chat.session import ChatSession, GivenBack
from app.settings import ChatSettings
from app.store import ChatStore, StoreError


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def session(tmp_path: Path, told: list[str]) -> ChatSession:
    store = ChatStore.open(tmp_path / "chats.db")
    return ChatSession(store, ChatSettings(system="Be brief."), told.append)


def answer(session: ChatSession, text: str, state: str = "complete", **more: object) -> ReplyEnded:
    """How the reply being made ends, stored as the host would."""
    assert session.sent is not None
    spans = (OriginSpan("target", len(text)),)
    session.store.finish_reply(session.sent.reply.id, text, spans, state, {})  # type: ignore[arg-type]
    return ReplyEnded(session.sent.reply.id, state, text, spans, {}, **more)  # type: ignore[arg-type]


def exchange(session: ChatSession, prompt: str, reply: str) -> None:
    session.send(prompt)
    session.end(answer(session, reply))


def texts(session: ChatSession) -> list[str]:
    return [message.text for message in session.path]


def test_a_chat_is_stored_with_its_first_message_and_before_any_reply(session: ChatSession) -> None:
    assert session.store.chats() == []
    session.send("hello", (Attachment("a.py", "x = 1", 4),))
    assert session.chat is not None
    stored = session.store.path(session.chat.id)
    assert [(m.role, m.text, m.state) for m in stored] == [("user", "hello", "complete"), ("assistant", "", "streaming")]


def test_the_model_reads_system_prompt_attachments_and_every_turn(session: ChatSession) -> None:
    exchange(session, "one", "two")
    session.send("three", (Attachment("a.py", "x = 1", 4),))
    job = session.job("drop")
    assert [m.role for m in job.messages] == ["system", "user", "assistant", "user"]
    assert job.messages[0].content == "Be brief."
    assert "x = 1" in job.messages[-1].content
    assert "three" in job.messages[-1].content
    assert job.message_id == session.path[-1].id


def test_from_a_summary_on_the_model_reads_nothing_older(session: ChatSession) -> None:
    exchange(session, "old", "older")
    session.send("new")
    assert session.sent is not None
    assert session.chat is not None
    before, store = session.sent, session.store
    assert before.prompt is not None
    summary = store.add_message(session.chat.id, before.prompt.parent_id, "system", "so far", kind="summary")
    prompt = store.add_message(session.chat.id, summary.id, "user", "new")
    reply = store.start_reply(session.chat.id, prompt.id)
    store.delete_message(before.prompt.id)
    session.moved(SummaryMade(session.chat.id, summary.id, prompt.id, reply.id, before.reply.id))
    assert session.sent is not None
    assert session.sent.reply.id == reply.id
    assert [m.content for m in session.job("drop").messages] == ["Be brief.", "so far", "new"]


def test_a_reply_that_was_stopped_is_kept(session: ChatSession) -> None:
    session.send("hello")
    ended = session.end(answer(session, "par", "cancelled"))
    assert ended.message is not None
    assert (ended.message.text, ended.message.state, ended.given_back) == ("par", "cancelled", None)
    assert not session.replying


def test_a_reply_that_was_stopped_before_it_began_gives_the_prompt_back(session: ChatSession) -> None:
    exchange(session, "one", "two")
    attached = (Attachment("a.py", "x = 1", 4),)
    session.send("three", attached)
    ended = session.end(answer(session, "", "cancelled"))
    assert ended.message is None
    assert ended.given_back == GivenBack("three", attached)
    assert texts(session) == ["one", "two"]


def test_regenerating_that_is_stopped_before_it_began_shows_the_old_reply_again(session: ChatSession) -> None:
    exchange(session, "one", "two")
    session.regenerate()
    assert session.end(answer(session, " ", "cancelled")).given_back is None
    assert texts(session) == ["one", "two"]


def test_regenerate_makes_a_branch_and_branches_can_be_walked(session: ChatSession) -> None:
    exchange(session, "one", "first")
    session.regenerate()
    session.end(answer(session, "second"))
    second = session.path[-1].id
    assert session.branch(second) == (2, 2)
    assert session.step_branch(second, 1) is None
    first = session.step_branch(second, -1)
    assert first is not None
    assert (texts(session), session.branch(first)) == (["one", "first"], (1, 2))


def test_regenerate_of_an_earlier_reply_leaves_what_followed_on_its_own_branch(session: ChatSession) -> None:
    exchange(session, "one", "two")
    first = session.path[1].id
    exchange(session, "three", "four")
    session.regenerate(first)
    session.end(answer(session, "deux"))
    assert texts(session) == ["one", "deux"]
    session.step_branch(session.path[1].id, -1)
    assert texts(session) == ["one", "two", "three", "four"]


def test_there_is_nothing_to_regenerate_in_an_empty_chat(session: ChatSession) -> None:
    assert session.regenerate() is None


def test_edit_and_resend_is_a_branch_beside_the_old_message(session: ChatSession) -> None:
    exchange(session, "one", "two")
    exchange(session, "three", "four")
    session.resend(session.path[2].id, "drei")
    session.end(answer(session, "vier"))
    assert texts(session) == ["one", "two", "drei", "vier"]
    assert session.branch(session.path[2].id) == (2, 2)


def test_the_first_message_can_be_edited_too(session: ChatSession) -> None:
    exchange(session, "one", "two")
    session.resend(session.path[0].id, "eins")
    session.end(answer(session, "zwei"))
    assert texts(session) == ["eins", "zwei"]
    assert session.branch(session.path[0].id) == (2, 2)


def test_deleting_is_undone_one_by_one(session: ChatSession) -> None:
    exchange(session, "one", "two")
    exchange(session, "three", "four")
    last, third = session.path[3].id, session.path[2].id
    session.delete(last)
    session.delete(third)
    assert texts(session) == ["one", "two"]
    assert session.undo() == third
    assert texts(session) == ["one", "two", "three"]
    assert session.undo() == last
    assert texts(session) == ["one", "two", "three", "four"]
    assert session.undo() is None


def test_a_copy_of_the_path_is_a_chat_of_its_own(session: ChatSession) -> None:
    exchange(session, "one", "two")
    exchange(session, "three", "four")
    session.rename("Numbers")
    assert session.chat is not None
    old = session.chat.id
    session.open(session.copy_until(session.path[1].id))
    assert (texts(session), session.chat.title) == (["one", "two"], "Numbers (branch)")
    exchange(session, "drei", "vier")
    session.open(old)
    assert texts(session) == ["one", "two", "three", "four"]


def test_what_was_not_sent_is_kept_per_chat(session: ChatSession) -> None:
    session.keep_unsent("  ")
    assert session.chat is None
    session.keep_unsent("half a")
    assert session.chat is not None
    assert session.store.chat(session.chat.id).unsent == "half a"
    session.send("whole")
    assert session.store.chat(session.chat.id).unsent == ""


def test_find_knows_every_branch(session: ChatSession) -> None:
    exchange(session, "apple", "pear")
    session.regenerate()
    session.end(answer(session, "pear tree"))
    first, second = session.branches[session.path[1].id]
    assert session.find("pear") == [first, second]
    session.show(first)
    assert texts(session) == ["apple", "pear"]


def test_a_title_is_asked_for_once_something_was_said(session: ChatSession) -> None:
    assert session.title_job() is None
    exchange(session, "one", "two")
    job = session.title_job()
    assert job is not None
    assert [m.content for m in job.messages] == ["Be brief.", "one", "two"]
    session.rename("Named")
    assert session.title_job() is None


def test_a_title_that_was_made_is_kept_unless_somebody_gave_one(session: ChatSession) -> None:
    exchange(session, "one", "two")
    assert session.chat is not None
    chat = session.chat.id
    assert session.title_job() is not None
    session.take_title(chat, "Counting")
    assert (session.chat.title, session.store.chat(chat).title) == ("Counting", "Counting")
    session.rename("Mine")
    session.take_title(chat, "Counting on")
    assert session.store.chat(chat).title == "Mine"
    assert session.title_job(again=True) is not None
    session.take_title(chat, "Counting again")
    assert session.store.chat(chat).title == "Counting again"
    session.take_title(chat + 1, "Nobody's")


def test_when_the_disk_takes_nothing_the_chat_goes_on_in_memory(
    session: ChatSession, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange(session, "one", "two")
    broken = session.store

    def full(*_: object) -> None:
        raise StoreError("the disk is full")

    monkeypatch.setattr(broken, "add_message", full)
    session.send("three")
    assert told == ["the disk is full"]
    assert not session.store.persistent
    session.end(answer(session, "four"))
    assert texts(session) == ["one", "two", "three", "four"]


def test_a_reply_the_host_could_not_store_is_finished_in_the_store_that_came_after(session: ChatSession) -> None:
    session.send("one")
    assert session.sent is not None
    reply = session.sent.reply.id
    session.go_to_memory("the disk is full")
    spans = (OriginSpan("target", 3),)
    session.end(ReplyEnded(reply, "complete", "two", spans, {}, stored=False))
    assert session.store.message(reply).text == "two"
