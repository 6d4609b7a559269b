"""What the store can refuse, and SQLite's complaints put into one line that says what to do."""

from __future__ import annotations

import os
import shutil
import sqlite3
from pathlib import Path

from app.errors import AppError

_ALMOST_NOTHING = 1_000_000
"""Bytes. Below it SQLite's "disk I/O error" means a full disk: it could not grow its files."""


class StoreError(AppError):
    """The store cannot be read or written; the message is one line. What was in the file before is still there."""


class NotFound(StoreError):
    """The chat or message is not in the store (any more): another window may have deleted it for good."""


def is_damage(error: sqlite3.Error) -> bool:
    """Whether the file itself is broken."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def explain(error: sqlite3.Error, path: Path | None) -> StoreError:
    """`error`, which happened with the database at `path` (None: in memory), as a StoreError."""
    where = str(path) if path is not None else "memory"
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    match code:
        case sqlite3.SQLITE_FULL:
            return StoreError(_full(where))
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_PERM:
            return StoreError(f"{where} cannot be written: it or its folder is read-only")
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StoreError(f"{where} is held by another program; try again when that is done")
        case _ if is_damage(error):
            return StoreError(damaged(where, path))
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN if path is not None:
            if not os.access(path.parent, os.W_OK | os.X_OK):
                return StoreError(f"{where} cannot be written: its folder is read-only")
            if _free_bytes(path.parent) < _ALMOST_NOTHING:
                return StoreError(_full(where))
    return StoreError(f"{where} cannot be used: {error}")


def damaged(where: str, path: Path | None) -> str:
    """Nothing is moved or overwritten: a damaged file can often be recovered, a helpful rename cannot be foreseen."""
    backups = sorted(path.parent.glob(f"{path.stem}.schema*.backup.db")) if path is not None else []
    from_backup = f"; the copy made before the last upgrade is {backups[-1]}" if backups else ""
    return f"{where} is damaged and was left as it is; move it away to start with an empty one{from_backup}"


def _full(where: str) -> str:
    return f"{where} cannot be written: the disk is full"


def _free_bytes(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return _ALMOST_NOTHING
