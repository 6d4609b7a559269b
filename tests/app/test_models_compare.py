"""`paceline models compare` on a model and a quantisation of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.cli import main
from app.plan import Fitted
from engine import LoadConfig
from engine.quantize import quantize
from models import Hardware


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


GIB, MIB = 1 << 30, 1 << 20


def machine(free: int) -> Hardware:
    return Hardware(0, free, 4, 8, 500 * GIB, (), frozenset())


def test_what_does_not_fit_is_refused_before_either_is_loaded(
    home: Path, target: Path, smaller: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.measure.measure", lambda *_, **__: pytest.fail("something was loaded"))
    frees = iter((GIB, 50 * MIB))  # only the second does not fit
    monkeypatch.setattr("app.wiring.this_machine", lambda _: machine(next(frees)))
    assert main(["models", "compare", str(target), str(smaller), "--draft", "none"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("paceline: smaller.gguf needs 0.1 GB of memory and 0.1 GB are free")
    assert err.endswith("--force loads it all the same\n")


def test_forced_it_compares_all_the_same(
    home: Path, target: Path, smaller: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.wiring.this_machine", lambda _: machine(50 * MIB))
    assert main(["models", "compare", str(target), str(smaller), "--draft", "none", "--threads", "1", "--force"]) == 0
    out, err = capsys.readouterr()
    assert "log-likelihood a token" in out
    assert err.count("loading it all the same (--force)") == 2


def test_what_the_plan_gives_up_is_given_up_here_too(
    home: Path, target: Path, smaller: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[LoadConfig] = []
    from engine import measure

    real = measure.measure
    monkeypatch.setattr("engine.measure.measure", lambda config, *rest, **how: configs.append(config) or real(config, *rest, **how))
    plans = iter((Fitted(), Fitted(settings={"batch": 128, "kv_type": "q8_0"}, remark="to fit into memory: less")))
    monkeypatch.setattr("app.wiring.fit_into_memory", lambda *_, **__: next(plans))
    assert main(["models", "compare", str(target), str(smaller), "--draft", "none", "--threads", "1"]) == 0
    assert [(c.context, c.batch, c.kv_type) for c in configs] == [(2048, 512, "f16"), (2048, 128, "q8_0")]
    err = capsys.readouterr().err.splitlines()
    assert err[0] == "paceline: to fit into memory: less"
    assert "run with different settings" in err[1]


def test_a_name_that_means_nothing(home: Path, target: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "compare", str(target), "nobody"]) == 1
    assert "no model named 'nobody'" in capsys.readouterr().err
