"""Reading a database that cannot be opened for writing: on a read-only or full disk, or damaged."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from app.store.database import Database
from app.store.errors import StoreError


def copy_unopened(path: Path, memory: Database) -> None:
    """The database at `path` into an empty one in memory. Raises StoreError if it is damaged or not there; nothing is
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
        if source.execute("PRAGMA quick_check(1)").fetchone()[0] != "ok":
            raise sqlite3.DatabaseError("damaged")
        memory.read_from(source)
