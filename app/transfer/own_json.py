"""Paceline's own JSON: everything of a chat, so that a file that is imported again gives the same chat.

    {"format": "paceline-chats", "version": 1, "chats": [{
        "title": "...", "created": 1795966849.1, "updated": 1795966850.0,      seconds since 1970, UTC
        "pinned": false, "tags": ["work"], "unsent": "...",
        "settings": {"system": "...", "temperature": 0.7},                      only what is not the default
        "shown": 3,                                                             last message of the branch shown; null: none
        "messages": [{
            "id": 1, "parent": null,                                            parents stand before their children
            "role": "user", "kind": "message", "state": "complete", "created": 1795966849.2,
            "text": "...", "attachments": [{"name": "a.py", "text": "...", "tokens": 12}],
            "origins": "t12m30n4",                                              run lengths in characters of the text: who
                                                                                proposed it (target, model, ngram)
            "report": {...}                                                     the engine's numbers, or null
        }]
    }]}

A reader ignores fields it does not know. Control characters beyond ASCII's are escaped: the file can be shown in a terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError

from app.chat.conversation import (
    Attachment,
    Chat,
    Message,
    MessageKind,
    MessageState,
    Role,
    pack_origins,
    unpack_origins,
)
from app.settings import ChatSettings
from app.transfer.values import ReadChat, TransferError

FORMAT, VERSION = "paceline-chats", 1
Time = Annotated[float, Field(ge=0, lt=1e11)]

_UNSAFE = re.compile("[\x7f-\x9f\ud800-\udfff]")


class _Attachment(BaseModel):
    name: str
    text: str
    tokens: int | None = None


class _Message(BaseModel):
    id: int
    parent: int | None
    role: Role
    text: str
    created: Time
    kind: MessageKind = "message"
    state: MessageState = "complete"
    attachments: tuple[_Attachment, ...] = ()
    origins: str = ""
    report: dict[str, Any] | None = None


class _Chat(BaseModel):
    title: str
    created: Time
    updated: Time
    messages: tuple[_Message, ...]
    shown: int | None = None
    pinned: bool = False
    tags: tuple[str, ...] = ()
    unsent: str = ""
    settings: dict[str, Any] = {}


class _File(BaseModel):
    format: Literal["paceline-chats"]
    version: int
    chats: tuple[_Chat, ...]


def to_json(chats: Iterable[tuple[Chat, Iterable[Message]]]) -> str:
    """Chats with all their messages, parents first."""
    content = {"format": FORMAT, "version": VERSION, "chats": [_chat(chat, messages) for chat, messages in chats]}
    text = json.dumps(content, ensure_ascii=False, indent=1)
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n"


def read_own(content: Any) -> list[ReadChat]:
    """The chats of a parsed file. Raises TransferError that says what is wrong where."""
    if content.get("version") not in (None, VERSION):
        raise TransferError("it was written by a newer paceline; update this one to import it")
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        raise TransferError(_problem(error)) from None
    return [_read(chat, f"chats.{at}") for at, chat in enumerate(file.chats)]


def _chat(chat: Chat, messages: Iterable[Message]) -> dict[str, Any]:
    return {
        "title": chat.title, "created": chat.created, "updated": chat.updated, "pinned": chat.pinned, "tags": list(chat.tags),
        "unsent": chat.unsent, "settings": chat.settings.model_dump(exclude_defaults=True), "shown": chat.leaf_id,
        "messages": [_message(message) for message in messages],
    }


def _message(message: Message) -> dict[str, Any]:
    return {
        "id": message.id, "parent": message.parent_id, "role": message.role, "kind": message.kind, "state": message.state,
        "created": message.created, "text": message.text,
        "attachments": [{"name": a.name, "text": a.text, "tokens": a.tokens} for a in message.attachments],
        "origins": message.packed_origins, "report": message.report,
    }


def _read(chat: _Chat, where: str) -> ReadChat:
    known: set[int | None] = {None}
    for at, message in enumerate(chat.messages):
        if message.parent not in known or message.id in known:
            raise TransferError(f"{where}.messages.{at}: its parent must stand before it, and its id be its own")
        known.add(message.id)
    if chat.shown not in known:
        raise TransferError(f"{where}.shown: there is no message {chat.shown}")
    return ReadChat(
        Chat(0, chat.title, chat.created, chat.updated, chat.pinned, chat.tags, _settings(chat, where), chat.unsent, chat.shown),
        tuple(_value(message) for message in chat.messages),
    )


def _settings(chat: _Chat, where: str) -> ChatSettings:
    try:
        return ChatSettings.model_validate({k: v for k, v in chat.settings.items() if k in ChatSettings.model_fields})
    except ValidationError as error:
        raise TransferError(_problem(error, f"{where}.settings.")) from None


def _problem(error: ValidationError, where: str = "") -> str:
    first = error.errors(include_url=False)[0]
    return f"{where}{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"


def _value(message: _Message) -> Message:
    return Message(
        message.id, 0, message.parent, message.role, message.text, message.created, message.state,
        tuple(Attachment(a.name, a.text, a.tokens) for a in message.attachments),
        pack_origins(unpack_origins(message.origins)),
        None if message.report is None else json.dumps(message.report), message.kind,
    )
