"""What `verify` asks when nobody says: short prompts of different kinds, since each is read several times."""

from __future__ import annotations

from pathlib import Path

from app.bench.prompts import BenchPrompt, load_prompts

BUILT_IN = Path(__file__).resolve().parent.parent.parent / "assets" / "verify.jsonl"


def built_in_prompts() -> list[BenchPrompt]:
    """Raises AppError, OSError."""
    return load_prompts(BUILT_IN)
