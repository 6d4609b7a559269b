"""Reading a database that cannot be written: on a read-only or full disk, or damaged.

Of a damaged file every row is taken that SQLite can still reach, from both ends of each table. A message whose chat is
lost gets a chat without a name; a branch whose beginning is lost begins later.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from app.store.database import Database
from app.store.errors import StoreError, is_damage
from app.store.migrations import migrate

_TABLES = {"chats": "id", "messages": "id", "chat_tags": "chat_id"}
"""With the column that their rows are ordered by."""


def copy_unopened(path: Path, memory: Database) -> None:
    """The database at `path` into an empty one in memory. Raises StoreError if it cannot be read at all; nothing is
    written beside it.

    SQLite needs to write next to a database in WAL mode even to read it. So a copy is opened elsewhere, its log with it;
    where no disk has room for one, the file by itself, without what the log still holds.
    """
    ways: tuple[Callable[[Path, Database], None], ...] = (_by_copy, _by_file)
    for way in ways:
        try:
            return way(path, memory)
        except (OSError, sqlite3.Error):
            continue
    raise StoreError(f"{path} cannot be read")


def copy_open(source: sqlite3.Connection, memory: Database, *, damaged: bool) -> None:
    """The database behind `source` into an empty one in memory. Raises sqlite3.Error, StoreError."""
    if damaged:
        _salvage(source, memory)
    else:
        memory.read_from(source)


def _by_copy(path: Path, memory: Database) -> None:
    with tempfile.TemporaryDirectory(prefix="paceline-") as folder:
        copy = Path(folder) / path.name
        for suffix in ("", "-wal"):
            if (source := path.with_name(path.name + suffix)).exists() or not suffix:
                shutil.copyfile(source, copy.with_name(copy.name + suffix))
        _read(copy.as_uri(), memory)


def _by_file(path: Path, memory: Database) -> None:
    _read(path.absolute().as_uri() + "?immutable=1", memory)


def _read(uri: str, memory: Database) -> None:
    with closing(sqlite3.connect(uri, uri=True)) as source:
        copy_open(source, memory, damaged=not _is_whole(source))


def _is_whole(source: sqlite3.Connection) -> bool:
    try:
        return bool(source.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.Error as error:
        if is_damage(error):
            return False
        raise


def _salvage(source: sqlite3.Connection, memory: Database) -> None:
    migrate(memory)
    with memory.writing() as db:
        db.execute("PRAGMA defer_foreign_keys = ON")  # until the lost chats are replaced
        for table, key in _TABLES.items():
            ours = {row[1] for row in db.execute(f"PRAGMA table_info({table})")}
            columns = [row[1] for row in source.execute(f"PRAGMA table_info({table})") if row[1] in ours]
            insert = f"INSERT OR IGNORE INTO {table}({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
            for order in ("ASC", "DESC"):
                db.executemany(insert, _rows(source, f"SELECT {', '.join(columns)} FROM {table} ORDER BY {key} {order}"))
        db.execute(
            "INSERT OR IGNORE INTO chats(id, created, updated) SELECT chat_id, min(created), max(created) FROM messages GROUP BY chat_id"
        )
        db.execute("DELETE FROM chat_tags WHERE chat_id NOT IN (SELECT id FROM chats)")
        db.execute(
            "UPDATE chats SET leaf_id = (SELECT max(id) FROM messages WHERE chat_id = chats.id AND deleted IS NULL)"
            " WHERE leaf_id IS NULL OR leaf_id NOT IN (SELECT id FROM messages)"
        )


def _rows(source: sqlite3.Connection, query: str) -> Iterator[tuple[object, ...]]:
    """The rows up to the first that cannot be read."""
    with suppress(sqlite3.DatabaseError):
        yield from map(tuple, source.execute(query))
