from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.settings import ChatSettings
from app.store import ChatStore, Words


def found(store: ChatStore, query: str, chat: int | None = None) -> list[str]:
    ids = {message.id: message.text for entry in store.chats() for message in store.tree(entry.id)}
    return [ids[hit.message_id] for hit in store.search(query, chat)]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("speculative decoding", "SPECUL"),  # the beginning of a word
        ("speculative decoding", "lative dec"),  # the middle, two words
        ("speculative decoding", "decoding speculative"),  # any order
        ("今日の天気はどうですか", "天気"),
        ("今日の天気はどうですか", "気"),
        ("我想学习机器学习", "机器学习"),
        ("party \N{PARTY POPPER} time", "\N{PARTY POPPER}"),
        ("family \U0001f468\u200d\U0001f469\u200d\U0001f467", "\U0001f468\u200d\U0001f469\u200d\U0001f467"),
        ("МОСКВА да", "москва ДА"),
        ("مرحبا بالعالم", "بالعالم"),
        ("Straßenbahn", "straßen"),
        ('he said "no" OR NEAR(x)', '"no" OR'),
        ("a*b-c:d^e", "*b-c:d^"),
        ("100% of a_b", "0%"),
        ("100% of a_b", "_"),
        ("C:\\dir", "\\d"),
        ("it's", "it's"),
    ],
)
def test_any_script_is_found(store: ChatStore, chat: int, text: str, query: str) -> None:
    store.add_message(chat, None, "user", "something else")
    store.add_message(chat, None, "user", text)
    assert found(store, query) == [text]
    assert found(store, query, chat) == [text]
    assert [entry.id for entry in store.chats(query=query)] == [chat]


@pytest.mark.parametrize("query", ["", "  \n", "absent", "%", "_", "zz", "\N{SNOWMAN}", "some thing x"])
def test_what_is_not_there_is_not_found(store: ChatStore, chat: int, query: str) -> None:
    store.add_message(chat, None, "user", "something else")
    assert store.search(query) == []


@pytest.mark.parametrize("word", ["word", "w", "ж"])
def test_a_pasted_page_is_searched_for_by_its_first_words(store: ChatStore, chat: int, word: str) -> None:
    page = " ".join(f"{word}{number % 1000 if len(word) > 1 else ''}" for number in range(5000))
    store.add_message(chat, None, "user", page[:2000])
    assert len(store.search(page)) == 1
    assert len(store.chats(query=page)) == 1


def test_search_stays_in_its_chat_and_knows_the_newest_first(store: ChatStore, chat: int) -> None:
    other = store.new_chat(ChatSettings(), "Other").id
    first = store.add_message(chat, None, "user", "needle one")
    second = store.add_message(other, None, "user", "needle two")
    third = store.add_message(chat, first.id, "assistant", "needle three")
    assert [hit.message_id for hit in store.search("needle")] == [third.id, second.id, first.id]
    assert [hit.message_id for hit in store.search("needle", chat)] == [third.id, first.id]
    assert [hit.message_id for hit in store.search("ee", limit=2)] == [third.id, second.id]
    assert store.search("needle two")[0].title == "Other"


def test_a_reply_is_found_once_it_is_finished_and_under_its_last_text(store: ChatStore, chat: int) -> None:
    question = store.add_message(chat, None, "user", "question")
    reply = store.start_reply(chat, question.id)
    store.grow_reply(reply.id, "alpha", ())
    store.grow_reply(reply.id, "alpha beta", ())
    store.finish_reply(reply.id, "alpha beta gamma", (), "complete", None)
    assert found(store, "gamma") == ["alpha beta gamma"]
    store.finish_reply(reply.id, "delta", (), "complete", None)
    assert found(store, "gamma") == []
    assert found(store, "delta") == ["delta"]


def test_a_snippet_marks_every_word_of_the_line(store: ChatStore, chat: int) -> None:
    store.add_message(chat, None, "user", "x " * 200 + "the [red]\nNeedle[/red] and a needle" + " y" * 200)
    (hit,) = store.search("needle RED")
    text = "".join(piece for piece, _ in hit.snippet)
    assert [piece for piece, marked in hit.snippet if marked] == ["red", "Needle", "red", "needle"]
    assert text.startswith("…")
    assert text.endswith("…")
    assert "[red] Needle[/red]" in text
    assert len(text) < 200


@given(st.text(max_size=40), st.text(max_size=12))
def test_nothing_a_user_types_is_syntax(text: str, query: str) -> None:
    store = ChatStore.in_memory()
    chat = store.new_chat(ChatSettings(), query).id
    store.add_message(chat, None, "user", text)
    store.search(query)  # raises nothing
    store.chats(query=query)
    assert "".join(piece for piece, _ in Words(query).marked(text)) == text
    store.close()
