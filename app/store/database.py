"""One SQLite connection: how it is opened, its lock, and its transactions.

WAL with a busy timeout, so that several windows read and write at once; synchronous=NORMAL, so that a killed process
loses nothing and a power cut at most the last moments. Every write is one transaction that takes the write lock at its
start: one that only found out later that another window was faster would fail instead of waiting.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from app.store.errors import StoreError, explain, is_damage

BUSY_SECONDS = 5.0
"""How long a write waits for another window's. Transactions here take milliseconds."""
OLDEST_SQLITE = (3, 34, 0)
"""The first with the trigram tokenizer."""
_WAL_BYTES = 16_000_000
"""The log is cut back to this after a checkpoint."""

Params = Sequence[Any] | dict[str, Any]


class Database:
    """A connection that several threads may use. `path` None: in memory."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self.path = path
        self.damaged = False
        """Whether SQLite has said that the file is damaged."""
        self._connection = connection
        self._lock = threading.RLock()
        connection.row_factory = sqlite3.Row
        connection.create_function("fold", 1, _fold, deterministic=True)
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA secure_delete = ON")  # what was deleted for good leaves no trace in the file

    @classmethod
    def open(cls, path: Path) -> Database:
        """The database at `path`, made if there is none, private to the user. Raises StoreError."""
        if sqlite3.sqlite_version_info < OLDEST_SQLITE:
            raise StoreError(f"SQLite {sqlite3.sqlite_version} is too old to keep chats; a Python with SQLite 3.34 or newer is needed")
        _make_private(path)
        try:
            connection = _connect(path)
            try:
                _use_wal(connection)
                connection.execute("PRAGMA synchronous = NORMAL")
                connection.execute(f"PRAGMA journal_size_limit = {_WAL_BYTES}")
                return cls(connection, path)
            except BaseException:
                connection.close()
                raise
        except sqlite3.Error as error:
            raise explain(error, path) from error

    @classmethod
    def in_memory(cls) -> Database:
        return cls(sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False), None)

    def rows(self, sql: str, params: Params = ()) -> list[sqlite3.Row]:
        """All rows of one SELECT. Raises StoreError."""
        try:
            with self._lock:
                return self._connection.execute(sql, params).fetchall()
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def row(self, sql: str, params: Params = ()) -> sqlite3.Row | None:
        """The first row, or None. Raises StoreError."""
        rows = self.rows(sql, params)
        return rows[0] if rows else None

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is in the file afterwards, or, with an error, none. Raises StoreError."""
        with self._lock:
            connection = self._connection
            try:
                connection.execute("BEGIN IMMEDIATE")
                try:
                    yield connection
                    connection.execute("COMMIT")
                except BaseException:
                    if connection.in_transaction:
                        with suppress(sqlite3.Error):  # the first error is the one to tell
                            connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise self._explained(error) from error

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """The connection, for reading by other means than `rows`. Raises StoreError."""
        try:
            with self._lock:
                yield self._connection
        except sqlite3.Error as error:
            raise self._explained(error) from error

    def read_from(self, source: sqlite3.Connection) -> None:
        """Everything of `source` into this database, which is empty. Raises sqlite3.Error."""
        with self._lock:
            source.backup(self._connection)

    def close(self) -> None:
        """Idempotent. A log that cannot be folded in now is folded in by the next open."""
        with self._lock, suppress(sqlite3.Error):
            self._connection.close()

    def _explained(self, error: sqlite3.Error) -> StoreError:
        self.damaged = self.damaged or is_damage(error)
        return explain(error, self.path)


def _connect(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)


def _use_wal(connection: sqlite3.Connection) -> None:
    """Changing to WAL does not wait for locks, so two windows that make the file together need a second try. A file
    system that cannot do WAL stays with what it can do."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            if connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _make_private(path: Path) -> None:
    """The folder as 0700 and the file as 0600; SQLite gives its own two files the same. Raises StoreError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error
    with suppress(OSError):  # somebody else's file that we may write: theirs to protect
        path.chmod(0o600)


def _fold(text: str | None) -> str:
    return "" if text is None else text.casefold()
