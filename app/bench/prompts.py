"""Benchmark prompts from JSON lines, one object each: `question_id`, `category`, `turns` (as Spec-Bench has them)."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import AppError


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One conversation to have with each mode."""

    question_id: str
    category: str
    turns: tuple[str, ...]


def load_prompts(path: Path, *, all_turns: bool = False, per_category: int | None = None) -> list[BenchPrompt]:
    """The prompts of a file; only their first turn unless `all_turns`, only the first few of each category if asked.

    Raises AppError naming the line that is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise AppError(f"{path} is not UTF-8 text") from None
    prompts: list[BenchPrompt] = []
    ids: set[str] = set()
    taken: Counter[str] = Counter()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        prompt = _parse(line, f"{path}, line {number}", str(number), all_turns)
        if prompt.question_id in ids:
            raise AppError(f"{path}, line {number}: question_id {prompt.question_id} was there before")
        ids.add(prompt.question_id)
        taken[prompt.category] += 1
        if per_category is None or taken[prompt.category] <= per_category:
            prompts.append(prompt)
    if not prompts:
        raise AppError(f"{path} holds no prompts")
    return prompts


def _parse(line: str, where: str, default_id: str, all_turns: bool) -> BenchPrompt:
    try:
        row: Any = json.loads(line)
    except ValueError as error:
        raise AppError(f"{where} is not JSON: {error}") from None
    turns = row.get("turns") if isinstance(row, dict) else None
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise AppError(f"{where}: `turns` must be a list of texts")
    category = str(row.get("category", "other"))
    if category == "all":
        raise AppError(f"{where}: no category can be called `all`; that is the sum of them")
    return BenchPrompt(str(row.get("question_id", default_id)), category, tuple(turns if all_turns else turns[:1]))
