"""`paceline verify` on tiny real pairs: a right engine passes, and engines that were made wrong do not."""

from __future__ import annotations

import json
import math
import os
import random
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine.decoder
from app.cli import main
from engine.values import Draft
from tests.app.conftest import ROOT

FREE = ("-t", "1.0", "--top-k", "0", "--top-p", "1", "--min-p", "0")


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    texts = ("Name three rivers.", "abcab abc bac", "def main(): print(1)", "one two three one two")
    path.write_text("".join(json.dumps({"question_id": f"q{i}", "turns": [text]}) + "\n" for i, text in enumerate(texts)))
    return path


@pytest.fixture
def verify(
    home: Path, target: Path, drafts: dict[str, Path], prompts: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Any:
    """Runs `verify` in this process; exit code, output and remarks. Replies draw from the same random streams each time."""
    monkeypatch.setattr(secrets, "randbits", random.Random(1).getrandbits)

    def run(*args: object, draft: str | Path = "fair") -> tuple[int, str, str]:
        pair = ["--target", str(target), "--draft", str(drafts.get(str(draft), draft)), "--ctx", "512", "--threads", "1"]
        code = main(["verify", *pair, "--prompts", str(prompts), "-n", "32", "--contexts", "2", *map(str, args)])
        return code, *capsys.readouterr()

    return run


def found(verify: Any, *args: object, **how: Any) -> tuple[int, dict[str, Any]]:
    code, out, _ = verify("--json", *args, **how)
    return code, json.loads(out)


def test_a_right_engine_is_verified(verify: Any) -> None:
    code, result = found(verify)
    assert (code, result["passed"], result["complete"]) == (0, True, True)
    assert result["verdict"].startswith("verified: ")
    assert {one["mode"] for one in result["identity"]} == {"plain", "auto", "fixed:4"}
    assert sum(one["drafted"] for one in result["identity"]) > 50
    assert len(result["drawn"]) == 4
    assert [one["samples"] for one in result["distribution"]] == [200, 200]
    assert all(one["drafted"] >= 200 for one in result["distribution"])
    assert len(result["tests"]) == 3 + 1 + 2
    assert 0 < result["rounding"]["bound"] < 0.2
    assert result["log_likelihood"]["greedy_difference"]["value"] == pytest.approx(0, abs=0.05)
    assert result["manifest"]["settings"]["samples"] == 200


def test_the_verdict_for_people_is_the_last_line(verify: Any) -> None:
    code, out, err = verify("--samples", "0")
    assert code == 0
    assert out.splitlines()[-1].startswith("verified: 8 of 8 replies at temperature 0 are plain decoding's")
    assert "rounding here" in out
    assert err == ""


def test_without_a_draft_model_copies_are_checked(verify: Any) -> None:
    code, result = found(verify, "--samples", "60", draft="none")
    assert {one["mode"] for one in result["identity"]} == {"plain", "auto", "ngram"}
    drafted = sum(one["drafted"] for one in result["identity"]) + sum(one["drafted"] for one in result["distribution"])
    assert result["passed"] == (drafted > 0)
    assert code == (0 if drafted else 1)


def test_a_greedy_rule_that_forgives_a_near_miss_is_found(verify: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps drafted tokens within 0.5 nats of the best, as `typical` acceptance does."""
    right = engine.decoder.Decoder._check_greedy

    def forgiving(self: Any, reply: Any, draft: Draft) -> Any:
        for i, token in enumerate(draft.tokens):
            logits = self._session.logits(i)
            if logits[token] < logits.max() - 0.5:
                return right(self, reply, Draft(draft.tokens[:i], draft.probs[:i], draft.confidence[:i], draft.origin)) if i == 0 else (
                    engine.decoder.Verdict(i, int(logits.argmax()), (), None)
                )
        return engine.decoder.Verdict(len(draft), int(self._session.logits(len(draft)).argmax()), (), None)

    monkeypatch.setattr(engine.decoder.Decoder, "_check_greedy", forgiving)
    code, result = found(verify, "--samples", "0", "--modes", "fixed:4")
    assert (code, result["passed"]) == (1, False)
    assert result["verdict"].startswith("NOT exact: ")
    assert any(place["gap"] > result["rounding"]["bound"] for one in result["identity"] for place in one["departures"])


def test_a_biased_acceptance_is_found_in_the_distribution(verify: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keeps every drafted token that the target does not rule out."""
    monkeypatch.setattr(engine.decoder, "accept_block", lambda draft, targets, uniforms: next(
        (i for i, (x, p) in enumerate(zip(draft.tokens, targets, strict=False)) if not p.prob(x)), len(draft)
    ))
    code, result = found(verify, "--samples", "500", "--contexts", "1", *FREE, draft="poor")
    assert (code, result["passed"]) == (1, False)
    rejected = [test for test in result["tests"] if test["rejected"]]
    assert any("do not follow the target's law" in test["name"] for test in rejected)


def test_a_residual_that_is_not_subtracted_is_found(verify: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a refusal the token comes from p itself. 800 samples miss it one time in four, on this pair."""
    monkeypatch.setattr(engine.decoder, "resample", lambda draft, targets, t, u: targets[t].draw(u))
    code, result = found(verify, "--samples", "2400", "--contexts", "1", *FREE)
    assert (code, result["passed"]) == (1, False)


def test_time_ends_it_with_a_verdict_on_what_was_checked(verify: Any) -> None:
    code, out, err = verify("--budget", "0.1", "--samples", "100000", "--contexts", "1")
    assert "--budget allows more" in err
    assert out.splitlines()[-1].startswith("verified: ")
    assert code == 0


def test_a_prompt_that_does_not_fit_is_left_out(verify: Any, prompts: Path) -> None:
    with prompts.open("a") as file:
        file.write(json.dumps({"question_id": "long", "turns": ["word " * 300]}) + "\n")
    code, result = found(verify, "--samples", "0")
    assert code == 0
    assert [skip["prompt"] for skip in result["skipped"]] == ["long"]
    assert {one["prompt"] for one in result["identity"]} == {"q0", "q1", "q2", "q3"}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(["--modes", "plain"], "is not auto, ngram, draft or fixed:K"), (["-t", "0"], "temperature 0 are checked in any case")],
)
def test_wrong_usage_is_one_line(verify: Any, arguments: list[str], complaint: str) -> None:
    code, out, err = verify(*arguments)
    assert (code, out) == (2, "")
    assert complaint in err


def test_ctrl_c_ends_it_cleanly(home: Path, target: Path, draft: Path, prompts: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "verify", "--target", target, "--draft", draft, "--ctx", "512", "--threads", "1",
         "--prompts", prompts, "--samples", "1000000", "--budget", "5", "--json"],
        cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )
    log = home / "logs" / "engine.log"
    while not log.exists() and process.poll() is None:
        pass
    try:
        process.communicate(timeout=2)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert b"stopped before the end" in err
    assert json.loads(out)["complete"] is False


def test_the_built_in_prompts_are_there() -> None:
    from app.verify.prompts import built_in_prompts

    assert len(built_in_prompts()) == 8


def test_documents_hold_no_infinities() -> None:
    from app.verify.result import _finite

    assert _finite({"a": [math.inf, 1.0], "b": (np.nan,)}) == {"a": [None, 1.0], "b": [None]}
