from __future__ import annotations

import io
from pathlib import Path

import pytest

from app.errors import AppError
from app.prompt import LIMIT_BYTES, Material, compose, read_file, read_pipe


def test_the_question_comes_last_after_the_fenced_material() -> None:
    text = compose("Review it.", [Material("File a.py", "x = 1\n"), Material("Input", "y")])
    assert text == "File a.py:\n```\nx = 1\n```\n\nInput:\n```\ny\n```\n\nReview it."


def test_a_fence_is_longer_than_any_inside() -> None:
    text = compose("Why?", [Material("File a.md", "```\ncode\n```\n")])
    assert "````\n```\ncode\n```\n````" in text


def test_one_piece_without_a_question_is_the_prompt_itself() -> None:
    assert compose("", [Material("Input", "Say hi.\n")]) == "Say hi.\n"


def test_several_pieces_without_a_question_stay_apart() -> None:
    assert compose("", [Material("File a", "1"), Material("File b", "2")]).count("```") == 4


def test_nothing_piped_is_no_material() -> None:
    assert read_pipe(io.BytesIO(b" \n")) is None


def test_a_byte_order_mark_is_no_text() -> None:
    piped = read_pipe(io.BytesIO(b"\xef\xbb\xbfhi"))
    assert piped is not None
    assert piped.text == "hi"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"GGUF\x03\x00\x00", "is binary, not text (byte 5 is zero)"),
        (b"caf\xe9", "is not UTF-8 text (byte 3 does not decode)"),
        (b"a" * (LIMIT_BYTES + 1), "is larger than 32 MB"),
    ],
)
def test_what_is_no_text_is_refused_by_name(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = tmp_path / "thing.bin"
    path.write_bytes(content)
    with pytest.raises(AppError, match=r"thing\.bin") as refusal:
        read_file(path)
    assert complaint in str(refusal.value)


def test_missing_files_and_directories_are_refused(tmp_path: Path) -> None:
    with pytest.raises(AppError, match="No such file"):
        read_file(tmp_path / "nothing")
    with pytest.raises(AppError, match="is a directory"):
        read_file(tmp_path)
