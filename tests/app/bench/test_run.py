"""`paceline bench run` on a tiny real pair: the written result, and what an interruption keeps."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.bench.at_once import Throughput
from app.cli import main
from app.errors import Interrupted
from tests.app.conftest import ROOT


def result(tmp_path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    return found


def test_the_result_has_every_reply_and_what_they_say(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], target: Path, draft: Path
) -> None:
    assert main([*command, "--max-tokens", "16", "--repeat", "2"]) == 0
    out, err = capsys.readouterr()
    found = result(tmp_path)
    assert found["ended"] == "repeats"
    modes = ("plain", "auto", "fixed:2")
    order = [(row["question_id"], row["repeat"], row["config"]) for row in found["rows"]]
    # One prompt of each category in turn, and the configurations in the opposite order the second time.
    assert order == [(q, r, m) for r in (0, 1) for q in "021" for m in (modes if r == 0 else modes[::-1])]
    assert list(found["by_category"]) == ["code", "prose", "all"]
    facts = found["by_category"]["all"]["fixed:2"]
    ratio = facts["ratio"]
    assert ratio["low"] <= ratio["median"] <= ratio["high"]
    assert ratio["noise_low"] <= ratio["median"] <= ratio["noise_high"]
    assert (ratio["prompts"], ratio["pairs"]) == (3, 6)
    assert 0 < facts["acceptance_rate"] <= 1
    assert len(facts["acceptance_by_position"]) == 2
    assert facts["same_text_as_baseline"] == 1
    assert facts["peak_rss_bytes"] > found["by_category"]["all"]["plain"]["peak_rss_bytes"]  # the target is alone there
    assert found["by_category"]["all"]["plain"]["ratio"]["median"] is None
    assert all(len(row["lengths"]) >= row["rounds"] for row in found["rows"])
    assert {engine["draft"] for engine in found["engines"]} == {None, str(draft)}
    manifest = found["manifest"]
    assert manifest["models"]["target"]["path"] == str(target)
    assert len(manifest["models"]["target"]["sha256"]) == len(manifest["prompts"]["sha256"]) == 64
    assert manifest["settings"]["sampling"]["temperature"] == 0
    assert manifest["versions"]["llama-cpp-python"]
    assert manifest["build"]["features"]
    assert manifest["machine"]["cpu"]
    assert "fixed:2" in out
    assert err == ""


def test_one_variable_at_a_time(command: list[str], drafts: dict[str, Path], tmp_path: Path) -> None:
    options = ["--modes", "plain,fixed:2", "--drafts", str(drafts["poor"]), "--max-tokens", "8,12", "--batch", "128,64"]
    assert main([*command, *options, "--repeat", "1", "--per-category", "1"]) == 0
    found = result(tmp_path)
    poor = f"fixed:2@draft={drafts['poor'].stem}"
    assert {(c["name"], c["baseline"]) for c in found["configurations"]} == {
        ("plain", None), ("fixed:2", "plain"), (poor, "plain"), ("plain@max-tokens=12", "plain"),
        ("fixed:2@max-tokens=12", "plain@max-tokens=12"), ("plain@batch=64", "plain"), ("fixed:2@batch=64", "plain@batch=64"),
    }
    longest = {row["config"]: row["completion_tokens"] for row in found["rows"]}
    assert longest["plain"] == 8
    assert longest["plain@max-tokens=12"] == 12
    assert {engine["batch"] for engine in found["engines"]} == {128, 64}
    assert found["by_category"]["all"][poor]["acceptance_rate"] < found["by_category"]["all"]["fixed:2"]["acceptance_rate"]


def test_sampled_replies_and_the_weaker_rule_can_be_compared(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The test-only rule drafts greedily and keeps what a draw of the target's own matches."""
    kept = {}
    for rule in ("block", "match"):
        assert main([*command, "--temperature", "1", "--seed", "3", "--max-tokens", "64", "--repeat", "2", "--rule", rule, "--overwrite"]) == 0
        kept[rule] = result(tmp_path)["by_category"]["all"]["fixed:2"]["tokens_per_round"]
        assert " same" not in capsys.readouterr().out.splitlines()[1]
    assert kept["block"] > kept["match"]


def test_every_reply_reads_its_whole_prompt(command: list[str], tmp_path: Path) -> None:
    """Or the configuration that runs second would look faster to its first token."""
    assert main([*command, "--max-tokens", "4", "--repeat", "2", "--per-category", "1"]) == 0
    assert {row["cached_tokens"] for row in result(tmp_path)["rows"]} == {0}


def test_all_turns_have_the_same_history_in_every_configuration(command: list[str], tmp_path: Path) -> None:
    assert main([*command, "--max-tokens", "16", "--repeat", "2", "--turns", "all"]) == 0
    rows = result(tmp_path)["rows"]
    assert {row["turn"] for row in rows} == {0, 1}
    read: dict[tuple[str, int, int], set[int]] = {}
    for row in rows:
        read.setdefault((row["question_id"], row["turn"], row["repeat"]), set()).add(row["prompt_tokens"])
    assert all(len(tokens) == 1 for tokens in read.values())


def test_a_prompt_that_does_not_fit_is_skipped_once_and_told(
    command: list[str], prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with prompts.open("a") as file:
        file.write(json.dumps({"question_id": "long", "category": "prose", "turns": ["word " * 400]}) + "\n")
    assert main([*command, "--max-tokens", "4", "--repeat", "2", "--ctx", "256"]) == 0
    found = result(tmp_path)
    assert [(skip["question_id"], skip["config"]) for skip in found["skipped"]] == [("long", "plain")]
    assert {row["question_id"] for row in found["rows"]} == {"0", "1", "2"}
    assert "prompt long is skipped" in capsys.readouterr().err


def test_a_run_that_measured_nothing_fails_and_leaves_an_earlier_result_alone(
    command: list[str], prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts.write_text(json.dumps({"turns": ["word " * 400]}) + "\n")
    (tmp_path / "out.json").write_text("an earlier result")
    assert main([*command, "--repeat", "1", "--ctx", "256", "--overwrite"]) == 1
    assert "nothing was measured" in capsys.readouterr().err
    assert (tmp_path / "out.json").read_text() == "an earlier result"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [(None, "manifest.settings.options"), ({}, "the options in it"), ({"modes": ["plain", "ngram"]}, "cannot go on"),
     ({"per_category": "many"}, "cannot go on"), ({"target": 5}, "(target: "), ({"ctx": "many"}, "(ctx: "),
     ({"temperature": "hot"}, "(temperature: "), ({"prompts": 7}, "(prompts: ")],
)
def test_a_run_whose_options_were_edited_does_not_go_on(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], options: dict[str, Any] | None, complaint: str
) -> None:
    assert main([*command, "--max-tokens", "4", "--repeat", "1"]) == 0
    edited = result(tmp_path)
    saved = edited["manifest"]["settings"]
    saved["options"] = {**saved["options"], **options} if options else options
    text = json.dumps(edited)
    (tmp_path / "out.json").write_text(text)
    capsys.readouterr()
    assert main(["bench", "run", "--resume", str(tmp_path / "out.json")]) == 1
    said = capsys.readouterr().err
    assert complaint in said
    assert "internal error" not in said
    assert (tmp_path / "out.json").read_text() == text


def test_a_bias_that_json_has_no_number_for_is_kept(command: list[str], tmp_path: Path) -> None:
    assert main([*command, "--max-tokens", "4", "--repeat", "1", "--logit-bias", "101:-inf"]) == 0
    assert result(tmp_path)["manifest"]["settings"]["sampling"]["logit_bias"] == [[101, "-inf"]]
    assert main(["bench", "run", "--resume", str(tmp_path / "out.json"), "--repeat", "2"]) == 0
    assert {row["repeat"] for row in result(tmp_path)["rows"]} == {0, 1}


@pytest.mark.parametrize(
    "command", [["bench", "run", "--precision"], ["verify", "--budget"], ["verify", "--false-alarm"], ["tune", "--budget"]], ids=" ".join
)
@pytest.mark.parametrize("number", ["nan", "inf"])
def test_what_is_no_number_to_go_by_is_refused(command: list[str], number: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, number]) == 2
    assert "Invalid value for" in capsys.readouterr().err


def test_more_engines_than_memory_holds_are_refused(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.bench.pool.has_room", lambda key: key.copy == 0)
    assert main([*command, "--max-tokens", "4", "--repeat", "1", "--at-once", "1,2"]) == 1
    assert "memory does not hold 2 engines at once; leave 2 out of --at-once" in capsys.readouterr().err
    assert {row["at_once"] for row in result(tmp_path)["at_once"]["rows"]} == {1}


def test_ctrl_c_while_engines_are_loaded_for_several_replies_is_a_stop(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def loading(*_: object) -> Iterator[Throughput]:
        signal.raise_signal(signal.SIGINT)
        raise Interrupted
        yield

    monkeypatch.setattr("app.bench.session.measure_load", loading)
    assert main([*command, "--max-tokens", "4", "--repeat", "1", "--at-once", "1"]) == 130
    assert result(tmp_path)["ended"] == "stopped"
    assert "paceline: stopped: 9 replies were measured" in capsys.readouterr().err


def test_a_category_that_is_known_precisely_is_not_repeated(command: list[str], tmp_path: Path) -> None:
    command[command.index("--precision") + 1] = "1e12"
    assert main([*command, "--max-tokens", "4", "--repeat", "50"]) == 0
    found = result(tmp_path)
    assert found["ended"] == "precise"
    assert {row["repeat"] for row in found["rows"]} == {0, 1}


def test_the_run_ends_when_the_time_is_up(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--max-tokens", "4", "--repeat", "100000", "--budget", "1s"]) == 0
    found = result(tmp_path)
    assert found["ended"] == "budget"
    assert len(found["rows"]) >= 9
    assert "the time was up" in capsys.readouterr().err


def test_a_rule_sets_the_exit_code(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = [*command, "--max-tokens", "4", "--repeat", "1", "--require"]
    assert main([*run, "auto>=0.001*plain in every category"]) == 0
    assert capsys.readouterr().out.count("holds  auto>=0.001*plain in every category  [") == 2
    assert main([*run, "auto>=0.001*plain", "--overwrite", "--require", "auto > 1000*plain in code"]) == 1
    assert "FAILS  auto > 1000*plain in code  [code]  auto is " in capsys.readouterr().out
    assert [verdict["holds"] for verdict in result(tmp_path)["requirements"]] == [True, False]


def test_a_rule_about_something_unknown_is_refused_before_anything_runs(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--require", "draft>=plain"]) == 1
    assert "nothing called 'draft' is measured; there is plain, auto, fixed:2" in capsys.readouterr().err


def test_several_replies_at_once(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--max-tokens", "8", "--repeat", "1", "--at-once", "2,1"]) == 0
    load = result(tmp_path)["at_once"]
    assert [(e["at_once"], e["mode"]) for e in load["summary"]] == [(1, "plain"), (1, "auto"), (2, "plain"), (2, "auto")]
    assert {row["completion_tokens"] for row in load["rows"]} == {24}  # three prompts
    assert load["summary"][3]["times_plain"] == load["summary"][3]["tokens_per_second"] / load["summary"][2]["tokens_per_second"]
    assert "at once" in capsys.readouterr().out


@pytest.mark.parametrize("suite", ["run", "five"])
def test_an_output_that_cannot_be_written_is_refused_before_anything_runs(
    suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there.json"
    there.write_text("an earlier result")
    for path, complaint in (
        (Path("/nowhere/out.json"), "cannot write to /nowhere"), (Path("/dev/null"), "/dev/null is not a file that can be replaced"),
        (there, f"{there} is there already; --overwrite replaces it"),
    ):
        assert main(["bench", suite, "--json", str(path)]) == 1
        assert capsys.readouterr().err.startswith(f"paceline: {complaint}")
    assert there.read_text() == "an earlier result"


def test_to_go_on_with_a_result_and_to_replace_it_exclude_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = tmp_path / "there.json"
    there.write_text("an earlier result")
    assert main(["bench", "run", "--resume", str(there), "--overwrite"]) == 2
    assert "leave out --overwrite" in capsys.readouterr().err


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


def test_ctrl_c_keeps_what_was_measured_and_the_run_can_go_on(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "app", *command, "--max-tokens", "8", "--repeat", "100000"], cwd=ROOT, env=dict(os.environ),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    deadline = time.monotonic() + 120
    while not (tmp_path / "out.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    found = result(tmp_path)
    assert process.returncode == 130
    assert found["ended"] == "stopped"
    assert "plain" in out
    assert err == f"paceline: stopped: {len(found['rows'])} replies were measured; they are in {tmp_path / 'out.json'}\n"

    found["rows"] = found["rows"][:10]  # the fourth conversation has one of its three replies
    (tmp_path / "out.json").write_text(json.dumps(found))
    assert main(["bench", "run", "--resume", str(tmp_path / "out.json"), "--repeat", "2"]) == 0
    after = result(tmp_path)
    assert after["rows"][:9] == found["rows"][:9]
    cells = [(row["question_id"], row["repeat"], row["config"]) for row in after["rows"]]
    assert len(cells) == len(set(cells)) == 18
    assert after["ended"] == "repeats"
    capsys.readouterr()

    assert main(["bench", "run", "--resume", str(tmp_path / "out.json"), "--max-tokens", "9"]) == 2
    assert "leave out --max-tokens" in capsys.readouterr().err
    after["manifest"]["machine"]["cpu"] = "another"
    (tmp_path / "out.json").write_text(json.dumps(after))
    assert main(["bench", "run", "--resume", str(tmp_path / "out.json")]) == 1
    assert "cannot go on, as this is not what was measured before: machine.cpu: another / " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--max-tokens", ""], "the list is empty"),
        (["--modes", " , "], "the list is empty"),
        (["--at-once", "1,65"], "'65' is not a whole number from 1 to 64"),
        (["--max-tokens", "9" * 5000], "is not a whole number from 2 to"),
        (["--prompts", "/dev/zero"], "/dev/zero is a device, not a file"),
        (["--resume", "/dev/zero"], "/dev/zero is a device, not a file"),
    ],
)
def test_an_option_that_means_nothing_is_refused_with_the_reason(
    options: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "run", *options]) == 2
    assert complaint in capsys.readouterr().err
