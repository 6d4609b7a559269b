"""`paceline models compare` on a model and a quantisation of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from engine.quantize import quantize


@pytest.fixture
def smaller(target: Path, tmp_path: Path) -> Path:
    path = tmp_path / "smaller.gguf"
    quantize(target, path, "Q8_0")
    return path


def test_both_are_measured_with_one_draft(
    home: Path, target: Path, draft: Path, smaller: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "compare", str(target), str(smaller), "--draft", str(draft), "--threads", "1", "--json"]) == 0
    one, other = json.loads(capfd.readouterr().out)
    assert (one["target"]["path"], other["target"]["path"]) == (str(target), str(smaller))
    assert one["draft"]["path"] == other["draft"]["path"] == str(draft)
    assert other["file_bytes"] < 0.5 * one["file_bytes"]
    assert 0.5 < one["acceptance"] <= 1
    assert one["token_loglik"] == pytest.approx(other["token_loglik"], rel=0.05)
    assert one["token_loglik"] != other["token_loglik"]


def test_the_table_leaves_out_what_was_not_measured(
    home: Path, target: Path, smaller: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["models", "compare", str(target), str(smaller), "--draft", "none", "--threads", "1"]) == 0
    out, err = capfd.readouterr()
    rows = {line[:22].strip(): line[22:].split() for line in out.splitlines()}
    assert rows["drafted tokens kept"] == ["-", "-"]
    assert rows["a block of 8"][1] == "ms"
    assert err == ""


def test_a_name_that_means_nothing(home: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "compare", str(target), "nobody"]) == 1
    assert "no model named 'nobody'" in capsys.readouterr().err
