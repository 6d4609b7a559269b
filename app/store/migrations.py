"""The schema, as steps that are only ever added to: a database made by any earlier version goes through the missing ones.

Before an older database is changed it is checked and copied to `<name>.schema<N>.backup.db` beside it; all missing steps
are one transaction, so a failure leaves the old schema. `PRAGMA user_version` counts the steps taken. Two windows that
open an old database together: the second waits for the first and finds nothing left to do.
"""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from app.store.database import Database
from app.store.errors import StoreError, damaged, explain

_TABLES = (
    """CREATE TABLE chats (
        id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used twice: other files are named after it
        title TEXT NOT NULL DEFAULT '',
        created REAL NOT NULL,
        updated REAL NOT NULL,
        pinned INTEGER NOT NULL DEFAULT 0,
        deleted REAL,  -- when, if it waits to be purged
        leaf_id INTEGER,  -- the last message of the branch shown
        shows INTEGER NOT NULL DEFAULT 0,  -- how often the leaf has changed
        settings TEXT NOT NULL DEFAULT '{}',
        unsent TEXT NOT NULL DEFAULT ''
    )""",
    # What walking the tree reads comes before the texts, which may be long and lie on pages of their own.
    """CREATE TABLE messages (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        chat_id INTEGER NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
        parent_id INTEGER,
        role TEXT NOT NULL,
        kind TEXT NOT NULL DEFAULT 'message',
        state TEXT NOT NULL DEFAULT 'complete',
        created REAL NOT NULL,
        shown INTEGER NOT NULL DEFAULT 0,  -- the chat's `shows` when this was last its leaf
        deleted REAL,
        deleted_with INTEGER,  -- the message whose deletion took this one along
        writer TEXT,  -- the process that is writing it; see app/store/writer.py
        text TEXT NOT NULL,
        attachments TEXT NOT NULL DEFAULT '[]',
        origins TEXT NOT NULL DEFAULT '',
        report TEXT
    )""",
    "CREATE INDEX messages_of_chat ON messages(chat_id, parent_id, deleted)",
    "CREATE INDEX messages_streaming ON messages(id) WHERE state = 'streaming'",
    "CREATE INDEX chats_listed ON chats(pinned, updated) WHERE deleted IS NULL",
)

# Trigrams find any run of three or more characters in any script, which word-wise tokens do not (CJK has no spaces).
# A reply enters the index when it is finished, not at every piece it grows by.
_FULL_TEXT = (
    "CREATE VIRTUAL TABLE messages_text USING fts5(text, content='messages', content_rowid='id', tokenize='trigram')",
    "INSERT INTO messages_text(rowid, text) SELECT id, text FROM messages WHERE state <> 'streaming'",
    """CREATE TRIGGER messages_text_added AFTER INSERT ON messages WHEN new.state <> 'streaming' BEGIN
        INSERT INTO messages_text(rowid, text) VALUES (new.id, new.text);
    END""",
    """CREATE TRIGGER messages_text_changed AFTER UPDATE OF text, state ON messages BEGIN
        INSERT INTO messages_text(messages_text, rowid, text) SELECT 'delete', old.id, old.text WHERE old.state <> 'streaming';
        INSERT INTO messages_text(rowid, text) SELECT new.id, new.text WHERE new.state <> 'streaming';
    END""",
    """CREATE TRIGGER messages_text_gone AFTER DELETE ON messages WHEN old.state <> 'streaming' BEGIN
        INSERT INTO messages_text(messages_text, rowid, text) VALUES ('delete', old.id, old.text);
    END""",
)

_TAGS_AND_PROMPTS = (
    """CREATE TABLE chat_tags (
        chat_id INTEGER NOT NULL REFERENCES chats(id) ON DELETE CASCADE,
        tag TEXT NOT NULL,
        PRIMARY KEY (chat_id, tag)
    ) WITHOUT ROWID""",
    "CREATE INDEX chat_tags_by_tag ON chat_tags(tag)",
    "CREATE INDEX messages_prompts ON messages(created) WHERE role = 'user'",
)

MIGRATIONS: tuple[tuple[str, ...], ...] = (_TABLES, _FULL_TEXT, _TAGS_AND_PROMPTS)
"""Step N takes a database from schema N to N + 1. Append; never change one that was released."""


def migrate(database: Database) -> None:
    """Bring `database` to the newest schema. Raises StoreError; the database is as it was then."""
    if _version(database) == len(MIGRATIONS):
        return
    with database.writing() as connection:
        have = int(connection.execute("PRAGMA user_version").fetchone()[0])  # another window may have been faster
        if have > len(MIGRATIONS):
            raise StoreError(f"{database.path} was written by a newer paceline; update this one to open it")
        if have and database.path is not None:
            _check_and_back_up(database.path, have)
        for step in MIGRATIONS[have:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def backup_path(path: Path, version: int) -> Path:
    """Where the copy of the database at `path` goes before it leaves schema `version`."""
    return path.with_name(f"{path.stem}.schema{version}.backup.db")


def _version(database: Database) -> int:
    row = database.row("PRAGMA user_version")
    return int(row[0]) if row else 0


def _check_and_back_up(path: Path, version: int) -> None:
    """By a second connection, which sees the last committed state. Raises StoreError if the database is damaged or
    cannot be copied."""
    final = backup_path(path, version)
    unfinished = final.with_suffix(".part")
    try:
        with closing(sqlite3.connect(path)) as source:
            problem = source.execute("PRAGMA integrity_check(1)").fetchone()[0]
            if problem != "ok":
                raise StoreError(damaged(str(path), path))
            os.close(os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
            with closing(sqlite3.connect(unfinished)) as copy:
                source.backup(copy)
        os.replace(unfinished, final)
    except (OSError, sqlite3.Error) as error:
        with suppress(OSError):
            unfinished.unlink()
        reason = str(explain(error, final)) if isinstance(error, sqlite3.Error) else f"{final}: {error.strerror}"
        raise StoreError(f"the chats were not upgraded, as no copy of them could be made first: {reason}") from error
