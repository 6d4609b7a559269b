"""Rows to values and back: the one place that knows how a value is written into a column."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from pydantic import ValidationError

from app.chat.conversation import Attachment, Chat, ChatSummary, Message
from app.settings import ChatSettings

MESSAGE_COLUMNS = "id, chat_id, parent_id, role, text, created, state, attachments, origins, report, kind"
"""In the order of Message's fields."""
CHAT_COLUMNS = (
    "c.id, c.title, c.created, c.updated, c.pinned, c.settings, c.unsent, c.leaf_id,"
    " (SELECT json_group_array(tag) FROM (SELECT tag FROM chat_tags WHERE chat_id = c.id ORDER BY tag)) AS tags"
)
_LINE = 200
"""Characters of the last message that a list gets."""


def storable(text: str) -> str:
    """Text that SQLite takes: half of a surrogate pair (JSON can hold one) has no UTF-8 and becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def message_of(row: sqlite3.Row) -> Message:
    """A row of MESSAGE_COLUMNS."""
    values = list(row)
    values[7] = _attachments(values[7])
    return Message(*values)


def chat_of(row: sqlite3.Row) -> Chat:
    """A row of CHAT_COLUMNS."""
    return Chat(
        id=row["id"], title=row["title"], created=row["created"], updated=row["updated"], pinned=bool(row["pinned"]),
        tags=tuple(json.loads(row["tags"])), settings=settings_of(row["settings"]), unsent=row["unsent"], leaf_id=row["leaf_id"],
    )


def summary_of(row: sqlite3.Row) -> ChatSummary:
    """A row of CHAT_COLUMNS with `messages` and `last_text`."""
    return ChatSummary(
        id=row["id"], title=row["title"], created=row["created"], updated=row["updated"], pinned=bool(row["pinned"]),
        tags=tuple(json.loads(row["tags"])), messages=row["messages"], last_line=" ".join((row["last_text"] or "").split())[:_LINE],
    )


def settings_json(settings: ChatSettings) -> str:
    return json.dumps(settings.model_dump(exclude_defaults=True))


def settings_of(text: str) -> ChatSettings:
    """Settings that this version would not take any more (a limit has changed) are the defaults: the chat must open."""
    try:
        return ChatSettings.model_validate(json.loads(text))
    except ValidationError:
        return ChatSettings()


def attachments_json(attachments: Iterable[Attachment]) -> str:
    return json.dumps([{"name": storable(a.name), "text": storable(a.text), "tokens": a.tokens} for a in attachments])


def _attachments(text: str) -> tuple[Attachment, ...]:
    return () if text == "[]" else tuple(Attachment(**item) for item in json.loads(text))
