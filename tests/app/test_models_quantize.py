"""`paceline models quantize`, from the command line to a reply of the result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from app.cli import main
from models import Inventory
from tests.app.conftest import ROOT, Paceline


@pytest.fixture
def source(tmp_path: Path, target: Path) -> Path:
    path = tmp_path / "tiny-f32.gguf"
    shutil.copyfile(target, path)
    return path


def test_the_result_joins_the_inventory_and_answers(source: Path, home: Path, paceline: Paceline) -> None:
    done = paceline("models", "quantize", source, "--type", "q8_0", "--for", "draft", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    made = json.loads(done.stdout)
    assert (made["name"], made["type"], made["source_type"]) == ("tiny-q8_0", "Q8_0", "F32")
    assert made["bytes"] < 0.5 * made["source_bytes"]
    [entry] = Inventory(home / "models").list()
    assert (entry.name, entry.state) == ("quantised/tiny-q8_0.gguf", "whole")
    assert entry.record is not None
    assert (entry.record.origin, entry.record.sha256) == ("quantised from tiny-f32.gguf", made["sha256"])
    answer = paceline("ask", "--target", source, "--draft", "tiny-q8_0", "-n", "4", "--mode", "fixed:2", "--json", "Hi")
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout)["models"]["draft"]["sha256"] == made["sha256"]


def test_a_quantised_source_is_warned_about(source: Path, home: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "quantize", str(source), "--type", "Q8_0"]) == 0
    out, err = capfd.readouterr()
    assert Path(out.strip()) == home / "models" / "quantised" / "tiny-q8_0.gguf"
    assert err.startswith("paceline: tiny-q8_0: ")
    assert len(err.splitlines()) == 1
    assert main(["models", "quantize", "tiny-q8_0", "--type", "Q4_0"]) == 0
    assert "tiny-q8_0.gguf is already quantised (Q8_0)" in capfd.readouterr().err
    assert main(["models", "quantize", "tiny-q8_0", "--type", "Q8_0"]) == 1
    assert "is Q8_0 already" in capfd.readouterr().err


def test_a_result_that_is_there_is_not_replaced(source: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "quantize", str(source), "--type", "Q8_0"]) == 0
    capsys.readouterr()
    assert main(["models", "quantize", str(source), "--type", "Q8_0"]) == 1
    assert "models remove quantised/tiny-q8_0.gguf" in capsys.readouterr().err
    for name in ("quantised/tiny-q8_0.gguf", "tiny-q8_0"):
        assert main(["models", "remove", name]) == 0
        assert os.listdir(home / "models") == []
        assert main(["models", "quantize", str(source), "--type", "Q8_0"]) == 0


def test_no_room_is_said_before_anything_is_written(
    source: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.quantised.shutil.disk_usage", lambda _: type("Usage", (), {"free": 1_000_000}))
    assert main(["models", "quantize", str(source), "--type", "Q8_0"]) == 1
    err = capsys.readouterr().err
    assert "1.0 MB are free" in err
    assert os.listdir(home / "models") == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["nobody"], "no model named"), (["starter"], "models pull starter"), (["{source}", "--type", "Q99"], "no format Q99"),
     (["{source}", "--type", "IQ1_S"], "importance matrix")],
)
def test_what_cannot_be_done_is_one_line_and_leaves_nothing(
    source: Path, home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["models", "quantize", *(a.format(source=source) for a in arguments)]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert len(err.splitlines()) == 1
    assert not list((home / "models").rglob("*")) if (home / "models").exists() else True


def test_what_a_killed_run_left_is_swept_and_a_running_one_is_not(source: Path, home: Path) -> None:
    folder = home / "models" / "quantised"
    folder.mkdir(parents=True)
    for name in ("tiny-q8_0.gguf.quantising", "dead.gguf.quantising", "busy.gguf.quantising"):
        (folder / name).write_text("half")
    with FileLock(folder / "busy.gguf.lock"):
        assert main(["models", "quantize", str(source), "--type", "Q8_0"]) == 0
        left = sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))
    assert left == ["busy.gguf.quantising", "tiny-q8_0.gguf", "tiny-q8_0.gguf.verified.json"]


def test_two_at_once_do_not_write_one_file(source: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / "models" / "quantised"
    folder.mkdir(parents=True)
    with FileLock(folder / "tiny-q8_0.gguf.lock"):
        assert main(["models", "quantize", str(source), "--type", "Q8_0"]) == 1
    assert "is being made by another paceline" in capsys.readouterr().err


def test_ctrl_c_leaves_nothing(home: Path, source: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "models", "quantize", str(source), "--type", "Q8_0"], cwd=ROOT, env=dict(os.environ),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )
    deadline = time.monotonic() + 20
    while not (home / "models" / "quantised").exists() and time.monotonic() < deadline:
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to every process of the group
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert "nothing was left behind" in err
    assert "Traceback" not in err
    assert [path for path in (home / "models").rglob("*")] == []
