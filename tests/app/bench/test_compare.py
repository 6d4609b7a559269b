"""`paceline bench compare` on a tiny real pair: the written result, and what an interruption keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from tests.app.conftest import ROOT


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
    return [
        "bench", "compare", "--prompts", str(prompts), "--target", str(target), "--draft", str(draft),
        "--modes", "plain,auto,fixed:2", "--ctx", "2048", "--threads", "1",
        "--json", str(tmp_path / "out.json"),
    ]


def result(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    return found


def test_the_result_has_every_reply_and_what_they_say(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], target: Path
) -> None:
    assert main([*command, "--max-tokens", "16", "--repeat", "2"]) == 0
    out, err = capsys.readouterr()
    found = result(tmp_path)
    assert found["complete"]
    order = [(row["question_id"], row["repeat"], row["mode"]) for row in found["rows"]]
    assert order == [(q, r, m) for q in "012" for r in (0, 1) for m in ("plain", "auto", "fixed:2")]
    assert list(found["by_category"]) == ["code", "prose", "all"]
    facts = found["by_category"]["all"]["fixed:2"]
    assert {"tokens_per_second", "ratio_to_plain", "acceptance_rate", "tokens_per_round", "ttft_ms", "outside_llama_share"} <= set(facts)
    assert facts["ratio_to_plain"]["low"] <= facts["ratio_to_plain"]["median"] <= facts["ratio_to_plain"]["high"]
    assert facts["ratio_to_plain"]["pairs"] == 6
    assert 0 < facts["acceptance_rate"] <= 1
    assert facts["same_text_as_plain"] == 1
    assert found["by_category"]["all"]["plain"]["ratio_to_plain"]["median"] == 1
    manifest = found["manifest"]
    assert manifest["models"]["target"] == {"path": str(target), "bytes": target.stat().st_size}
    assert manifest["settings"]["sampling"]["temperature"] == 0
    assert manifest["versions"]["llama-cpp-python"]
    assert manifest["machine"]["cpu"]
    assert "fixed:2" in out
    assert err == ""


def test_sampled_replies_and_the_weaker_rule_can_be_compared(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test-only rule drafts greedily and keeps what a draw of the target's own matches."""
    kept = {}
    for rule in ("block", "match"):
        assert main([*command, "--temperature", "1", "--seed", "3", "--max-tokens", "64", "--repeat", "2", "--rule", rule]) == 0
        kept[rule] = result(tmp_path)["by_category"]["all"]["fixed:2"]["tokens_per_round"]
        assert "same text" not in capsys.readouterr().out
    assert kept["block"] > kept["match"]


def test_every_reply_reads_its_whole_prompt(command: list[str], tmp_path: Path) -> None:
    """Or the mode that runs second would look faster to its first token."""
    assert main([*command, "--max-tokens", "4", "--repeat", "2", "--per-category", "1"]) == 0
    assert {row["cached_tokens"] for row in result(tmp_path)["rows"]} == {0}


def test_all_turns_have_the_same_history_in_every_mode(command: list[str], tmp_path: Path) -> None:
    assert main([*command, "--max-tokens", "16", "--repeat", "1", "--turns", "all"]) == 0
    rows = result(tmp_path)["rows"]
    assert {row["turn"] for row in rows} == {0, 1}
    read = {(row["question_id"], row["turn"]): set() for row in rows}  # type: ignore[var-annotated]
    for row in rows:
        read[row["question_id"], row["turn"]].add(row["prompt_tokens"])
    assert all(len(tokens) == 1 for tokens in read.values())


def test_a_prompt_that_does_not_fit_is_skipped_and_told(
    command: list[str], prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with prompts.open("a") as file:
        file.write(json.dumps({"question_id": "long", "category": "prose", "turns": ["word " * 400]}) + "\n")
    assert main([*command, "--max-tokens", "4", "--repeat", "1", "--ctx", "256"]) == 0
    found = result(tmp_path)
    assert [(skip["question_id"], skip["replies"]) for skip in found["skipped"]] == [("long", 3)]
    assert {row["question_id"] for row in found["rows"]} == {"0", "1", "2"}
    assert "prompt long is skipped" in capsys.readouterr().err


def test_an_unwritable_result_is_refused_before_anything_runs(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command[:-1], "/nowhere/out.json"]) == 2
    assert "cannot write to /nowhere" in capsys.readouterr().err


def test_a_full_disk_does_not_stop_the_measuring(
    command: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(path: Path, _text: str) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("app.bench.session.write_atomically", full)
    assert main([*command, "--max-tokens", "4", "--repeat", "2"]) == 1
    out, err = capsys.readouterr()
    assert "fixed:2" in out
    assert set(err.splitlines()) == {f"paceline: the result is not saved: {command[-1]}: No space left on device"}


def test_ctrl_c_keeps_what_was_measured(command: list[str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "app", *command, "--repeat", "100000"], cwd=ROOT, env=dict(os.environ),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    deadline = time.monotonic() + 30
    while not (tmp_path / "out.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    found = result(tmp_path)
    assert process.returncode == 130
    assert not found["complete"]
    assert len(found["rows"]) >= 10
    assert "plain" in out
    assert err == f"paceline: {len(found['rows'])} of 900000 replies were measured; they are in {tmp_path / 'out.json'}\n"
