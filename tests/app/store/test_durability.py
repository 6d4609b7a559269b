"""What happens to the store when processes die, windows meet, and disks refuse. With real processes and real disks."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.chat.conversation import OriginSpan
from app.settings import ChatSettings
from app.store import ChatStore, StoreError

ROOT = Path(__file__).resolve().parents[3]
PRELUDE = """
import sys
from pathlib import Path
from app.settings import ChatSettings
from app.store import ChatStore
store = ChatStore.open(Path(sys.argv[1]))
"""


def start(script: str, *arguments: str) -> subprocess.Popen[str]:
    """Another process of this program's, running `script` on the store named by the first argument."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + script, *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


def test_two_windows_write_at_once_and_nothing_is_lost(path: Path) -> None:
    script = """
chat = store.new_chat(ChatSettings(), sys.argv[2]).id
parent = None
for number in range(60):
    parent = store.add_message(chat, parent, "user", f"{sys.argv[2]} {number}").id
    reply = store.start_reply(chat, parent)
    store.grow_reply(reply.id, "text", ())
    store.finish_reply(reply.id, "text", (), "complete", None)
"""
    windows = [start(script, str(path), name) for name in ("left", "right", "third")]
    assert [window.wait(60) for window in windows] == [0, 0, 0]
    store = ChatStore.open(path)
    assert {(chat.title, chat.messages) for chat in store.chats()} == {("left", 120), ("right", 120), ("third", 120)}
    for window in windows:
        assert window.stdout is not None
        window.stdout.close()


def test_a_killed_writer_leaves_what_it_wrote_and_the_next_open_says_so(path: Path) -> None:
    script = """
chat = store.new_chat(ChatSettings()).id
question = store.add_message(chat, None, "user", "question")
reply = store.start_reply(chat, question.id)
text = ""
while True:
    text += "word "
    store.grow_reply(reply.id, text, ())
    print(text, flush=True)
"""
    writer = start(script, str(path))
    assert writer.stdout is not None
    written = [writer.stdout.readline().strip("\n") for _ in range(20)][-1]
    store = ChatStore.open(path)
    assert store.path(1)[-1].state == "streaming"  # its writer lives: none of our business
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    store = ChatStore.open(path)
    question, reply = store.path(1)
    assert question.text == "question"
    assert reply.state == "interrupted"
    assert reply.text.startswith(written)
    assert [hit.message_id for hit in store.search("word")] == [reply.id]


def test_a_reply_that_was_given_up_too_early_goes_on(store: ChatStore, chat: int) -> None:
    """A clock that was set makes a living writer look dead."""
    reply = store.start_reply(chat, store.add_message(chat, None, "user", "question").id)
    with store._db.writing() as db:
        db.execute("UPDATE messages SET writer = '1:5.0' WHERE id = ?", (reply.id,))
    store.mark_interrupted()
    assert store.message(reply.id).state == "interrupted"
    store.grow_reply(reply.id, "more", ())
    assert store.message(reply.id).state == "streaming"
    store.mark_interrupted()
    assert store.message(reply.id).state == "streaming"
    store.finish_reply(reply.id, "more and more", [OriginSpan("target", 13)], "complete", None)
    assert len(store.search("more")) == 1


def test_a_reader_never_waits_for_a_writer(store: ChatStore, chat: int, path: Path) -> None:
    other = ChatStore.open(path)
    with store._db.writing() as db:
        db.execute("UPDATE chats SET title = 'half done'")
        assert other.chat(chat).title == ""
    assert other.chat(chat).title == "half done"
    settings = {name: other._db.rows(f"PRAGMA {name}")[0][0] for name in ("journal_mode", "synchronous", "busy_timeout")}
    assert settings == {"journal_mode": "wal", "synchronous": 1, "busy_timeout": 5000}


def test_several_threads_share_a_store(store: ChatStore, chat: int) -> None:
    def work() -> None:
        for number in range(40):
            store.add_message(chat, None, "user", f"text {number}")
            store.search("text")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.tree(chat)) == 160


def test_files_are_private(path: Path) -> None:
    old = os.umask(0)
    try:
        store = ChatStore.open(path)
        store.new_chat(ChatSettings())
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        store.close()
        path.chmod(0o644)
        ChatStore.open(path).close()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(old)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield disk
    subprocess.run(["umount", "-l", disk], check=False)


def fill(store: ChatStore, chat: int) -> tuple[str, int]:
    """Write until the disk is full; the error's text, and how many messages were taken."""
    for count in range(10_000):
        try:
            store.add_message(chat, None, "user", f"{count} " + "filling " * 100)
        except StoreError as error:
            return str(error), count
    raise AssertionError("the disk never was full")


def test_a_full_disk_is_told_and_the_chat_goes_on_in_memory(small_disk: Path) -> None:
    path = small_disk / "chats.db"
    store = ChatStore.open(path)
    chat = store.new_chat(ChatSettings(), "kept").id
    message, count = fill(store, chat)
    assert message == f"{path} cannot be written: the disk is full"
    assert len(store.tree(chat)) == count  # nothing of what was there is lost
    memory = store.to_memory()
    assert not memory.persistent
    added = memory.add_message(chat, None, "user", "goes on")
    assert len(memory.tree(chat)) == count + 1
    assert [hit.message_id for hit in memory.search("goes on")] == [added.id]
    store.close()
    with suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(b"x" * 4096):
            pass
    assert len(ChatStore.copy_of(path).tree(chat)) == count


def test_a_disk_that_is_full_from_the_start_is_told(small_disk: Path) -> None:
    with suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as ballast:
        while ballast.write(b"x" * 4096):
            pass
    with pytest.raises(StoreError, match=r"disk is full|No space left"):
        ChatStore.open(small_disk / "home" / "chats.db")


def test_a_database_that_may_not_grow_is_told(store: ChatStore, chat: int, path: Path) -> None:
    """The same without the right to mount anything."""
    store._db._connection.execute("PRAGMA max_page_count = 100")
    message, count = fill(store, chat)
    assert message == f"{path} cannot be written: the disk is full"
    assert len(store.to_memory().tree(chat)) == count


def test_a_read_only_disk_is_told_and_what_is_there_can_be_read(small_disk: Path) -> None:
    path = small_disk / "home" / "chats.db"
    store = ChatStore.open(path)
    chat = store.new_chat(ChatSettings(), "kept").id
    store.add_message(chat, None, "user", "text")
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(StoreError, match="cannot be written: Read-only file system"):
        ChatStore.open(path)
    memory = ChatStore.copy_of(path)
    assert [message.text for message in memory.path(chat)] == ["text"]
    with pytest.raises(StoreError, match="Read-only"):
        ChatStore.open(small_disk / "new" / "chats.db")
    assert ChatStore.copy_of(small_disk / "new" / "chats.db").chats() == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="cannot be written: Permission denied"):
        ChatStore.open(tmp_path / "chats.db")


def test_a_store_that_another_window_has_open_is_copied_with_its_latest_words(store: ChatStore, chat: int, path: Path) -> None:
    store.add_message(chat, None, "user", "only in the log so far")
    assert len(ChatStore.copy_of(path).search("in the log")) == 1


def test_a_file_that_is_no_database_is_left_as_it_is(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"this is not a database" * 100)
    with pytest.raises(StoreError, match="is damaged and was left as it is; move it away to start with an empty one"):
        ChatStore.open(path)
    assert path.read_bytes() == b"this is not a database" * 100
    assert ChatStore.copy_of(path).chats() == []


def test_the_copy_made_before_an_upgrade_is_named_when_the_store_is_damaged(path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"nonsense" * 1000)
    backup = path.with_name("chats.schema1.backup.db")
    backup.touch()
    with pytest.raises(StoreError) as told:
        ChatStore.open(path)
    assert str(backup) in str(told.value)
    assert "\n" not in str(told.value)


def test_a_writer_that_stops_in_the_middle_holds_others_up_only_so_long(
    store: ChatStore, chat: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.store.database.BUSY_SECONDS", 0.05)
    other = ChatStore.open(path)
    with store._db.writing(), pytest.raises(StoreError, match="held by another program"):
        other.rename(chat, "x")
    other.rename(chat, "y")
    assert store.chat(chat).title == "y"


def smashed(path: Path) -> tuple[int, int]:
    """A store at `path` with the pages overwritten that held the fifteenth chat; how many chats and messages it had."""
    store = ChatStore.open(path)
    for number in range(30):
        chat = store.new_chat(ChatSettings(), f"chat {number}").id
        parent = None
        for at in range(20):
            parent = store.add_message(chat, parent, "user", f"text {number} {at} " + "word " * 100).id
        store.set_tags(chat, ["tag"])
    store.close()
    content = bytearray(path.read_bytes())
    for found in list(re.finditer(rb"text 15 \d+ word", content)):
        page = found.start() // 4096 * 4096
        content[page : page + 4096] = b"\xff" * 4096
    path.write_bytes(content)
    return 30, 600


def test_of_a_damaged_file_all_that_can_be_read_goes_on(path: Path) -> None:
    chats, messages = smashed(path)
    before = path.read_bytes()
    rescued = ChatStore.copy_of(path)
    found = [message for chat in rescued.chats() for message in rescued.tree(chat.id)]
    assert len(rescued.chats()) == chats
    assert messages // 2 < len(found) < messages
    assert all(message.text.startswith("text ") for message in found)
    assert all(rescued.path(chat.id) for chat in rescued.chats() if chat.messages)
    assert rescued.search("word", limit=10)
    assert path.read_bytes() == before


def test_damage_that_shows_only_later_is_told_and_the_rest_goes_on(path: Path) -> None:
    smashed(path)
    store = ChatStore.open(path)  # what is read for opening is whole
    with pytest.raises(StoreError, match="is damaged and was left as it is"):
        store.tree(16)
    memory = store.to_memory()
    chat = memory.chats()[0].id
    memory.add_message(chat, memory.path(chat)[-1].id, "user", "goes on")
    assert memory.path(chat)[-1].text == "goes on"
