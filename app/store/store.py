"""The store of chats: every operation on one object, over one database file or in memory."""

from __future__ import annotations

from pathlib import Path

from app.store.chats import Chats
from app.store.database import Database
from app.store.errors import StoreError
from app.store.messages import Messages
from app.store.migrations import migrate
from app.store.rescue import copy_open, copy_unopened
from app.store.search import Search
from app.store.totals import Totals


class ChatStore(Chats, Messages, Search, Totals):
    """Chats, their messages, search and totals. Every method raises StoreError (one line) when the database fails, and
    then nothing of that call was written; whoever wants to go on takes `to_memory()`. Safe from several threads, and
    several processes may have the same file open."""

    @classmethod
    def open(cls, path: Path) -> ChatStore:
        """The store at `path`, made if there is none, brought to the newest schema (see migrations) and private to the
        user. Replies that another process was writing when it died are marked `interrupted`. Raises StoreError; a
        damaged file is left as it is."""
        database = Database.open(path)
        try:
            migrate(database)
            store = cls(database)
            store.mark_interrupted()
        except BaseException:
            database.close()
            raise
        return store

    @classmethod
    def in_memory(cls) -> ChatStore:
        """An empty store that ends with the program."""
        database = Database.in_memory()
        migrate(database)
        return cls(database)

    @classmethod
    def copy_of(cls, path: Path) -> ChatStore:
        """A store in memory with what can be read of the file at `path`, for going on when `open` has raised; empty if
        nothing can. The file is not touched."""
        memory = Database.in_memory()
        try:
            copy_unopened(path, memory)
            migrate(memory)
        except StoreError:
            memory.close()
            return cls.in_memory()
        store = cls(memory)
        store.mark_interrupted()
        return store

    @property
    def persistent(self) -> bool:
        """False: nothing of it outlives the program."""
        return self._db.path is not None

    def to_memory(self) -> ChatStore:
        """The same chats under the same ids in a store in memory, for going on when the disk takes nothing more. Of a
        damaged file: what can be read of it, which may be nothing."""
        memory = Database.in_memory()
        try:
            with self._db.reading() as source:
                copy_open(source, memory, damaged=self._db.damaged)
        except StoreError:
            memory.close()
            return ChatStore.in_memory()
        return ChatStore(memory)

    def close(self) -> None:
        """Idempotent."""
        self._db.close()
