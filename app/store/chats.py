"""Chats as wholes: making, listing, naming, tagging, deleting with a way back."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from app.chat.conversation import Chat, ChatSummary
from app.settings import ChatSettings
from app.store.base import Part
from app.store.errors import NotFound
from app.store.rows import CHAT_COLUMNS, chat_of, settings_json, storable, summary_of
from app.store.search import Words

KEPT_SECONDS = 30 * 86400.0
"""How long what was deleted can be brought back."""
_PORTION = 200
"""Messages that are erased in one transaction, which takes some 0.1 s."""


class Chats(Part):
    """The part of the store that knows chats."""

    def new_chat(self, settings: ChatSettings, title: str = "") -> Chat:
        now = time.time()
        with self._db.writing() as db:
            made = db.execute(
                "INSERT INTO chats(title, created, updated, settings) VALUES (?, ?, ?, ?)",
                (storable(title), now, now, settings_json(settings)),
            ).lastrowid
        return self.chat(made or 0)

    def chat(self, chat_id: int) -> Chat:
        """Raises NotFound if there is none, or it is deleted."""
        row = self._db.row(f"SELECT {CHAT_COLUMNS} FROM chats c WHERE c.id = ? AND c.deleted IS NULL", (chat_id,))
        if row is None:
            raise NotFound(f"chat {chat_id} is not there; it may have been deleted in another window")
        return chat_of(row)

    def chats(self, *, query: str = "", tag: str | None = None, limit: int = 200, offset: int = 0) -> list[ChatSummary]:
        """Pinned ones first, then by last change, newest first. `query` keeps the chats whose title, or one of whose
        messages, holds all its words."""
        conditions, params = ["c.deleted IS NULL"], []
        if tag is not None:
            conditions.append("c.id IN (SELECT chat_id FROM chat_tags WHERE tag = ?)")
            params.append(tag)
        if words := Words(query):
            in_title, title_params = words.in_title()
            source, in_text, text_params = words.in_messages()
            if words.indexed:
                conditions.append(f"({in_title} OR c.id IN (SELECT m.chat_id FROM {source} WHERE {in_text}))")
            else:  # chat by chat, until there are enough
                conditions.append(f"({in_title} OR EXISTS (SELECT 1 FROM {source} WHERE m.chat_id = c.id AND {in_text}))")
            params += title_params + text_params
        rows = self._db.rows(
            f"SELECT {CHAT_COLUMNS},"
            " (SELECT count(*) FROM messages WHERE chat_id = c.id AND deleted IS NULL) AS messages,"
            " (SELECT substr(text, 1, 1000) FROM messages WHERE id = c.leaf_id) AS last_text"
            f" FROM chats c WHERE {' AND '.join(conditions)}"
            " ORDER BY c.pinned DESC, c.updated DESC, c.id DESC LIMIT ? OFFSET ?",
            [*params, limit, offset],
        )
        return [summary_of(row) for row in rows]

    def rename(self, chat_id: int, title: str) -> None:
        self._set(chat_id, "title", " ".join(storable(title).split()))

    def pin(self, chat_id: int, pinned: bool) -> None:
        self._set(chat_id, "pinned", int(pinned))

    def set_settings(self, chat_id: int, settings: ChatSettings) -> None:
        self._set(chat_id, "settings", settings_json(settings))

    def set_unsent(self, chat_id: int, text: str) -> None:
        """Keep what stands in the chat's prompt."""
        self._set(chat_id, "unsent", storable(text))

    def set_tags(self, chat_id: int, tags: Iterable[str]) -> None:
        """Exactly these, each stripped; empty ones are left out."""
        wanted = sorted({tag for given in tags if (tag := " ".join(storable(given).split()))})
        with self._db.writing() as db:
            self._require(db, chat_id)
            db.execute("DELETE FROM chat_tags WHERE chat_id = ?", (chat_id,))
            db.executemany("INSERT INTO chat_tags(chat_id, tag) VALUES (?, ?)", [(chat_id, tag) for tag in wanted])

    def tags(self) -> list[tuple[str, int]]:
        """Every tag with the number of chats that have it, in alphabetical order."""
        rows = self._db.rows(
            "SELECT tag, count(*) FROM chat_tags JOIN chats c ON c.id = chat_id WHERE c.deleted IS NULL"
            " GROUP BY tag ORDER BY fold(tag), tag"
        )
        return [(row[0], row[1]) for row in rows]

    def delete_chats(self, chat_ids: Sequence[int]) -> None:
        """They are out of every list; `restore_chats` brings them back until they are purged."""
        with self._db.writing() as db:
            now = time.time()
            db.executemany("UPDATE chats SET deleted = ? WHERE id = ? AND deleted IS NULL", [(now, i) for i in chat_ids])

    def restore_chats(self, chat_ids: Sequence[int]) -> None:
        with self._db.writing() as db:
            db.executemany("UPDATE chats SET deleted = NULL WHERE id = ?", [(i,) for i in chat_ids])

    def purge(self, older_than_seconds: float = KEPT_SECONDS) -> list[int]:
        """Erase what was deleted longer ago than that: chats and single messages. The ids of the chats, for whoever keeps
        other files of theirs."""
        until = time.time() - older_than_seconds
        chats = self._db.rows("SELECT id FROM chats WHERE deleted <= ?", (until,))
        self._erase_messages([row[0] for row in self._db.rows("SELECT id FROM messages WHERE deleted <= ?", (until,))])
        return self.erase_chats([row[0] for row in chats])

    def erase_chats(self, chat_ids: Sequence[int]) -> list[int]:
        """Delete chats for good; those there were."""
        self.delete_chats(chat_ids)
        for chat_id in chat_ids:
            self._erase_messages([row[0] for row in self._db.rows("SELECT id FROM messages WHERE chat_id = ?", (chat_id,))])
        with self._db.writing() as db:
            # One that came back meanwhile, as somebody wrote in it, stays.
            return [i for i in chat_ids if db.execute("DELETE FROM chats WHERE id = ? AND deleted IS NOT NULL", (i,)).rowcount]

    def _erase_messages(self, message_ids: list[int]) -> None:
        """Children before parents, and in small portions, as other windows want to write meanwhile."""
        message_ids = sorted(message_ids, reverse=True)
        for start in range(0, len(message_ids), _PORTION):
            with self._db.writing() as db:
                db.executemany(
                    "DELETE FROM messages WHERE id = ? AND (deleted IS NOT NULL OR chat_id IN"
                    " (SELECT id FROM chats WHERE deleted IS NOT NULL))",
                    [(i,) for i in message_ids[start : start + _PORTION]],
                )

    def _set(self, chat_id: int, column: str, value: Any) -> None:
        with self._db.writing() as db:
            self._require(db, chat_id)
            db.execute(f"UPDATE chats SET {column} = ? WHERE id = ?", (value, chat_id))
