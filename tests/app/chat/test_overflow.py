"""A chat that outgrows the context: the oldest turns leave, the reply stops, or the turns are summarised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chat.engine_host import ReplyJob
from app.chat.events import HostNotice, ModelReady, PromptRead, ReplyEnded, StoreFailed, SummaryMade
from app.chat.overflow import HEADING, INSTRUCTION, LAST_HEADING
from engine import ChatMessage
from tests.app.chat.hosting import Hosting

TURN = "word " * 30
CONTEXT = 1024


@pytest.fixture
def hosting(tmp_path: Path, target: Path) -> Iterator[Hosting]:
    made = Hosting(tmp_path / "home")
    assert isinstance(made.load(target, ctx=CONTEXT), ModelReady)
    yield made
    made.close()


def fill(hosting: Hosting, chat: int, overflow: str, least: int = 1) -> ReplyEnded:
    """Ask until the context is full; how that reply ended."""
    for turn in range(20):
        ended = hosting.answer(chat, f"{turn} {TURN}", overflow)
        if ended.state == "context" or hosting.heard.all(SummaryMade)[least - 1 :] or _dropped(hosting):
            return ended
    raise AssertionError("it never was full")


def answer_moved(hosting: Hosting, chat: int, text: str) -> ReplyEnded:
    """Ask, and wait for the reply wherever it ends."""
    since = len(hosting.heard.events)
    hosting.ask(chat, text, "summarise")
    return hosting.heard.wait(ReplyEnded, since=since)


def summarised(hosting: Hosting, chat: int) -> tuple[SummaryMade, ReplyEnded]:
    """Ask until turns are summarised."""
    made = len(hosting.heard.all(SummaryMade))
    for turn in range(30):
        ended = answer_moved(hosting, chat, f"{turn} {TURN}")
        if len(hosting.heard.all(SummaryMade)) > made:
            return hosting.heard.all(SummaryMade)[-1], ended
    raise AssertionError("it never was full")


def _dropped(hosting: Hosting) -> list[int]:
    return [event.dropped for event in hosting.heard.all(HostNotice) if event.dropped]


def test_dropping_says_how_many_are_left_out_and_goes_on(hosting: Hosting) -> None:
    chat = hosting.chat()
    ended = fill(hosting, chat, "drop")
    assert ended.text
    [dropped] = _dropped(hosting)
    assert dropped >= 2
    assert hosting.heard.all(HostNotice)[-1].message_id == ended.message_id


def test_stopping_ends_the_reply_with_the_numbers(hosting: Hosting) -> None:
    chat = hosting.chat()
    ended = fill(hosting, chat, "stop")
    assert (ended.state, ended.text) == ("context", "")
    assert ended.line is not None
    assert "tokens and" in ended.line
    assert hosting.store.message(ended.message_id).state == "context"


def test_summarising_puts_a_summary_between_old_turns_and_the_new(hosting: Hosting) -> None:
    chat = hosting.chat()
    made, ended = summarised(hosting, chat)
    path = hosting.store.path(chat)
    *old, summary, prompt, reply = path
    assert [m.id for m in (summary, prompt, reply)] == [made.summary_id, made.prompt_id, made.reply_id]
    assert (summary.kind, summary.role) == ("summary", "system")
    assert summary.text.startswith(HEADING)
    assert LAST_HEADING in summary.text
    assert old[-2].text in summary.text, "the last exchange is kept word for word"
    assert old[0].text not in summary.text
    assert [m.role for m in old] == ["user", "assistant"] * (len(old) // 2), "the old turns are still there"
    assert (ended.message_id, ended.state, reply.text) == (reply.id, "length", ended.text)
    assert hosting.store.siblings(summary.id) == [summary.id], "the message in its old place is gone"
    assert any("being summarised" in event.text for event in hosting.heard.all(HostNotice))


def test_the_next_turns_go_on_from_the_summary_and_it_can_happen_again(hosting: Hosting) -> None:
    chat = hosting.chat()
    first, _ = summarised(hosting, chat)
    ended = answer_moved(hosting, chat, "Next.")
    assert len(hosting.heard.all(SummaryMade)) == 1
    assert ended.report["usage"]["prompt_tokens"] < CONTEXT - 24
    second, _ = summarised(hosting, chat)
    summaries = [m.id for m in hosting.store.path(chat) if m.kind == "summary"]
    assert summaries == [first.summary_id, second.summary_id]


def test_the_model_reads_the_system_prompt_the_summary_and_the_message(hosting: Hosting) -> None:
    """A token is a byte here."""
    chat = hosting.chat(system="Be brief. " * 8)
    _, ended = summarised(hosting, chat)
    *_, summary, prompt, _ = hosting.store.path(chat)
    read = "Be brief. " * 8 + summary.text + prompt.text
    template = "<>system\n<>\n<>system\n<>\n<>user\n<>\n<>assistant\n".replace("<>", "x")
    assert ended.report["usage"]["prompt_tokens"] == len(read.encode()) + len(template)


def test_room_is_made_before_a_reply_would_be_cut_for_want_of_it(hosting: Hosting) -> None:
    chat = hosting.chat(max_tokens=300)
    made, _ = summarised(hosting, chat)
    read = {event.message_id: event.total for event in hosting.heard.all(PromptRead)}
    before = [total for message_id, total in read.items() if message_id < made.summary_id]
    assert max(before) <= CONTEXT - CONTEXT // 4
    assert all(event.state == "length" for event in hosting.heard.all(ReplyEnded))


def test_where_only_the_message_itself_is_long_the_reply_takes_what_room_there_is(hosting: Hosting) -> None:
    ended = hosting.answer(hosting.chat(max_tokens=300), "x" * 900, "summarise")
    assert ended.state == "context"
    assert ended.text
    assert hosting.heard.all(SummaryMade) == []


def test_another_reply_to_the_same_message_stays_on_its_branch(hosting: Hosting) -> None:
    chat = hosting.chat()
    stopped = fill(hosting, chat, "stop")
    asked = hosting.store.path(chat)[-2]
    reply = hosting.store.start_reply(chat, asked.id)
    turns = tuple(ChatMessage(m.role, m.text) for m in hosting.store.path(chat)[:-1])
    hosting.host.reply(ReplyJob(chat, reply.id, turns, hosting.store.chat(chat).settings, "summarise"))
    made = hosting.heard.wait(SummaryMade)
    hosting.heard.wait(ReplyEnded, lambda event: event.message_id == made.reply_id)
    assert hosting.store.siblings(asked.id) == [asked.id, made.summary_id]
    assert hosting.store.siblings(stopped.message_id) == [stopped.message_id]


def test_a_message_that_is_too_long_alone_ends_as_such(hosting: Hosting) -> None:
    chat = hosting.chat()
    ended = hosting.answer(chat, "x" * 2000, "summarise")
    assert (ended.state, hosting.heard.all(SummaryMade)) == ("context", [])
    assert [m.kind for m in hosting.store.path(chat)] == ["message", "message"]


def test_a_chat_that_was_never_read_whole_is_summarised_in_parts(hosting: Hosting) -> None:
    """Imported, or written with a larger context: the turns do not fit together with the instruction."""
    chat = hosting.chat()
    parent = None
    for turn in range(6):
        parent = hosting.store.add_message(chat, parent, "user", f"{turn} {'question ' * 40}").id
        parent = hosting.store.add_message(chat, parent, "assistant", "answer " * (300 if turn == 2 else 20)).id
    ended = answer_moved(hosting, chat, "And now?")
    [made] = hosting.heard.all(SummaryMade)
    assert ended.message_id == made.reply_id
    assert ended.text
    assert INSTRUCTION not in hosting.store.message(made.summary_id).text


def test_a_stop_while_it_is_summarised_leaves_the_chat_as_it_was(hosting: Hosting) -> None:
    chat = hosting.chat()
    fill(hosting, chat, "stop")
    before = [(m.id, m.text) for m in hosting.store.path(chat)]
    hosting.heard.first(HostNotice, hosting.host.cancel)
    reply = hosting.ask(chat, "More.", "summarise")
    assert hosting.ended(reply).state == "cancelled"
    assert [(m.id, m.text) for m in hosting.store.path(chat)][: len(before)] == before
    assert hosting.heard.all(SummaryMade) == []


def test_where_summarising_fails_that_is_told_and_the_reply_takes_what_room_there_is(
    hosting: Hosting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat.overflow.INSTRUCTION", "x" * 2 * CONTEXT)
    chat = hosting.chat(max_tokens=200)
    for turn in range(30):
        ended = hosting.answer(chat, f"{turn} {TURN}", "summarise")
        if notices := hosting.heard.all(HostNotice):
            break
    going_on, failed = notices
    assert (going_on.passing, failed.passing) == (True, False)
    assert "could not be summarised" in failed.text
    assert ended.text
    assert hosting.heard.all(SummaryMade) == []


def test_where_the_store_takes_nothing_the_reply_still_comes(hosting: Hosting) -> None:
    chat = hosting.chat()
    fill(hosting, chat, "stop")
    hosting.heard.first(HostNotice, hosting.fill_store)
    ended = hosting.answer(chat, "More.", "summarise")
    assert ended.text
    assert hosting.heard.all(StoreFailed)
    assert hosting.heard.all(SummaryMade) == []
