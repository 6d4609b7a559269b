"""Messages as a tree: growing it, walking it, choosing the branch shown.

Every change of a chat's leaf is counted, and each message remembers the count at which it was last the leaf. So "the
branch last shown below" a message is the one that ends in the descendant with the highest count.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable
from operator import itemgetter
from typing import Any

from app.chat.conversation import (
    Attachment,
    Chat,
    Message,
    MessageKind,
    MessageState,
    OriginSpan,
    Role,
    pack_origins,
)
from app.store.base import Part
from app.store.errors import NotFound
from app.store.rows import MESSAGE_COLUMNS, attachments_json, message_of, settings_json, storable
from app.store.writer import is_alive, this_writer

_COLUMNS_OF_M = ", ".join(f"m.{name}" for name in MESSAGE_COLUMNS.split(", "))
_UPWARDS = """WITH RECURSIVE up(id, parent_id) AS (
    SELECT id, parent_id FROM messages WHERE id = ?
    UNION ALL SELECT m.id, m.parent_id FROM up JOIN messages m ON m.id = up.parent_id
)"""
_BELOW = """WITH RECURSIVE below(id, chat_id) AS (
    SELECT id, chat_id FROM messages WHERE id = ?
    UNION ALL SELECT m.id, m.chat_id FROM below JOIN messages m ON m.chat_id = below.chat_id AND m.parent_id = below.id
)"""


class Messages(Part):
    """The part of the store that knows messages."""

    def path(self, chat_id: int, through: int | None = None) -> list[Message]:
        """The branch shown, from the first message to the leaf; empty for a chat without messages. With `through`, the
        branch that this message is on (or what is left of those above it), to where it was last shown: several windows
        may show different ones."""
        with self._db.reading() as db:
            leaf = db.execute("SELECT leaf_id FROM chats WHERE id = ?", (chat_id,)).fetchone()
            if leaf is None:
                raise NotFound(f"chat {chat_id} is not there any more; it was deleted for good")
            end = leaf[0]
            if through is not None and (kept := self._last_left(db, chat_id, through)) is not None:
                end = self._last_shown_below(db, kept)
        rows = self._db.rows(f"{_UPWARDS} SELECT {_COLUMNS_OF_M} FROM up JOIN messages m ON m.id = up.id", (end,))
        # A parent is stored before its children, so the order of ids is the order of the branch.
        return [message_of(row) for row in sorted(rows, key=itemgetter(0))]

    def tree(self, chat_id: int) -> list[Message]:
        """Every message of the chat on every branch, parents before children."""
        rows = self._db.rows(
            f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE chat_id = ? AND deleted IS NULL ORDER BY id", (chat_id,)
        )
        return [message_of(row) for row in rows]

    def message(self, message_id: int) -> Message:
        """Raises NotFound if there is none, or it is deleted."""
        row = self._db.row(f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE id = ? AND deleted IS NULL", (message_id,))
        if row is None:
            raise NotFound(f"message {message_id} is not there; it may have been deleted in another window")
        return message_of(row)

    def siblings(self, message_id: int) -> list[int]:
        """The messages that stand in this one's place on other branches and itself, oldest first."""
        rows = self._db.rows(
            "SELECT s.id FROM messages m JOIN messages s ON s.chat_id = m.chat_id AND s.parent_id IS m.parent_id"
            " WHERE m.id = ? AND s.deleted IS NULL ORDER BY s.id",
            (message_id,),
        )
        return [row[0] for row in rows]

    def branches(self, chat_id: int, leaf_id: int | None = None) -> dict[int, list[int]]:
        """For each message of the branch shown (or of the one that ends in `leaf_id`) that has siblings: all of them, as
        `siblings` would say, in one query."""
        rows = self._db.rows(
            f"{_UPWARDS.replace('= ?', '= coalesce(:leaf, (SELECT leaf_id FROM chats WHERE id = :chat))')}"
            " SELECT up.id, s.id FROM up JOIN messages s ON s.chat_id = :chat AND s.parent_id IS up.parent_id"
            " WHERE s.deleted IS NULL ORDER BY up.id, s.id",
            {"chat": chat_id, "leaf": leaf_id},
        )
        found: dict[int, list[int]] = {}
        for shown, sibling in rows:
            found.setdefault(shown, []).append(sibling)
        return {shown: siblings for shown, siblings in found.items() if len(siblings) > 1}

    def stamp(self, chat_id: int, leaf_id: int | None) -> tuple[Any, ...]:
        """Differs after anything of the chat that a window shows has changed: its messages and branches, name and settings,
        whether it is deleted, how far the message `leaf_id` has grown. A look of microseconds."""
        row = self._db.row(
            "SELECT c.shows, c.title, c.settings, c.deleted, m.state, length(m.text)"
            " FROM chats c LEFT JOIN messages m ON m.id = ? WHERE c.id = ?",
            (leaf_id, chat_id),
        )
        return () if row is None else tuple(row)

    def add_message(
        self, chat_id: int, parent_id: int | None, role: Role, text: str,
        attachments: Iterable[Attachment] = (), kind: MessageKind = "message",
    ) -> Message:
        """A finished message below `parent_id` (None: the first); the branch shown ends in it. A chat that another
        window has deleted comes back: somebody is writing in it. Raises NotFound if the parent is gone."""
        with self._db.writing() as db:
            return self._insert(db, chat_id, parent_id, role, text, "complete", attachments_json(attachments), kind)

    def start_reply(self, chat_id: int, parent_id: int) -> Message:
        """An empty reply in state `streaming`; the branch shown ends in it. Should this process die, the next `open`
        finds it and marks it `interrupted`."""
        with self._db.writing() as db:
            reply = self._insert(db, chat_id, parent_id, "assistant", "", "streaming", "[]", "message")
            db.execute("UPDATE messages SET writer = ? WHERE id = ?", (this_writer(), reply.id))
        return reply

    def grow_reply(self, message_id: int, text: str, origins: Iterable[OriginSpan]) -> None:
        """Keep the reply's whole text so far."""
        self._write_reply(message_id, text, origins, "streaming", None, this_writer())

    def finish_reply(
        self, message_id: int, text: str, origins: Iterable[OriginSpan], state: MessageState, report: dict[str, Any] | None
    ) -> None:
        """Keep the reply's whole text, how it ended, and the engine's numbers."""
        self._write_reply(message_id, text, origins, state, None if report is None else json.dumps(report), None)

    def select(self, message_id: int) -> None:
        """Show this message, and of what is below it the branch last shown."""
        with self._db.writing() as db:
            chat_id = self._live(db, message_id)[0]
            self._show(db, chat_id, self._last_shown_below(db, message_id))

    def delete_message(self, message_id: int) -> None:
        """This message and all below it leave the chat; `restore_message` brings them back until they are purged. If they
        were shown, a branch beside them is shown instead, or else the messages above."""
        with self._db.writing() as db:
            chat_id, parent_id = self._live(db, message_id)
            shown = db.execute("SELECT leaf_id FROM chats WHERE id = ?", (chat_id,)).fetchone()[0]
            below = [row[0] for row in db.execute(f"{_BELOW} SELECT id FROM below", (message_id,))]
            db.executemany(
                "UPDATE messages SET deleted = ?, deleted_with = ? WHERE id = ? AND deleted IS NULL",
                [(time.time(), message_id, i) for i in below],
            )
            if shown in below:
                beside = db.execute(
                    "SELECT id FROM messages WHERE chat_id = ? AND parent_id IS ? AND deleted IS NULL ORDER BY shown DESC, id DESC",
                    (chat_id, parent_id),
                ).fetchall()
                leaves = [self._last_shown_below(db, row[0]) for row in beside]
                self._show(db, chat_id, self._latest(db, leaves) if leaves else parent_id)
            else:
                self._show(db, chat_id, shown)  # as before; but another window may show the other branch

    def restore_message(self, message_id: int) -> None:
        """Undo `delete_message(message_id)` and show the message again. Raises NotFound if it was purged, or a message
        above it is deleted too."""
        with self._db.writing() as db:
            row = db.execute("SELECT parent_id FROM messages WHERE id = ?", (message_id,)).fetchone()
            if row is None:
                raise NotFound(f"message {message_id} was deleted for good")
            if row[0] is not None:
                self._live(db, row[0])
            db.execute(
                "UPDATE messages SET deleted = NULL, deleted_with = NULL WHERE deleted_with = ?", (message_id,)
            )
            chat_id = self._live(db, message_id)[0]
            self._show(db, chat_id, self._last_shown_below(db, message_id))

    def insert_chat(self, chat: Chat, messages: Iterable[Message]) -> int:
        """A copy of a chat with all its messages under new ids, in one transaction: an import, or a duplicate. The given
        ids need to fit together only among themselves, parents before children. Returns the new chat's id."""
        with self._db.writing() as db:
            made = db.execute(
                "INSERT INTO chats(title, created, updated, pinned, settings, unsent) VALUES (?, ?, ?, ?, ?, ?)",
                (storable(chat.title), chat.created, chat.updated, int(chat.pinned), settings_json(chat.settings), storable(chat.unsent)),
            ).lastrowid or 0
            db.executemany("INSERT INTO chat_tags(chat_id, tag) VALUES (?, ?)", [(made, storable(tag)) for tag in chat.tags])
            ids: dict[int | None, int | None] = {None: None}
            for message in messages:
                ids[message.id] = db.execute(
                    "INSERT INTO messages(chat_id, parent_id, role, kind, state, created, text, attachments, origins, report)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (made, ids[message.parent_id], message.role, message.kind,
                     "interrupted" if message.state == "streaming" else message.state, message.created, storable(message.text),
                     attachments_json(message.attachments), message.packed_origins, message.packed_report),
                ).lastrowid
            self._show(db, made, ids[chat.leaf_id])
            db.execute("UPDATE chats SET updated = ? WHERE id = ?", (chat.updated, made))
        return made

    def recent_prompts(self, limit: int) -> list[str]:
        """What the user sent last in any chat, newest first, each text once."""
        rows = self._db.rows(
            "SELECT text FROM (SELECT m.text, m.created FROM messages m JOIN chats c ON c.id = m.chat_id"
            " WHERE m.role = 'user' AND m.kind = 'message' AND m.deleted IS NULL AND c.deleted IS NULL"
            " ORDER BY m.created DESC LIMIT ?) GROUP BY text ORDER BY max(created) DESC LIMIT ?",
            (4 * limit, limit),
        )
        return [row[0] for row in rows]

    def mark_interrupted(self) -> None:
        """Replies whose writing process is gone: they end where they got to."""
        streaming = self._db.rows("SELECT id, writer FROM messages WHERE state = 'streaming'")
        if orphans := [row["id"] for row in streaming if not is_alive(row["writer"])]:
            with self._db.writing() as db:
                db.executemany(
                    "UPDATE messages SET state = 'interrupted', writer = NULL WHERE id = ? AND state = 'streaming'",
                    [(i,) for i in orphans],
                )

    def _insert(
        self, db: sqlite3.Connection, chat_id: int, parent_id: int | None, role: Role, text: str, state: MessageState,
        attachments: str, kind: MessageKind,
    ) -> Message:
        self._require(db, chat_id)
        if parent_id is not None and self._live(db, parent_id)[0] != chat_id:
            raise NotFound(f"message {parent_id} is not in chat {chat_id}")
        made = db.execute(
            "INSERT INTO messages(chat_id, parent_id, role, kind, state, created, text, attachments) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (chat_id, parent_id, role, kind, state, time.time(), storable(text), attachments),
        ).lastrowid
        self._show(db, chat_id, made)
        db.execute("UPDATE chats SET updated = ?, deleted = NULL WHERE id = ?", (time.time(), chat_id))
        return message_of(db.execute(f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE id = ?", (made,)).fetchone())

    def _write_reply(
        self, message_id: int, text: str, origins: Iterable[OriginSpan], state: MessageState, report: str | None, writer: str | None
    ) -> None:
        with self._db.writing() as db:
            written = db.execute(
                "UPDATE messages SET text = ?, origins = ?, state = ?, report = ?, writer = ? WHERE id = ? RETURNING chat_id",
                (storable(text), pack_origins(origins), state, report, writer, message_id),
            ).fetchone()
            if written is None:
                raise NotFound(f"message {message_id} was deleted for good while it was being written")
            if state != "streaming":
                db.execute("UPDATE chats SET updated = ? WHERE id = ?", (time.time(), written[0]))

    def _live(self, db: sqlite3.Connection, message_id: int) -> tuple[int, int | None]:
        """Chat and parent of a message that is there and not deleted."""
        row = db.execute("SELECT chat_id, parent_id FROM messages WHERE id = ? AND deleted IS NULL", (message_id,)).fetchone()
        if row is None:
            raise NotFound(f"message {message_id} is not there; it may have been deleted in another window")
        return row[0], row[1]

    def _show(self, db: sqlite3.Connection, chat_id: int, leaf_id: int | None) -> None:
        db.execute("UPDATE chats SET leaf_id = ?, shows = shows + 1 WHERE id = ?", (leaf_id, chat_id))
        db.execute("UPDATE messages SET shown = (SELECT shows FROM chats WHERE id = ?) WHERE id = ?", (chat_id, leaf_id))

    def _last_left(self, db: sqlite3.Connection, chat_id: int, message_id: int) -> int | None:
        """The message, or the nearest above it that is not deleted."""
        left: int | None = db.execute(
            f"{_UPWARDS} SELECT max(m.id) FROM up JOIN messages m ON m.id = up.id WHERE m.deleted IS NULL AND m.chat_id = ?",
            (message_id, chat_id),
        ).fetchone()[0]
        return left

    def _last_shown_below(self, db: sqlite3.Connection, message_id: int) -> int:
        """The message itself if nothing below it is left."""
        leaf: int = db.execute(
            f"{_BELOW} SELECT m.id FROM below JOIN messages m ON m.id = below.id WHERE m.deleted IS NULL"
            " ORDER BY m.shown DESC, m.id DESC LIMIT 1",
            (message_id,),
        ).fetchone()[0]
        return leaf

    def _latest(self, db: sqlite3.Connection, leaves: list[int]) -> int:
        return max(leaves, key=lambda leaf: db.execute("SELECT shown, id FROM messages WHERE id = ?", (leaf,)).fetchone()[:])
