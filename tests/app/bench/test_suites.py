"""The suites that come with Paceline hold what their names promise."""

from __future__ import annotations

import json

import pytest

from app.bench.prompts import SUITES, SUITES_DIR, load_prompts, load_suites
from app.errors import AppError


def test_every_suite_has_ten_prompts_and_more_in_its_own_category() -> None:
    for name in SUITES:
        prompts = load_suites([name])
        assert len(prompts) >= 10
        assert {prompt.category for prompt in prompts} == {name}
    assert sorted(path.stem for path in SUITES_DIR.glob("*.jsonl")) == sorted(SUITES)


def test_no_prompt_is_there_twice() -> None:
    prompts = load_suites(SUITES)
    assert len({prompt.question_id for prompt in prompts}) == len(prompts)
    assert len({prompt.turns for prompt in prompts}) == len(prompts)


def test_a_conversation_keeps_its_turns_in_its_own_suite() -> None:
    assert all(len(prompt.turns) > 1 for prompt in load_suites(["multi_turn"]))
    assert all(len(prompt.turns) == 1 for prompt in load_suites(["summarising", "code"]))


def test_documents_stand_before_the_question_and_programs_in_a_fence() -> None:
    text = (SUITES_DIR / "texts" / "lighthouses.txt").read_text(encoding="utf-8").rstrip("\n")
    assert load_suites(["summarising"])[0].turns == (f"{text}\n\nSummarise this text in five sentences.",)
    edit = load_suites(["code_editing"])[0].turns[0]
    program = (SUITES_DIR / "files" / "inventory.py").read_text(encoding="utf-8").rstrip("\n")
    assert edit.startswith(f"inventory.py:\n\n```python\n{program}\n```\n\nRename")


def test_texts_and_programs_have_the_size_that_was_meant() -> None:
    words = {path.name: len(path.read_text(encoding="utf-8").split()) for path in (SUITES_DIR / "texts").iterdir()}
    lines = {path.name: len(path.read_text(encoding="utf-8").splitlines()) for path in (SUITES_DIR / "files").iterdir()}
    assert all(600 <= count <= 1500 for count in words.values()), words
    assert all(30 <= count <= 80 for count in lines.values()), lines
    assert len(words) >= 10


def test_a_large_context_is_put_together_the_same_way_each_time_and_is_large() -> None:
    first, second = load_suites(["large_context"]), load_suites(["large_context"])
    assert first == second
    assert all(6000 <= len(prompt.turns[0].split()) <= 7500 for prompt in first)  # 8,000 tokens and some


def test_an_unknown_suite_is_answered_with_the_known_ones() -> None:
    with pytest.raises(AppError, match="no suite 'poems'; there are short_questions, long_writing"):
        load_suites(["code", "poems"])


@pytest.mark.parametrize("name", ["missing.txt", "../code.jsonl", "/etc/passwd"])
def test_only_documents_of_ours_can_be_named(name: str, tmp_path) -> None:  # type: ignore[no-untyped-def]
    path = tmp_path / "p.jsonl"
    path.write_text(json.dumps({"documents": [name], "turns": ["Summarise."]}))
    with pytest.raises(AppError, match="there is no document"):
        load_prompts(path)
