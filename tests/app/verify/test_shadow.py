"""Replies that are checked once more: `ask --shadow`, the setting, the log, and the evidence over many replies."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import engine.decoder
from app.cli import main
from app.paths import Paths
from app.verify import shadow
from app.verify.shadow import ALARM, due, in_words, keep, log_file
from engine import Engine, Finished, GenerationRequest, LoadConfig, SamplingParams
from engine.shadow_result import ShadowResult

MODELS = {"target": {"path": "/m/t.gguf"}, "draft": {"path": "/m/d.gguf"}}
DRAWN = GenerationRequest(prompt="x", sampling=SamplingParams())


@pytest.fixture
def paths(home: Path) -> Paths:
    return Paths.find()


@pytest.fixture
def ask(home: Path, target: Path, draft: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115 - pytest's own stdin refuses to be read

    def run(*args: str) -> tuple[int, str, str]:
        pair = ["--target", str(target), "--draft", str(draft), "--ctx", "512", "--threads", "1", "--mode", "fixed:3", "-n", "24"]
        return main(["ask", *pair, *args, "Name three rivers."]), *capsys.readouterr()

    return run


def lines(paths: Paths) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log_file(paths).read_text().splitlines()]


def test_ask_checks_after_the_reply_and_says_so(ask: Any, paths: Paths) -> None:
    code, out, err = ask("-t", "0", "--shadow", "1")
    assert code == 0
    assert out == ask("-t", "0")[1]
    assert "shadow: 24 tokens read again under the target: " in err.splitlines()[-1]
    (entry,) = lines(paths)
    assert entry["verdict"] in ("exact", "near ties")
    assert (entry["target"], entry["mode"], entry["temperature"]) == ("target.gguf", "fixed:3", 0.0)
    assert not {"text", "prompt", "messages"} & set(entry)
    assert log_file(paths).stat().st_mode & 0o077 == 0
    ask("--shadow", "1")
    assert lines(paths)[1]["e_value"] > 0


def test_the_setting_asks_for_it_quietly(ask: Any, paths: Paths) -> None:
    paths.config.mkdir(parents=True)
    (paths.config / "settings.toml").write_text("shadow_rate = 1.0\n")
    _, _, err = ask("-t", "0")
    assert "shadow" not in err
    assert len(lines(paths)) == 1
    ask("-t", "0", "--shadow", "0")
    assert len(lines(paths)) == 1
    (paths.config / "settings.toml").write_text("shadow_rate = 7\n")
    assert ask("-t", "0")[0] == 0


def test_a_drift_is_told_in_one_line(ask: Any, paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that keeps whatever was drafted."""
    monkeypatch.setattr(engine.decoder.Decoder, "_check_greedy", lambda self, reply, draft: engine.decoder.Verdict(
        len(draft), int(self._session.logits(len(draft)).argsort()[-2]), (), None
    ))
    paths.config.mkdir(parents=True)
    (paths.config / "settings.toml").write_text("shadow_rate = 1.0\n")
    _, _, err = ask("-t", "0")
    assert "DRIFT" in err.splitlines()[-1]
    assert "`paceline verify` looks closer" in err.splitlines()[-1]
    assert lines(paths)[0]["verdict"] == "drift"


def test_the_check_needs_no_interface(target: Path, draft: Path) -> None:
    with Engine(LoadConfig(target, draft, context=512, threads=1)) as loaded:
        request = GenerationRequest(prompt="abc", sampling=SamplingParams(temperature=0), max_tokens=8, mode="fixed:3")
        finished = [event for event in loaded.generate(request) if isinstance(event, Finished)][-1]
        assert loaded.shadow_check(request, finished).tokens == 8


def test_evidence_of_many_replies_adds_up(paths: Paths) -> None:
    """Each reply alone is far from an alarm."""
    told = []
    for _ in range(12):
        told.append(keep(paths, MODELS, DRAWN, ShadowResult("exact", 100, e_value=3.0)))
        if told[-1]:
            break
    assert told[-1] is not None
    assert "together do not look drawn" in told[-1]
    assert len(told) == 9  # 3, 12, 39, ...: (3**(n + 1) - 3) / 2
    assert lines(paths)[-1]["detector"] == 0.0
    assert keep(paths, MODELS, DRAWN, ShadowResult("exact", 100, e_value=0.1)) is None
    other = {**MODELS, "target": {"path": "/m/other.gguf"}}
    keep(paths, other, DRAWN, ShadowResult("exact", 100, e_value=5.0))
    assert [entry["detector"] for entry in lines(paths)[-2:]] == [pytest.approx(0.1), 5.0]
    assert ALARM > 9_000


def test_a_log_that_cannot_be_written_or_read_is_no_obstacle(paths: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(paths, MODELS, DRAWN, ShadowResult("exact", 1, e_value=1.0))
    log_file(paths).write_bytes(b"\xff\nnot json\n")
    assert keep(paths, MODELS, DRAWN, ShadowResult("exact", 1, e_value=1.0)) is None
    monkeypatch.setattr(shadow, "writable", lambda folder: False)
    assert keep(paths, MODELS, DRAWN, ShadowResult("exact", 1, e_value=1.0)) is None
    assert keep(paths, MODELS, DRAWN, ShadowResult("not checked", reason="stopped")) is None


def test_every_outcome_has_its_words() -> None:
    assert in_words(ShadowResult("not checked", reason="stopped")) == "shadow: not checked: stopped"
    assert in_words(ShadowResult("exact", 5)).endswith("each is its first choice")
    assert "near ties (at most 0.12 nats; bound 0.50)" in in_words(ShadowResult("near ties", 5, 2, 0.12, 0.5))
    assert "DRIFT, 2 places" in in_words(ShadowResult("drift", 5, 2, 1.12, 0.5))
    assert "in line with" in in_words(ShadowResult("exact", 5, e_value=1.0))
    assert "odds 20000 to 1" in in_words(ShadowResult("drift", 5, e_value=2e4))
    assert "no probability" in in_words(ShadowResult("drift", 5, forbidden=1, e_value=1.0))


def test_a_share_of_replies_is_due() -> None:
    assert not any(due(0.0) for _ in range(100))
    assert all(due(1.0) for _ in range(100))
    assert 300 < sum(due(0.5) for _ in range(1000)) < 700
