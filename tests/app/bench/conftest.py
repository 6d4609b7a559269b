"""Rows of a result without an engine, and prompts and a tiny pair for commands that need one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from app.bench.measurement import Measurement

ROW = Measurement(
    question_id="1", category="code", turn=0, config="plain", repeat=0, prompt_tokens=10, cached_tokens=0, completion_tokens=100,
    finish_reason="stop", tokens_per_second=20.0, ttft_ms=100.0, prefill_tps=100.0, decode_seconds=5.0,
    itl_ms={"p50": 50.0, "p95": 60.0, "p99": 70.0}, outside_llama_share=0.01, rounds=100, drafted=0, accepted=0,
    tokens_per_round=1.0, drafted_by_position=(), accepted_by_position=(), by_drafter={}, lengths=(0,) * 100,
    time_ms={"draft": 0.0, "target": 4900.0, "sampling": 50.0, "other": 50.0}, parked_rounds=0, state="plain",
    energy_joules=None, peak_rss_bytes=2_000_000_000, text_sha256="a",
)

MakeRow = Callable[..., Measurement]


@pytest.fixture
def row() -> MakeRow:
    """A row of a configuration with a speed; anything else can be changed."""

    def make(config: str, speed: float | None, **changes: object) -> Measurement:
        return replace(ROW, config=config, tokens_per_second=speed, **changes)  # type: ignore[arg-type]

    return make


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    rows = [
        {"question_id": i, "category": category, "turns": [f"Tell me about {category} {i}.", "And more?"]}
        for i, category in enumerate(("code", "code", "prose"))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def command(prompts: Path, target: Path, draft: Path, home: Path, tmp_path: Path) -> list[str]:
    """A run of three prompts on a tiny pair, without the reply's length and the repeats."""
    return [
        "bench", "run", "--prompts", str(prompts), "--target", str(target), "--draft", str(draft),
        "--modes", "plain,auto,fixed:2", "--ctx", "2048", "--threads", "1", "--precision", "0",
        "--json", str(tmp_path / "out.json"),
    ]
