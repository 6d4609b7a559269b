from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.bench.diff import changes, objections, what_changed
from app.bench.plan import Variations, configurations
from app.bench.result import Result
from app.cli import main
from tests.app.bench.conftest import MakeRow

MANIFEST: dict[str, Any] = {
    "created": "2026-01-01", "command": ["paceline"], "versions": {"paceline": "1"}, "build": {"llama.cpp": "1"},
    "machine": {"cpu": "x", "cores": 2, "memory_bytes": 1, "gpus": [], "power": None},
    "models": {"target": {"path": "/t.gguf", "bytes": 1, "sha256": "0"}}, "prompts": {"count": 8, "sha256": "p"},
    "settings": {"sampling": {"temperature": 0.0}, "loading": {"ctx": None, "threads": None}, "options": {"seed": None, "rule": "block"}},
}


def result(row: MakeRow, plain: float, auto: float, seed: int, noise: float = 0.02, **manifest: Any) -> Result:
    """Eight prompts, three repeats, with noise of its own."""
    rng = np.random.default_rng(seed)
    found = Result({**MANIFEST, **manifest}, configurations(Variations()), ended="precise")
    for question in range(8):
        for repeat in range(3):
            day = float(np.exp(5 * noise * rng.standard_normal()))  # what else the machine does, alike for both
            for config, speed in (("plain", plain), ("auto", auto)):
                reply = speed * day * float(np.exp(noise * rng.standard_normal()))
                found.rows.append(row(config, reply, question_id=str(question), repeat=repeat))
    return found


def verdicts(a: Result, b: Result) -> dict[tuple[str, str], str]:
    return {(change.config, change.measure): change.verdict for change in changes(a, b)}


def test_a_run_against_another_of_the_same_is_no_difference(row: MakeRow) -> None:
    assert set(verdicts(result(row, 30, 36, 1), result(row, 30, 36, 2)).values()) == {"no difference"}


def test_what_got_faster_is_told_and_by_how_much(row: MakeRow) -> None:
    found = verdicts(result(row, 30, 30, 1), result(row, 30, 45, 2))
    assert found["auto", "tokens/s"] == found["auto", "x baseline"] == "faster"
    assert found["plain", "tokens/s"] == "no difference"
    change = next(c for c in changes(result(row, 30, 30, 1), result(row, 30, 45, 2)) if c.measure == "x baseline")
    assert change.ratio.median == pytest.approx(1.5, rel=0.05)


def test_a_slower_day_does_not_look_like_a_slower_program(row: MakeRow) -> None:
    """Everything ran at two thirds: speeds say slower, the ratio to the baseline says that nothing changed."""
    found = verdicts(result(row, 30, 36, 1), result(row, 20, 24, 2))
    assert found["auto", "tokens/s"] == found["plain", "tokens/s"] == "slower"
    assert found["auto", "x baseline"] == "no difference"


def test_a_difference_within_the_noise_is_none(row: MakeRow) -> None:
    assert verdicts(result(row, 30, 30, 1, noise=0.2), result(row, 30, 31, 2, noise=0.2))["auto", "x baseline"] == "no difference"


def test_other_machines_and_prompts_are_objected_to_other_versions_told(row: MakeRow) -> None:
    ours = result(row, 30, 30, 1)
    other = result(
        row, 30, 30, 2, machine={**MANIFEST["machine"], "cpu": "y"}, prompts={"count": 9, "sha256": "q"}, versions={"paceline": "2"}
    )
    assert objections(ours, other) == ["machine.cpu: x / y", "prompts.sha256: p / q"]
    assert what_changed(ours, other) == ['versions: {"paceline": "1"} / {"paceline": "2"}']


def test_nothing_in_common_is_objected_to(row: MakeRow) -> None:
    other = result(row, 30, 30, 2)
    other.configs = configurations(Variations())[:0]
    assert objections(result(row, 30, 30, 1), other) == ["they have no configuration in common"]


@pytest.fixture
def files(row: MakeRow, tmp_path: Path) -> tuple[Path, Path, Path]:
    """A, B with a slower auto, and C of another machine."""
    made = (
        result(row, 30, 36, 1), result(row, 30, 24, 2, versions={"paceline": "2"}),
        result(row, 30, 36, 3, machine={**MANIFEST["machine"], "cpu": "y"}),
    )
    paths = tuple(tmp_path / f"{name}.json" for name in "abc")
    for path, one in zip(paths, made, strict=True):
        path.write_text(json.dumps(one.as_json()))
    return paths  # type: ignore[return-value]


def test_the_command_says_what_is_slower(files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    a, b, _ = files
    assert main(["bench", "diff", str(a), str(b)]) == 1
    out = capsys.readouterr().out
    assert 'changed: versions: {"paceline": "1"} / {"paceline": "2"}' in out
    assert "slower" in out
    assert "plain" not in out.replace("plain decoding", "")  # it did not change
    assert main(["bench", "diff", str(b), str(a)]) == 0  # faster is no failure
    assert main(["bench", "diff", str(a), str(a)]) == 0
    assert "nothing got faster or slower beyond noise" in capsys.readouterr().out


def test_the_command_refuses_another_machine_unless_told(files: tuple[Path, Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    a, _, c = files
    assert main(["bench", "diff", str(a), str(c)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "paceline: these are not comparable: machine.cpu: x / y (--anyway compares them all the same)\n"
    assert main(["bench", "diff", str(a), str(c), "--anyway", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["not_comparable"] == ["machine.cpu: x / y"]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("{", "is not JSON"), ("[]", "is not a result of"), ('{"kind": "paceline bench five"}', "but of `paceline bench five`"),
     ('{"kind": "paceline bench run", "format": 99}', "another version"), ('{"kind": "paceline bench run", "format": 1}', "damaged"),
     ("[" * 100_000, "is not JSON"), ('{"kind": NaN}', "is not JSON"), ('{"kind": 1e999}', "is not JSON")],
)
def test_other_files_are_named_as_such(
    files: tuple[Path, Path, Path], text: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = tmp_path / "bad.json"
    bad.write_text(text)
    assert main(["bench", "diff", str(files[0]), str(bad)]) == 1
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("edit", "complaint"),
    [(lambda d: d["rows"][0].update(tokens_per_second="fast"), "rows.0.tokens_per_second"),
     (lambda d: d["rows"][0].update(tokens_per_second=-1.0), "a speed must be above 0"),
     (lambda d: d["rows"][0].update(itl_ms=None), "rows.0.itl_ms"), (lambda d: d["rows"][0].update(lengths=5), "rows.0.lengths"),
     (lambda d: d["rows"][0].update(config="other"), "no configuration 'other'"), (lambda d: d["rows"].append(d["rows"][0]), "there twice"),
     (lambda d: d["configurations"].pop(0), "its baseline is missing"), (lambda d: d.update(configurations=[]), "configurations"),
     (lambda d: d["rows"][0].update(category="a\x1b]0;b\x07"), "rows.0: a name has control characters"),
     (lambda d: d["rows"][0].update(by_drafter={"model": {}}), "rows.0.by_drafter"),
     (lambda d: d.update(engines=[{"configs": [], "device_bytes": [1]}]), "engines.0.device_bytes"),
     (lambda d: d["manifest"].pop("machine"), "manifest.machine"), (lambda d: d["manifest"].update(settings={}), "manifest.settings.options")],
)
def test_a_result_that_was_edited_to_make_no_sense_is_damaged(
    files: tuple[Path, Path, Path], edit: Callable[[Any], None], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(files[0].read_text())
    edit(document)
    (tmp_path / "bad.json").write_text(json.dumps(document))
    assert main(["bench", "report", str(tmp_path / "bad.json")]) == 1
    said = capsys.readouterr().err
    assert "the result is damaged (" in said
    assert complaint in said
    assert said.count("\n") == 1


def test_many_comparisons_of_the_same_thing_find_nothing(row: MakeRow) -> None:
    """Nine categories and two measures: intervals of 95 % each would see a change in most pairs of runs."""
    alarms = 0
    for seed in range(5):
        rng = np.random.default_rng(seed)
        both = [Result(MANIFEST, configurations(Variations()), ended="precise") for _ in range(2)]
        for found in both:
            for question in range(18):
                for repeat in range(2):
                    for config in ("plain", "auto"):
                        speed = 30 * float(np.exp(0.03 * rng.standard_normal()))
                        found.rows.append(row(config, speed, question_id=str(question), repeat=repeat, category=f"c{question % 9}"))
        alarms += any(change.verdict in ("faster", "slower") for change in changes(*both))
    assert alarms <= 1
