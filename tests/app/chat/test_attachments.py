from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.chat.attachments import (
    LIMIT_BYTES,
    Refused,
    compose_message,
    mentions,
    pasted_name,
    pasted_names,
    quoted,
    read,
    too_long,
    unfound,
)
from app.chat.conversation import Attachment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x = 1\n")
    (tmp_path / "my notes.txt").write_text("note")
    (tmp_path / "a.b").write_text("1")
    return tmp_path


def named(text: str, folder: Path) -> list[str]:
    return [mention.typed for mention in mentions(text, folder)]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("look at @src/a.py please", ["src/a.py"]),
        ("@src/a.py", ["src/a.py"]),
        ("see @src/a.py, and (@a.b).", ["src/a.py", "a.b"]),
        ('what is in @"my notes.txt"?', ["my notes.txt"]),
        ("@src/a.py twice @src/a.py", ["src/a.py"]),
        ("mail me@src/a.py", []),
        ("@dataclass and @property", []),
        ("@ src/a.py", []),
        ("@/no/such/file @~nobody-here/x @" + "x" * 5000, []),
        ("@src", ["src"]),
    ],
)
def test_what_names_a_file_and_what_does_not(folder: Path, text: str, names: list[str]) -> None:
    assert named(text, folder) == names


def test_absolute_and_home_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder))
    absolute = str(folder / "a.b")
    assert named(f"@{absolute} and @~/src/a.py", Path("/")) == [absolute, "~/src/a.py"]


def test_a_path_survives_being_quoted(folder: Path) -> None:
    for name in ("src/a.py", "my notes.txt"):
        assert named(f"see {quoted(name)} now", folder) == [name]


def test_a_text_file_is_read(folder: Path) -> None:
    (mention,) = mentions("@src/a.py", folder)
    assert read(mention) == Attachment("src/a.py", "x = 1\n")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"GGUF\0", "thing is binary, not text (byte 4 is zero)"),
        (b"caf\xe9", "thing is not UTF-8 text (byte 3 does not decode)"),
        (b"a" * (LIMIT_BYTES + 1), "thing is larger than 4.0 MB, the most that can be attached"),
    ],
)
def test_what_is_no_text_is_refused_in_one_line(folder: Path, content: bytes, reason: str) -> None:
    (folder / "thing").write_bytes(content)
    assert read(mentions("@thing", folder)[0]) == Refused("thing", reason)


def test_folders_pipes_and_closed_files_are_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    folder_refused, pipe = (read(mention) for mention in mentions("@src @pipe", folder))
    assert folder_refused == Refused("src", "src is a directory; give the files in it one by one")
    assert pipe == Refused("pipe", "pipe is a device or a pipe, not a file")


def test_a_file_that_vanishes_is_refused(folder: Path) -> None:
    (mention,) = mentions("@a.b", folder)
    (folder / "a.b").unlink()
    assert isinstance(read(mention), Refused)


def test_what_does_not_fit_is_told_in_tokens() -> None:
    small, big = Attachment("a", "", 10), Attachment("b", "", 52_310)
    assert too_long([small], 4096) is None
    assert too_long([big], None) is None
    assert too_long([big], 4096) == "b has 52,310 tokens; the model reads 4,096 at once"
    assert too_long([small, big], 4096) == "2 attachments have 52,320 tokens; the model reads 4,096 at once"
    assert too_long([Attachment("a", "not counted"), big], 60_000) is None


def test_the_model_reads_files_first_and_the_question_last() -> None:
    message = compose_message("What is @a.py?", [Attachment("a.py", "x\n"), Attachment(pasted_name(1, "y\nz"), "y\nz")])
    assert message == "File a.py:\n```\nx\n```\n\nPasted text 1, 2 lines:\n```\ny\nz\n```\n\nWhat is @a.py?"


def test_a_paste_alone_is_the_message_itself() -> None:
    text = "line\n" * 500
    name = pasted_name(1, text)
    assert compose_message(f" [{name}] ", [Attachment(name, text)]) == text


def test_pasted_texts_are_named_by_their_size() -> None:
    assert pasted_name(2, "a\nb\n") == "Pasted text 2, 2 lines"
    assert pasted_name(1, "x" * 5000) == "Pasted text 1, 5,000 characters"
    text = f"see [{pasted_name(1, 'x' * 5000)}] and [Pasted text 9] and [{pasted_name(2, 'a' + chr(10) + 'b')}]"
    assert pasted_names(text) == ["Pasted text 1, 5,000 characters", "Pasted text 2, 2 lines"]


def test_what_is_named_like_a_file_and_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "here.py").write_text("x")
    text = 'see @here.py, @gone.py. @"my notes" @src/gone @gone.py (@someone) a@b.com @property'
    assert unfound(text, tmp_path) == ["gone.py", "my notes", "src/gone"]
