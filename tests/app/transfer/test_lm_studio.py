from __future__ import annotations

import json
from typing import Any

import pytest

from app.store import ChatStore
from app.transfer import Imported, TransferError, import_bytes


def single(role: str, *content: Any) -> dict[str, Any]:
    return {"type": "singleStep", "role": role, "content": [{"type": "text", "text": c} if isinstance(c, str) else c for c in content]}


def block(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "contentBlock", "content": [{"type": "text", "text": text}], **more}


def multi(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"type": "multiStep", "role": "assistant", "steps": list(steps)}


def turn(*versions: dict[str, Any], selected: int = 0) -> dict[str, Any]:
    return {"versions": list(versions), "currentlySelected": selected}


def read(*turns: Any, **more: Any) -> tuple[ChatStore, Imported]:
    store = ChatStore.in_memory()
    content = {"name": "Cats", "createdAt": 1_700_000_000_000, "messages": list(turns), **more}
    return store, import_bytes(store, json.dumps(content).encode(), "1.conversation.json")


def test_a_conversation_is_read() -> None:
    store, done = read(
        turn(single("user", "Hi")), turn(multi(block("Hello"), block("there"))),
        pinned=True, clientInput="not sent", userLastMessagedAt=1_700_000_005_000,
        perChatPredictionConfig={"fields": [{"key": "llm.prediction.systemPrompt", "value": "Be brief."}]},
    )
    chat = store.chat(done.chat_ids[0])
    assert [(m.role, m.text) for m in store.path(chat.id)] == [("user", "Hi"), ("assistant", "Hello\n\nthere")]
    assert (chat.title, chat.created, chat.updated) == ("Cats", 1.7e9, 1.7e9 + 5)
    assert (chat.pinned, chat.unsent, chat.settings.system) == (True, "not sent", "Be brief.")


def test_versions_become_branches_and_the_selected_one_goes_on() -> None:
    store, done = read(turn(single("user", "Q")), turn(multi(block("R1")), multi(block("R2")), multi(block("R3")), selected=1), turn(single("user", "X")))
    path = store.path(done.chat_ids[0])
    assert [message.text for message in path] == ["Q", "R2", "X"]
    assert [store.message(i).text for i in store.siblings(path[1].id)] == ["R1", "R2", "R3"]


def test_thinking_stays_thinking_and_what_is_no_text_is_counted() -> None:
    tool = {"type": "contentBlock", "roleOverride": "tool", "content": [{"type": "toolCallResult", "content": "x"}]}
    request = {"type": "contentBlock", "content": [{"type": "toolCallRequest", "name": "f"}]}
    store, done = read(
        turn(single("user", "Look", {"type": "file", "fileType": "image"})),
        turn(multi(block("Hm.", style={"type": "thinking"}), request, tool, {"type": "debugInfoBlock"}, block("Yes."))),
        systemPrompt="Old place",
    )
    assert [m.text for m in store.path(done.chat_ids[0])] == ["Look", "<think>\nHm.\n</think>\n\nYes."]
    assert done.left_out == 3
    assert store.chat(done.chat_ids[0]).settings.system == "Old place"


def test_plain_lists_of_messages_are_read_too() -> None:
    store, done = read(
        {"role": "system", "content": "Be."}, {"role": "user", "content": "Q"}, {"role": "tool", "content": "x"},
        {"role": "assistant", "content": [{"type": "text", "text": "A"}]}, name=None, createdAt="then",
    )
    chat = store.chat(done.chat_ids[0])
    assert [(m.role, m.text) for m in store.path(chat.id)] == [("user", "Q"), ("assistant", "A")]
    assert (chat.title, chat.created, chat.settings.system) == ("", 0.0, "Be.")


@pytest.mark.parametrize("turns", [[], [1, None], [turn()], [turn(single("user", ""))], [{"versions": [3], "currentlySelected": "x"}]])
def test_a_file_without_words_is_one_line(turns: list[Any]) -> None:
    with pytest.raises(TransferError, match="there is no chat in it"):
        read(*turns)
