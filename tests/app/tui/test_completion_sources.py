from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.tui.widgets.completion_sources import MOST, MOST_ENTRIES, Word, commands, paths, word_at


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("README.md", "src/app.py", "src/deep/prompt_view.py", "my notes.txt", ".hidden", "node_modules/prompt.js", "readable.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


def labels(typed: str, folder: Path) -> list[str]:
    return [candidate.label for candidate in paths(typed, folder)]


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("/re", Word("command", "re", 0)),
        ("/", Word("command", "", 0)),
        ("a /re", None),
        ("/re x", None),
        ("see @src/a", Word("path", "src/a", 4)),
        ("@", Word("path", "", 0)),
        ('in @"my no', Word("path", "my no", 3)),
        ("me@home", None),
        ("see @a b", None),
        ("(@a", Word("path", "a", 1)),
    ],
)
def test_the_word_at_the_cursor(line: str, word: Word | None) -> None:
    assert word_at(line, len(line), first_line=True) == word


def test_commands_are_for_the_first_line_and_the_word_ends_at_the_cursor() -> None:
    assert word_at("/re", 3, first_line=False) is None
    assert word_at("@src/app", 4, first_line=True) == Word("path", "src", 0)


def test_commands_say_whether_something_goes_on() -> None:
    found = {candidate.label: candidate for candidate in (*commands("re"), *commands("im"))}
    assert (found["/rename [title]"].insert, found["/rename [title]"].goes_on) == ("/rename ", False)
    assert (found["/import <file>"].insert, found["/import <file>"].goes_on) == ("/import ", True)
    assert (found["/reload"].insert, found["/reload"].goes_on) == ("/reload", False)


def test_a_folders_entries_come_first_those_that_begin_so_before_the_others(folder: Path) -> None:
    assert labels("", folder) == ["node_modules/", "src/", "README.md", "my notes.txt", "readable.txt"]
    assert labels("read", folder) == ["README.md", "readable.txt"]
    assert labels("src/", folder) == ["src/deep/", "src/app.py"]


def test_hidden_files_are_offered_when_a_dot_is_typed(folder: Path) -> None:
    assert labels(".h", folder) == [".hidden"]


def test_a_name_is_found_deeper_down_but_not_in_folders_of_other_peoples_code(folder: Path) -> None:
    assert labels("prompt", folder) == ["src/deep/prompt_view.py"]


def test_spaces_are_quoted_and_a_folder_goes_on(folder: Path) -> None:
    (folder / "a b").mkdir()
    (folder / "a b" / "c").write_text("x")
    assert [c.insert for c in paths("my", folder)] == ['@"my notes.txt" ']
    first = paths("a b", folder)[0]
    assert (first.insert, first.goes_on) == ('@"a b/', True)
    assert [c.insert for c in paths("a b/", folder)] == ['@"a b/c" ']


def test_home_absolute_and_parent_folders(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    assert labels("~/read", Path("/")) == ["~/README.md", "~/readable.txt"]
    assert f"{folder}/src/" in labels(f"{folder}/s", Path("/"))
    assert "../README.md" in labels("../READ", folder / "src")


def test_what_cannot_be_read_offers_nothing(folder: Path) -> None:
    assert labels("nothing/there", folder) == []
    assert labels("README.md/", folder) == []
    assert labels("~no-such-user/x", folder) == []


def test_a_name_that_could_upset_the_terminal_is_not_offered(folder: Path) -> None:
    (folder / "bad\x1b[31mname").write_text("x")
    (folder / os.fsdecode(b"bad\xff")).write_text("x")
    assert labels("bad", folder) == []


def test_a_huge_folder_is_read_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        (tmp_path / f"f{number:04}").touch()
    monkeypatch.setattr("app.tui.widgets.completion_sources.MOST_ENTRIES", 100)
    assert len(paths("f", tmp_path)) == MOST < MOST_ENTRIES
