"""Benchmark prompts from JSON lines, one object each: `question_id`, `category`, `turns` (as Spec-Bench has them).

The suites in `assets/suites/` are such files. A row of theirs may also name `documents`, files kept beside the suites,
which stand before its first turn: so a text serves several suites, and a context of 8,000 tokens is put together here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import AppError
from app.sanitize import sanitize

SUITES_DIR = Path(__file__).resolve().parent.parent.parent / "assets" / "suites"
SUITES = (
    "short_questions", "long_writing", "code", "code_editing", "summarising", "translation", "maths", "large_context",
    "multi_turn",
)
"""The suites in the order they are run and shown in; each is `NAME.jsonl` and one category."""
EVERY_TURN = frozenset({"multi_turn"})
"""Suites that make no sense with their first turns alone."""
_FENCES = {".py": "python", ".js": "javascript", ".rs": "rust", ".sh": "bash", ".yaml": "yaml"}


@dataclass(frozen=True, slots=True)
class BenchPrompt:
    """One conversation to have with each configuration."""

    question_id: str
    category: str
    turns: tuple[str, ...]


def load_suites(names: Sequence[str], *, per_category: int | None = None) -> list[BenchPrompt]:
    """The prompts of our own suites, whole conversations where the suite is about them.

    Raises AppError for a name that is none.
    """
    for name in names:
        if name not in SUITES:
            raise AppError(f"there is no suite {name!r}; there are {', '.join(SUITES)}")
    return [
        prompt
        for name in names
        for prompt in load_prompts(SUITES_DIR / f"{name}.jsonl", all_turns=name in EVERY_TURN, per_category=per_category)
    ]


def load_prompts(path: Path, *, all_turns: bool = False, per_category: int | None = None) -> list[BenchPrompt]:
    """The prompts of a file; only their first turn unless `all_turns`, only the first few of each category if asked.

    Raises AppError naming the line that is wrong.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")  # splitlines would also cut at U+2028 within a text
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


def is_one_line(name: str) -> bool:
    """Whether a name can be printed as it is."""
    return bool(name) and sanitize(name) == name and len(name.splitlines()) == 1


def _parse(line: str, where: str, default_id: str, all_turns: bool) -> BenchPrompt:
    try:
        row: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise AppError(f"{where} is not JSON: {error}") from None
    turns = row.get("turns") if isinstance(row, dict) else None
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise AppError(f"{where}: `turns` must be a list of texts")
    category, name = str(row.get("category", "other")), str(row.get("question_id", default_id))
    for key, value in (("category", category), ("question_id", name)):
        if not is_one_line(value):
            raise AppError(f"{where}: `{key}` must be one line of text without control characters")
    if category == "all":
        raise AppError(f"{where}: no category can be called `all`; that is the sum of them")
    documents = row.get("documents", [])
    if not isinstance(documents, list) or not all(isinstance(name, str) for name in documents):
        raise AppError(f"{where}: `documents` must be a list of names")
    first = "\n\n".join([*(_document(name, where) for name in documents), turns[0]])
    rest = turns[1:] if all_turns else []
    return BenchPrompt(name, category, (first, *rest))


def _document(name: str, where: str) -> str:
    """A text as it is, a program under its name and in a fence."""
    folder = SUITES_DIR / ("texts" if name.endswith(".txt") else "files")
    if name not in {path.name for path in folder.iterdir()}:
        raise AppError(f"{where}: there is no document {name!r} with the suites")
    text = (folder / name).read_text(encoding="utf-8").rstrip("\n")
    if folder.name == "texts":
        return text
    kind = Path(name).suffix
    return f"{name}:\n\n```{_FENCES.get(kind, kind[1:].lower())}\n{text}\n```"
