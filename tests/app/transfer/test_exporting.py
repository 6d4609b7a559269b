from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from app.chat.conversation import Attachment
from app.paths import typed_path
from app.settings import ChatSettings
from app.store import ChatStore, NotFound
from app.transfer import TransferError, export_chats, import_file, save_export, suggested_name


@pytest.fixture
def store() -> ChatStore:
    return ChatStore.in_memory()


@pytest.fixture
def chat(store: ChatStore) -> int:
    made = store.new_chat(ChatSettings(system="Be brief.\nAlways."), "Cats & dogs").id
    question = store.add_message(made, None, "user", "What is\n`this`?", (Attachment("a.md", "```py\nx\n```\n", 3),))
    reply = store.start_reply(made, question.id)
    store.finish_reply(reply.id, "A \x1b]0;evil\x07fence.", (), "cancelled", None)
    return made


def test_markdown_is_the_branch_shown(store: ChatStore, chat: int) -> None:
    title, date, rest = export_chats(store, [chat], "markdown").split("\n\n", 2)
    assert title == "# Cats & dogs"
    assert date.startswith("*20")
    assert rest == (
        "> Be brief.\n> Always.\n\n## You\n\nWhat is\n`this`?\n\n**a.md**\n\n````\n```py\nx\n```\n````\n\n"
        "## Assistant\n\nA fence.\n\n*(stopped)*\n"
    )


def test_a_summary_is_named_as_one(store: ChatStore, chat: int) -> None:
    store.add_message(chat, store.path(chat)[-1].id, "user", "They spoke of cats.", kind="summary")
    assert "## Summary of what was said before\n\nThey spoke of cats.\n" in export_chats(store, [chat], "markdown")


def test_the_name_tells_the_format_and_nothing_is_overwritten(store: ChatStore, chat: int, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    assert save_export(store, [chat], target) == target
    assert import_file(store, target).messages == 2
    with pytest.raises(TransferError, match=r"out\.json is there already"):
        save_export(store, [chat], target)
    assert save_export(store, [chat], target, replace=True) == target
    with pytest.raises(TransferError, match=r"a name that ends in \.md"):
        save_export(store, [chat], tmp_path / "out.txt")
    with pytest.raises(TransferError, match="cannot be written: No such file"):
        save_export(store, [chat], tmp_path / "none" / "out.md")
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_a_folder_gets_a_file_named_after_the_chat(store: ChatStore, chat: int, tmp_path: Path) -> None:
    assert save_export(store, [chat], tmp_path).name == "cats-dogs.md"
    assert save_export(store, [chat], tmp_path).name == "cats-dogs-2.md"
    assert (tmp_path / "cats-dogs-2.md").read_text(encoding="utf-8").startswith("# Cats & dogs\n")


@pytest.mark.parametrize(
    ("title", "name"),
    [("", "chat.md"), ("../../etc/passwd", "etc-passwd.md"), ("a\0b:c*d", "a-b-c-d.md"), ("天気予報", "天気予報.md"), ("..", "chat.md")],
)
def test_a_title_makes_a_harmless_name(title: str, name: str) -> None:
    assert suggested_name(title) == name


def test_a_long_title_makes_a_name_every_file_system_takes(tmp_path: Path) -> None:
    (tmp_path / suggested_name("\U0001d518" * 300)).touch()
    (tmp_path / suggested_name("word " * 300)).touch()


def test_a_file_that_is_not_there_is_one_line(store: ChatStore, tmp_path: Path) -> None:
    with pytest.raises(TransferError, match="cannot be read: No such file or directory"):
        import_file(store, tmp_path / "none.json")
    with pytest.raises(TransferError, match="cannot be read: Is a directory"):
        import_file(store, tmp_path)
    with pytest.raises(TransferError, match="cannot be read: it is a device, not a file"):
        import_file(store, Path(os.devnull))


def test_a_chat_that_is_gone_is_told(store: ChatStore) -> None:
    with pytest.raises(NotFound):
        export_chats(store, [7], "json")


@pytest.mark.parametrize("name", ["x" * 300 + ".md", "no\x00pe.md", "~nobody-of-that-name/x.md"])
def test_a_name_that_no_file_can_have_is_one_line(store: ChatStore, name: str) -> None:
    chat = store.new_chat(ChatSettings())
    with pytest.raises(TransferError, match="cannot be written"):
        save_export(store, [chat.id], typed_path(name))
    with pytest.raises(TransferError, match="cannot be read"):
        import_file(store, typed_path(name))
