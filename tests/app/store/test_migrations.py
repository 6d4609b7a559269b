from __future__ import annotations

import sqlite3
import stat
import threading
from contextlib import closing
from pathlib import Path

import pytest

from app.chat.conversation import Attachment, OriginSpan
from app.store import ChatStore, StoreError
from app.store.migrations import MIGRATIONS, backup_path

SCHEMAS = Path(__file__).parent / "schemas"
OLD = range(1, len(MIGRATIONS))


def make_old(path: Path, version: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript((SCHEMAS / f"{version}.sql").read_text(encoding="utf-8"))


def schema(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return sorted(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))


@pytest.mark.parametrize("version", OLD)
def test_a_store_of_an_earlier_version_opens_with_all_it_held(path: Path, version: int) -> None:
    make_old(path, version)
    store = ChatStore.open(path)
    chat = store.chat(1)
    question, reply = store.path(1)
    assert (chat.title, chat.pinned, chat.unsent, chat.settings.temperature) == ("Kept", True, "not sent", 0.5)
    assert question.attachments == (Attachment("a.txt", "x", 1),)
    assert (reply.text, reply.state) == ("half an ans", "interrupted")
    assert [hit.message_id for hit in store.search("天気")] == [1]
    assert [hit.message_id for hit in store.search("half an")] == [3]
    store.select(2)
    assert store.path(1)[-1].origins == (OriginSpan("target", 3), OriginSpan("model", 10))
    assert store.totals(1).completion_tokens == 5
    store.set_tags(1, ["new"])
    store.close()
    assert schema(path) == fresh_schema(path.parent / "fresh.db")
    ChatStore.open(path).close()  # and it stays that way


def fresh_schema(path: Path) -> list[tuple[str, str]]:
    ChatStore.open(path).close()
    return schema(path)


@pytest.mark.parametrize("version", OLD)
def test_released_steps_are_never_changed(path: Path, version: int) -> None:
    make_old(path, version)
    again = path.with_name("again.db")
    with closing(sqlite3.connect(again, isolation_level=None)) as connection:
        for step in MIGRATIONS[:version]:
            for statement in step:
                connection.execute(statement)
    assert schema(path) == schema(again)


@pytest.mark.parametrize("version", OLD)
def test_a_copy_is_made_first_and_it_is_private(path: Path, version: int) -> None:
    make_old(path, version)
    before = schema(path)
    ChatStore.open(path).close()
    copy = backup_path(path, version)
    assert schema(copy) == before
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (3,)
    assert not list(path.parent.glob("*.part"))


def test_a_new_store_needs_no_copy(path: Path) -> None:
    ChatStore.open(path).close()
    assert not list(path.parent.glob("*backup*"))


def test_a_step_that_fails_leaves_the_old_schema(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_old(path, 1)
    before = schema(path)
    monkeypatch.setattr("app.store.migrations.MIGRATIONS", (*MIGRATIONS, ("CREATE TABLE half (x)", "NOT SQL")))
    with pytest.raises(StoreError, match="cannot be used"):
        ChatStore.open(path)
    assert schema(path) == before
    monkeypatch.undo()
    assert ChatStore.open(path).chat(1).title == "Kept"


def test_a_damaged_store_is_not_migrated(path: Path) -> None:
    make_old(path, 1)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE messages SET text = ?", ("long " * 5000,))
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[-8192:] = b"\xff" * 8192
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged and was left as it is"):
        ChatStore.open(path)
    assert path.read_bytes()[-8192:] == b"\xff" * 8192
    assert not list(path.parent.glob("*backup*"))


def test_a_store_of_a_later_version_is_left_alone(path: Path) -> None:
    ChatStore.open(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    with pytest.raises(StoreError, match="newer paceline"):
        ChatStore.open(path)


def test_windows_that_open_an_old_store_together_all_get_the_new_one(path: Path) -> None:
    make_old(path, 1)
    stores: list[ChatStore] = []
    threads = [threading.Thread(target=lambda: stores.append(ChatStore.open(path))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [store.chat(1).title for store in stores] == ["Kept"] * 4
