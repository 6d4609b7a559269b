"""What was learned about this machine's speed, one line a pair, from the engine's profile files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from engine.cost import CostModel
from engine.profile import FORMAT

BLOCK = 8
"""Rows of the block whose cost is shown beside that of one row."""


@dataclass(frozen=True, slots=True)
class Learned:
    """Costs of one pair, in milliseconds, at a short context."""

    target: str
    draft: str
    one_row_ms: float
    block_ms: float
    draft_step_ms: float | None
    saved: str
    current: bool
    """Measured with the llama.cpp that is installed now; otherwise it is measured again at the next load."""


def learned(directory: Path, build: str) -> tuple[list[Learned], list[str]]:
    """The profiles, newest first, and the names of files that are none. `build` is the engine's version and line."""
    good, bad = [], []
    for path in sorted(directory.glob("*.json"), key=_saved_at, reverse=True):
        try:
            good.append(_read(path, build))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            bad.append(path.name)
    return good, bad


def _read(path: Path, build: str) -> Learned:
    data = json.loads(path.read_text(encoding="utf-8"))
    if data["format"] != FORMAT:
        raise ValueError("another format")
    key, costs = data["key"], CostModel.from_json(data["learned"])
    if not costs.target.known():
        raise ValueError("no costs")
    return Learned(
        target=key["target"].rpartition(":")[0], draft=key["draft"].rpartition(":")[0],
        one_row_ms=round(costs.verify(1, 0) * 1000, 2), block_ms=round(costs.verify(BLOCK, 0) * 1000, 2),
        draft_step_ms=round(costs.draft_step(0) * 1000, 2) if costs.draft.known() else None,
        saved=datetime.fromtimestamp(_saved_at(path), UTC).isoformat(timespec="seconds"), current=key["build"] == build,
    )


def _saved_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
