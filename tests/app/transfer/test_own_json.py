from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.conversation import Attachment, Chat, Message, OriginSpan, pack_origins
from app.settings import ChatSettings
from app.store import ChatStore
from app.transfer import TransferError, export_chats, import_bytes

texts = st.text(max_size=30)
names = st.text(st.characters(codec="utf-8", exclude_categories=("Zs", "Cc", "Zl", "Zp")), min_size=1, max_size=8)
times = st.floats(0, 4e9)
spans = st.lists(st.builds(OriginSpan, st.sampled_from(["target", "model", "ngram"]), st.integers(1, 9)), max_size=4)
reports = st.none() | st.dictionaries(texts, st.none() | st.integers() | st.floats(allow_nan=False) | texts | st.lists(st.integers()))
states = st.sampled_from(["complete", "cancelled", "length", "context", "interrupted", "failed"])


@st.composite
def whole_chats(draw: st.DrawFn) -> tuple[Chat, list[Message]]:
    messages: list[Message] = []
    for number in range(1, draw(st.integers(0, 8)) + 1):
        report = draw(reports)
        messages.append(Message(
            number, 0, draw(st.none() | st.integers(1, number - 1)) if number > 1 else None,
            draw(st.sampled_from(["user", "assistant", "system"])), draw(texts), draw(times), draw(states),
            tuple(draw(st.lists(st.builds(Attachment, texts, texts, st.none() | st.integers(0, 99)), max_size=2))),
            pack_origins(draw(spans)), None if report is None else json.dumps(report), draw(st.sampled_from(["message", "summary"])),
        ))
    chat_settings = ChatSettings(
        system=draw(st.none() | texts), temperature=draw(st.none() | st.floats(0, 100)), seed=draw(st.none() | st.integers(0, 9)),
        stop=tuple(draw(st.lists(texts.filter(bool), max_size=2))), preset=draw(st.none() | texts),
    )
    leaf = draw(st.sampled_from([m.id for m in messages])) if messages else None
    tags = tuple(sorted(draw(st.sets(names, max_size=3))))
    return Chat(0, draw(texts), draw(times), draw(times), draw(st.booleans()), tags, chat_settings, draw(texts), leaf), messages


def whole(store: ChatStore, chat_id: int) -> Any:
    """Everything of a chat but the ids, which are the store's own."""
    chat, messages = store.chat(chat_id), store.tree(chat_id)
    place = {None: None} | {message.id: at for at, message in enumerate(messages)}
    return (
        chat.title, chat.created, chat.updated, chat.pinned, chat.tags, chat.settings, chat.unsent, place[chat.leaf_id],
        [(place[m.parent_id], m.role, m.kind, m.text, m.created, m.state, m.attachments, m.origins, m.report) for m in messages],
    )


@settings(max_examples=60, deadline=None)
@given(st.lists(whole_chats(), min_size=1, max_size=3))
def test_a_chat_survives_the_round_trip_whole(chats: list[tuple[Chat, list[Message]]]) -> None:
    store = ChatStore.in_memory()
    ids = [store.insert_chat(chat, messages) for chat, messages in chats]
    exported = export_chats(store, ids, "json")
    done = import_bytes(store, exported.encode(), "file")
    assert [whole(store, i) for i in done.chat_ids] == [whole(store, i) for i in ids]
    assert export_chats(store, ids, "json") == exported
    store.close()


def test_the_file_can_be_shown_in_a_terminal_and_read_by_a_person() -> None:
    store = ChatStore.in_memory()
    chat = store.new_chat(ChatSettings(), "天気 \x1b[31m \x9b31m \x7f")
    exported = export_chats(store, [chat.id], "json")
    assert not set(map(chr, [*range(10), *range(11, 32), *range(127, 160)])) & set(exported)
    assert "天気" in exported
    assert json.loads(exported)["chats"][0]["title"] == chat.title


def file(**chat: Any) -> bytes:
    whole_chat = {"title": "t", "created": 1, "updated": 2, "messages": [], **chat}
    return json.dumps({"format": "paceline-chats", "version": 1, "chats": [whole_chat]}).encode()


MESSAGE = {"id": 1, "parent": None, "role": "user", "text": "x", "created": 1}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (file(messages=[{**MESSAGE, "role": "robot"}]), "chats.0.messages.0.role: input should be"),
        (file(messages=[{**MESSAGE, "parent": 2}]), "chats.0.messages.0: its parent must stand before it"),
        (file(messages=[MESSAGE, MESSAGE]), "chats.0.messages.1: its parent must stand before it, and its id be its own"),
        (file(messages=[MESSAGE], shown=7), "chats.0.shown: there is no message 7"),
        (file(title=None), "chats.0.title: input should be a valid string"),
        (file(created=-1), "chats.0.created"),
        (file(settings={"temperature": -1}), "chats.0.settings.temperature"),
        (b'{"format": "paceline-chats", "version": 2, "chats": []}', "newer paceline"),
        (b'{"format": "paceline-chats"}', "version: field required"),
        (b'{"format": "paceline-chats", "version": 1, "chats": []}', "there is no chat in it"),
    ],
)
def test_what_is_wrong_is_said_where_it_is_and_nothing_is_stored(content: bytes, said: str) -> None:
    store = ChatStore.in_memory()
    with pytest.raises(TransferError) as told:
        import_bytes(store, content, "a.json")
    assert str(told.value).startswith("a.json cannot be imported: ")
    assert said in str(told.value)
    assert "\n" not in str(told.value)
    assert store.chats() == []


def test_fields_of_a_later_version_are_passed_over() -> None:
    store = ChatStore.in_memory()
    content = file(messages=[{**MESSAGE, "mood": "good"}], colour="red", settings={"seed": 3, "mood": 1})
    (chat,) = import_bytes(store, content, "a.json").chat_ids
    assert store.chat(chat).settings == ChatSettings(seed=3)
