from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.bench.five import PROMPTS, Continued, five_configurations, summary
from app.cli import main


def reply(config: str, prompt: int, latency: float, tokens: int = 200, **changes: Any) -> Continued:
    facts = {"repeat": 0, "ttft_ms": 10.0, "peak_rss_bytes": 1, "energy_joules": None, "acceptance_rate": None, "text": "x"} | changes
    return Continued(config=config, prompt=prompt, completion_tokens=tokens, latency_seconds=latency, **facts)


def test_means_over_prompts_of_medians_over_repeats() -> None:
    done = [reply("plain", 0, seconds, repeat=i) for i, seconds in enumerate((1.0, 2.0, 30.0))]
    done += [reply("plain", 1, 4.0, tokens=100)]
    (found,) = summary(done, five_configurations(None, with_draft=True))
    assert found["latency_seconds"] == 3.0
    assert found["tokens_per_second"] == 50.0
    assert found["log_likelihood"] is None


def test_the_other_target_is_measured_alone_and_with_the_draft() -> None:
    names = [config.name for config in five_configurations("big.gguf", with_draft=True)]
    assert names == ["plain", "auto", "plain@other-target", "auto@other-target"]
    assert [config.name for config in five_configurations("big.gguf", with_draft=False)] == ["plain", "plain@other-target"]


def test_the_command_measures_all_and_stands_published_figures_beside(
    target: Path, draft: Path, drafts: dict[str, Path], home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "five.json"
    assert main([
        "bench", "five", "--target", str(target), "--draft", str(draft), "--other-target", str(drafts["poor"]), "--ctx", "512",
        "--threads", "1", "--repeat", "1", "-n", "12", "--json", str(out),
    ]) == 0
    shown = capsys.readouterr().out
    assert "Gemma 2 9B with 2B drafting (published)" in shown
    assert "another machine" in shown
    found = json.loads(out.read_text())
    assert len(found["replies"]) == 4 * len(PROMPTS)
    entries = {entry["name"]: entry for entry in found["summary"]}
    alone, pair, other = entries["plain"], entries["auto"], entries["plain@other-target"]
    assert alone["log_likelihood"] == pair["log_likelihood"]  # the same texts
    assert other["log_likelihood"] < alone["log_likelihood"]  # another model's texts, judged by this one
    assert Path(found["judge"]) == target
    assert alone["completion_tokens"] == 12
    texts = {(r["config"], r["prompt"]): r["text"] for r in found["replies"]}
    assert all(texts["plain", n] == texts["auto", n] for n in range(5))
    assert found["manifest"]["models"]["target"]["sha256"]


def test_a_file_that_cannot_be_written_is_refused_before_anything_runs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "five", "--json", "/nowhere/x.json"]) == 1
    assert capsys.readouterr().err == "paceline: cannot write to /nowhere\n"
