from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.bench.prompts import load_prompts
from app.errors import AppError


def write(path: Path, *rows: object) -> Path:
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
    return path


def test_the_first_turn_only_unless_all_are_wanted(tmp_path: Path) -> None:
    path = write(tmp_path / "p.jsonl", {"question_id": 7, "category": "qa", "turns": ["a", "b"]})
    assert [prompt.turns for prompt in load_prompts(path)] == [("a",)]
    assert [prompt.turns for prompt in load_prompts(path, all_turns=True)] == [("a", "b")]
    assert load_prompts(path)[0].question_id == "7"


def test_a_few_of_each_category(tmp_path: Path) -> None:
    rows = [{"question_id": i, "category": "ab"[i % 2], "turns": [str(i)]} for i in range(6)]
    assert [p.question_id for p in load_prompts(write(tmp_path / "p.jsonl", *rows), per_category=2)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("{not json", "is not JSON"),
        ([1, 2], "`turns` must be"),
        ({"turns": []}, "`turns` must be"),
        ({"turns": "one"}, "`turns` must be"),
        ({"turns": [3]}, "`turns` must be"),
        ({"turns": ["x"], "category": "all"}, "no category can be called"),
        ({"turns": ["x"], "category": "a\x1b[31mb"}, "`category` must be one line"),
        ({"turns": ["x"], "question_id": "a\nb"}, "`question_id` must be one line"),
        ({"turns": ["x"], "question_id": "good"}, "question_id good was there before"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, row: object, complaint: str) -> None:
    path = write(tmp_path / "p.jsonl", {"question_id": "good", "turns": ["x"]}, "", row)
    with pytest.raises(AppError, match=r"p\.jsonl, line 3") as refusal:
        load_prompts(path)
    assert complaint in str(refusal.value)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AppError, match="holds no prompts"):
        load_prompts(write(tmp_path / "p.jsonl"))


def test_a_text_may_hold_any_line_separator_but_the_file_s(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('\ufeff{"turns": ["one\u2028two\x85three"]}\r\n\r\n', encoding="utf-8", newline="")
    assert [prompt.turns for prompt in load_prompts(path)] == [("one\u2028two\x85three",)]
