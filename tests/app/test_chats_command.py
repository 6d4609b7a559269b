"""`paceline chats` as a user and a pipe meet it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.paths import Paths
from app.settings import ChatSettings
from app.store import ChatStore
from app.store.migrations import backup_path

Out = pytest.CaptureFixture[str]


@pytest.fixture
def chat(home: Path) -> int:
    """One chat in the user's store."""
    store = ChatStore.open(Paths.find().chat_store)
    made = store.new_chat(ChatSettings(), "Cats \x1b[31m[b]").id
    store.add_message(made, None, "user", "Tell me of cats \x1b[31mplease")
    store.pin(made, True)
    store.set_tags(made, ["pets"])
    store.close()
    return made


def run(out: Out, *arguments: object) -> tuple[int, str, str]:
    code = main(["chats", *map(str, arguments)])
    said = out.readouterr()
    return code, said.out, said.err


def as_json(out: Out, *arguments: object) -> Any:
    code, text, _ = run(out, *arguments, "--json")
    assert code == 0
    return json.loads(text)


def test_list(chat: int, capsys: Out) -> None:
    (entry,) = as_json(capsys, "list")
    assert (entry["id"], entry["pinned"], entry["tags"], entry["messages"]) == (chat, True, ["pets"], 1)
    code, text, _ = run(capsys, "list", "--tag", "pets")
    assert code == 0
    assert "Cats [b]" in text
    assert "pinned #pets" in text
    assert "\x1b" not in text
    assert run(capsys, "list", "--tag", "none") == (0, "", "paceline: no chats with the tag none\n")


def test_an_empty_store_is_no_error(home: Path, capsys: Out) -> None:
    assert run(capsys, "list") == (0, "", "paceline: no chats yet\n")
    assert as_json(capsys, "list") == []


def test_no_chats_make_no_export(home: Path, capsys: Out, tmp_path: Path) -> None:
    target = tmp_path / "all.json"
    for args in ((), ("-o", target)):
        assert run(capsys, "export", "--all", *args) == (1, "", "paceline: there are no chats to export\n")
    assert not target.exists()


def test_search(chat: int, capsys: Out) -> None:
    (hit,) = as_json(capsys, "search", "of", "CAT")
    assert (hit["chat"], hit["hits"], hit["text"]) == (chat, ["of", "cat"], "Tell me of cats please")
    code, text, _ = run(capsys, "search", "cats")
    assert (code, "Tell me of cats please" in text) == (0, True)
    assert run(capsys, "search", "dogs") == (1, "", "paceline: nothing holds 'dogs'\n")
    assert as_json(capsys, "search", "dogs") == []


def test_export_and_import_again(chat: int, capsys: Out, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, text, _ = run(capsys, "export", chat)
    assert (code, "## You\n\nTell me of cats please\n" in text) == (0, True)
    target = tmp_path / "out.json"
    assert run(capsys, "export", "--all", "-o", target) == (0, "", f"paceline: written to {target}\n")
    assert run(capsys, "import", target) == (0, "", "paceline: 1 chat with 1 message\n")
    assert len(as_json(capsys, "list")) == 2
    assert run(capsys, "export", chat, "-o", target)[0] == 1
    assert run(capsys, "export", chat, "-o", target, "--force")[0] == 0


def test_a_pipe_from_one_home_to_another(chat: int, paceline: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exported = paceline("chats", "export", "--all", "--format", "json")
    monkeypatch.setenv("PACELINE_HOME", str(tmp_path / "other"))
    done = paceline("chats", "import", "-", "--json", stdin=exported.stdout)
    assert (done.returncode, json.loads(done.stdout)["messages"]) == (0, 1)
    assert [entry["tags"] for entry in json.loads(paceline("chats", "list", "--json").stdout)] == [["pets"]]


def test_deleting_can_be_undone(chat: int, capsys: Out) -> None:
    code, _, said = run(capsys, "delete", chat)
    assert (code, said) == (0, f"paceline: deleted: {chat}; `paceline chats delete --undo {chat}` brings them back\n")
    assert as_json(capsys, "list") == []
    assert run(capsys, "delete", chat)[0] == 1
    assert run(capsys, "delete", "--undo", chat)[0] == 0
    assert len(as_json(capsys, "list")) == 1
    assert run(capsys, "delete", "--forever", chat)[0] == 0
    code, _, said = run(capsys, "delete", "--undo", chat)
    assert (code, len(said.splitlines())) == (1, 1)


def test_what_cannot_be_written_can_be_read(home: Path, capsys: Out) -> None:
    """Of an old store beside which there is no place for the copy that has to be made first."""
    path = Paths.find().chat_store
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((Path(__file__).parent / "store/schemas/1.sql").read_text(encoding="utf-8"))
    (backup_path(path, 1) / "in the way").mkdir(parents=True)
    code, text, said = run(capsys, "list")
    assert (code, "Kept" in text) == (0, True)
    assert "no copy of them could be made first" in said
    assert said.endswith("Here is what can be read of it.\n")
    assert run(capsys, "delete", 1)[0] == 1


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["export"], 2), (["export", "1", "--all"], 2), (["export", "99"], 1), (["import", "/none.json"], 1), (["delete", "99"], 1),
        (["delete", "1", "--undo", "--forever"], 2), (["export", "1", "--format", "json", "-o", "x.md"], 2), (["search"], 2),
    ],
)
def test_wrong_calls_are_one_line(chat: int, capsys: Out, arguments: list[str], code: int) -> None:
    given, text, said = run(capsys, *arguments)
    assert (given, text, len(said.splitlines())) == (code, "", 1)


@pytest.mark.parametrize("arguments", [("export", 2**63), ("delete", 2**63), ("list", "--limit", 2**63), ("export", 0)])
def test_a_number_beyond_the_stores_is_wrong_usage(arguments: tuple[object, ...], chat: int, capsys: Out) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert "is not in the range" in err
