from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from app.chat.conversation import Message
from app.store import ChatStore
from app.transfer import Imported, TransferError, import_bytes


def node(id: str, parent: str | None, role: str, *parts: Any, kind: str = "text", at: float | None = 5.0, **more: Any) -> dict[str, Any]:
    message = {"id": id, "author": {"role": role}, "create_time": at, "content": {"content_type": kind, "parts": list(parts)}, **more}
    return {"id": id, "parent": parent, "children": [], "message": message}


def conversation(*nodes: dict[str, Any], current: str | None = None, **more: Any) -> dict[str, Any]:
    mapping = {made["id"]: made for made in nodes}
    for made in nodes:
        if made["parent"] in mapping:
            mapping[made["parent"]]["children"].append(made["id"])
    return {"title": "T", "create_time": 1.0, "update_time": 9.0, "mapping": mapping, "current_node": current or nodes[-1]["id"], **more}


ROOT: dict[str, Any] = {"id": "root", "parent": None, "children": [], "message": None}


def root() -> dict[str, Any]:
    return {**ROOT, "children": []}


def read(*conversations: Any) -> tuple[ChatStore, Imported]:
    store = ChatStore.in_memory()
    return store, import_bytes(store, json.dumps(list(conversations)).encode(), "conversations.json")


def said(messages: list[Message]) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


def test_a_conversation_keeps_its_words_times_and_title() -> None:
    store, done = read(conversation(root(), node("a", "root", "user", "Hi", at=2.5), node("b", "a", "assistant", "Hello")))
    assert said(store.path(done.chat_ids[0])) == [("user", "Hi"), ("assistant", "Hello")]
    chat = store.chat(done.chat_ids[0])
    assert (chat.title, chat.created, chat.updated) == ("T", 1.0, 9.0)
    assert store.path(chat.id)[0].created == 2.5
    assert done.summary == "1 chat with 2 messages"


def test_branches_stay_and_the_current_one_is_shown() -> None:
    nodes = (
        root(), node("q", "root", "user", "Q"), node("r1", "q", "assistant", "R1"), node("r2", "q", "assistant", "R2"),
        node("x1", "r1", "user", "X1"), node("x2", "r2", "user", "X2"),
    )
    store, done = read(conversation(*nodes, current="x1"))
    path = store.path(done.chat_ids[0])
    assert [message.text for message in path] == ["Q", "R1", "X1"]
    siblings = store.siblings(path[1].id)
    assert [store.message(i).text for i in siblings] == ["R1", "R2"]
    store.select(siblings[1])
    assert [message.text for message in store.path(done.chat_ids[0])] == ["Q", "R2", "X2"]


def test_tools_and_images_are_counted_and_what_they_separated_is_one_reply() -> None:
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file://x"}
    nodes = (
        root(), node("q", "root", "user", image, "What is this?", kind="multimodal_text"), node("a", "q", "assistant", "Let me see."),
        node("call", "a", "assistant", "search()", recipient="browser"), node("t", "call", "tool", "result", kind="execution_output"),
        node("b", "t", "assistant", "A cat \ue200cite\ue202turn0search1\ue201indeed."), node("c", "b", "user", "Thanks"),
    )
    store, done = read(conversation(*nodes))
    assert said(store.path(done.chat_ids[0])) == [
        ("user", "What is this?"), ("assistant", "Let me see.\n\nA cat indeed."), ("user", "Thanks"),
    ]
    assert done.left_out == 3
    assert done.summary.endswith("left out: 3 parts that are no text")


def test_two_replies_of_one_question_are_not_joined() -> None:
    nodes = (
        root(), node("q", "root", "user", "Q"), node("a", "q", "assistant", "A"), node("t", "a", "tool", "x"),
        node("b1", "t", "assistant", "B1"), node("b2", "t", "assistant", "B2"),
    )
    store, done = read(conversation(*nodes))
    assert [message.text for message in store.tree(done.chat_ids[0])] == ["Q", "A", "B1", "B2"]


def test_hidden_and_empty_nodes_go_without_a_word_and_a_system_text_is_the_prompt() -> None:
    nodes = (
        node("s", None, "system", ""), node("s2", "s", "system", "Be kind."),
        node("h", "s2", "user", "about me", metadata={"is_visually_hidden_from_conversation": True}),
        node("p", "h", "user", "profile", kind="user_editable_context"), node("q", "p", "user", "Q", at=None),
    )
    store, done = read(conversation(*nodes))
    chat = store.chat(done.chat_ids[0])
    assert said(store.path(chat.id)) == [("user", "Q")]
    assert chat.settings.system == "Be kind."
    assert store.path(chat.id)[0].created == 1.0  # the conversation's, where a message has none
    assert done.left_out == 0


def test_a_broken_conversation_does_not_keep_the_others_out() -> None:
    circle = {"a": {"parent": "b", "message": None}, "b": {"parent": "a", "message": None}}
    good = conversation(node("a", None, "user", "Hi"))
    odd = {"mapping": {"a": 1, "b": {"parent": 7, "message": {"content": "x", "author": None}}}, "title": 3, "create_time": "soon"}
    store, done = read(good, {"mapping": circle}, 7, odd, {"mapping": {}}, good)
    assert len(done.chat_ids) == 2
    assert done.unreadable == 4
    assert "4 empty or unreadable conversations" in done.summary
    assert len(store.chats()) == 2


def test_broken_characters_are_no_end() -> None:
    store, done = read(conversation(node("a", None, "user", "half \ud83d"), title="x \udc00\ny"))
    assert store.path(done.chat_ids[0])[0].text == "half \N{REPLACEMENT CHARACTER}"
    assert store.chat(done.chat_ids[0]).title == "x \N{REPLACEMENT CHARACTER} y"


def test_a_very_long_conversation_is_read() -> None:
    nodes = [node("0", None, "user", "0")] + [node(str(i), str(i - 1), "user", str(i)) for i in range(1, 3000)]
    store, done = read(conversation(*nodes))
    assert len(store.path(done.chat_ids[0])) == 3000


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "/"), content)
    return buffer.getvalue()


def test_the_zip_that_is_mailed_is_read() -> None:
    content = json.dumps([conversation(node("a", None, "user", "Hi"))]).encode()
    members = {"export__conversations-000.json": content, "conversations-001.json": content, "user.json": b"{}", "chat.html": b"<p>"}
    store = ChatStore.in_memory()
    assert len(import_bytes(store, zipped(**members), "export.zip").chat_ids) == 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (zipped(**{"user.json": b"{}"}), "no export that is understood"),
        (zipped(**{"readme.txt": b"{}"}), "there is no conversations.json in it"),
        (zipped(**{"conversations.json": b"[" * 5})[:-30], "it is no export|no JSON|damaged"),
        (b"[]", "there is no chat in it"),
        (b"", "it is empty"),
        (b"[1, 2", "it is no JSON"),
        (b"\xff\xfe\x00nonsense", "no export that is understood|it is no JSON"),
        (b'{"hello": 1}', "no export that is understood"),
        (b"[" * 100_000, "nested too deeply"),
        (b'[{"mapping": {}, "create_time": ' + b"9" * 5000 + b"}]", "no export that is understood"),
        (zipped(**{"conversations.json": b" " * 20_000_000}), "packed more densely than any export"),
        (b'[{"mapping": {}}]', "there is no chat in it"),
    ],
)
def test_bad_files_are_one_clear_line(content: bytes, said: str) -> None:
    with pytest.raises(TransferError, match=said) as told:
        import_bytes(ChatStore.in_memory(), content, "the file")
    assert str(told.value).startswith("the file cannot be imported: ")
    assert "\n" not in str(told.value)
