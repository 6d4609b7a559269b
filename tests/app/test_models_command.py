"""`paceline models` against a hub on loopback, as a user meets it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import main
from tests.app.conftest import ROOT
from tests.models.hub_server import HubServer, hub_server

REFERENCE = "hf:acme/tiny-GGUF/tiny.gguf"
BODY = bytes(range(256)) * 4000


@pytest.fixture
def hub(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    with hub_server() as server:
        server.files["acme/tiny-GGUF/tiny.gguf"] = BODY
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


def test_pull_list_remove(hub: HubServer, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "pull", REFERENCE]) == 0
    out, err = capsys.readouterr()
    path = Path(out.strip())
    assert path.read_bytes() == BODY
    assert home in path.parents
    assert err.endswith(f"paceline: {REFERENCE} is ready\n")

    assert main(["models", "list", "--json"]) == 0
    [entry] = json.loads(capsys.readouterr().out)
    assert (entry["path"], entry["state"], entry["bytes"]) == (str(path), "whole", len(BODY))
    assert main(["models", "list"]) == 0
    assert "acme/tiny-GGUF/tiny.gguf" in capsys.readouterr().out

    assert main(["models", "remove", entry["name"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"freed_bytes": len(BODY)}
    assert not path.exists()
    assert main(["models", "remove", REFERENCE]) == 1
    assert capsys.readouterr().err == f"paceline: nothing of {REFERENCE} is on this disk\n"


def test_what_the_hub_does_not_have_is_one_line(hub: HubServer, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "pull", "hf:acme/tiny-GGUF/other.gguf"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_empty_disk_says_how_to_begin(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "list"]) == 0
    assert "paceline models pull starter" in capsys.readouterr().err
    assert main(["models", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_the_catalogue_has_a_starter_pair(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "pairs", "--json"]) == 0
    assert "starter" in {pair["name"] for pair in json.loads(capsys.readouterr().out)}
    assert main(["models", "pairs"]) == 0
    assert "starter" in capsys.readouterr().out


def test_ctrl_c_keeps_what_arrived_and_says_so(hub: HubServer, home: Path) -> None:
    hub.bytes_per_second = 300_000
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "models", "pull", REFERENCE], cwd=ROOT, env=dict(os.environ),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )
    deadline = time.monotonic() + 20
    while not list(home.rglob("*.part")) and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (130, "")
    assert "what arrived is kept" in err
    assert "Traceback" not in err
