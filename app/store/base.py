"""What the parts of the store share: the database, and the check that a chat is still there."""

from __future__ import annotations

import sqlite3

from app.store.database import Database
from app.store.errors import NotFound


class Part:
    """A group of the store's operations over its database."""

    def __init__(self, database: Database) -> None:
        self._db = database

    def _require(self, db: sqlite3.Connection, chat_id: int) -> None:
        """Raise NotFound unless the chat exists, deleted or not."""
        if db.execute("SELECT 1 FROM chats WHERE id = ?", (chat_id,)).fetchone() is None:
            raise NotFound(f"chat {chat_id} is not there any more; it was deleted for good")
