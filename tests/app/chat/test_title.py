"""Titles: one short line, never a thought, and never in the user's way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chat.engine_host import TitleJob
from app.chat.events import ModelReady, PromptRead, ReplyGrew, TitleMade, TokensCounted
from app.chat.title import LONGEST, clean_title, title_from_prompt
from engine import ChatMessage
from tests.app.chat.hosting import Hosting

QUESTION = "Why is the sky blue?"


@pytest.fixture
def hosting(tmp_path: Path, target: Path) -> Iterator[Hosting]:
    made = Hosting(tmp_path / "home")
    assert isinstance(made.load(target, ctx=2048), ModelReady)
    yield made
    made.close()


def title_job(hosting: Hosting, chat: int) -> TitleJob:
    return TitleJob(chat, tuple(ChatMessage(m.role, m.text) for m in hosting.store.path(chat)))


def test_the_model_makes_a_title_and_the_chat_stays_read(hosting: Hosting) -> None:
    chat = hosting.chat()
    hosting.answer(chat, QUESTION)
    hosting.host.title(title_job(hosting, chat))
    made = hosting.heard.wait(TitleMade)
    assert made.chat_id == chat
    assert 0 < len(made.title) <= LONGEST
    assert "\n" not in made.title
    since = len(hosting.heard.events)
    hosting.answer(chat, "Go on.")
    read = hosting.heard.wait(PromptRead, since=since)
    assert read.cached > read.total - 60, "only the new turn is read"


def test_a_title_is_given_up_when_the_user_asks_something(hosting: Hosting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.chat.title.TITLE_TOKENS", 1500)
    chat = hosting.chat()
    hosting.answer(chat, QUESTION)
    hosting.host.title(title_job(hosting, chat))
    hosting.host.count_tokens("abc", "begun")
    hosting.heard.wait(TokensCounted)
    assert hosting.answer(chat, "Go on.").text
    hosting.host.count_tokens("abc", "idle")
    hosting.heard.wait(TokensCounted, lambda event: event.tag == "idle")
    assert hosting.heard.all(TitleMade) == []


def test_a_title_waits_for_replies(hosting: Hosting) -> None:
    chat = hosting.chat(max_tokens=300)
    hosting.answer(chat, QUESTION)
    job = title_job(hosting, chat)
    hosting.heard.first(ReplyGrew, lambda: hosting.host.title(job))
    ended = hosting.answer(chat, "Long.")
    made = hosting.heard.wait(TitleMade)
    assert hosting.heard.events.index(made) > hosting.heard.events.index(ended)


def test_where_the_chat_fills_the_context_the_first_words_are_the_title(hosting: Hosting) -> None:
    hosting.host.open_chat(1)
    hosting.host.title(TitleJob(1, (ChatMessage("user", f"{QUESTION}\n{'x' * 2100}"),)))
    assert hosting.heard.wait(TitleMade).title == QUESTION


def test_a_chat_that_was_left_gets_no_title(hosting: Hosting) -> None:
    """It would throw out of the caches what was read of the other."""
    chat, other = hosting.chat(), hosting.chat()
    hosting.answer(chat, QUESTION)
    hosting.answer(other, QUESTION)
    hosting.host.title(title_job(hosting, chat))
    hosting.host.title(title_job(hosting, other))
    assert hosting.heard.wait(TitleMade).chat_id == other


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("The Blue Sky", "The Blue Sky"),
        ('  "The Blue Sky."\n\nIt is about light.', "The Blue Sky"),
        ("**Title: The Blue Sky**", "The Blue Sky"),
        ("# The Blue Sky", "The Blue Sky"),
        ("<think>\nThey ask about\nthe sky.\n</think>\n\nThe Blue Sky", "The Blue Sky"),
        ("They ask about the sky.\n</think>\n\nThe Blue Sky", "The Blue Sky"),
        ("<think>\nThey ask about the sky, so", None),
        ("\x1b]0;evil\x07Blue\tsky", "Blue sky"),
        ("[b]bold[/b] and [TODO]", "[b]bold[/b] and [TODO]"),
        ("---\n\n", None),
        ("", None),
        ("天空为什么是蓝色的", "天空为什么是蓝色的"),
        ("word " * 30, "word word word word word word word word word word word…"),
        ("x" * 100, "x" * 59 + "…"),
    ],
)
def test_what_models_write_becomes_one_short_line(text: str, title: str | None) -> None:
    assert clean_title(text) == title
    assert title is None or len(title) <= LONGEST


def test_without_a_model_the_users_words_are_the_title() -> None:
    assert title_from_prompt([ChatMessage("system", "Be brief."), ChatMessage("user", "\n\nWhy?\nTell me.")]) == "Why?"
    assert title_from_prompt([]) is None
