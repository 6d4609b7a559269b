"""The command line as a user runs it: in this process for speed, in one of its own where exits and pipes matter."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

Paceline = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for everything Paceline keeps."""
    folder = tmp_path / "home"
    monkeypatch.setenv("PACELINE_HOME", str(folder))
    monkeypatch.delenv("PACELINE_MODELS", raising=False)
    return folder


@pytest.fixture
def paceline(home: Path) -> Paceline:
    """Runs `paceline ...` in a process of its own; `stdin` is text to pipe in."""

    def run(*args: object, stdin: str | bytes = b"", **settings: object) -> subprocess.CompletedProcess[str]:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [sys.executable, "-m", "app", *map(str, args)], cwd=ROOT, env=dict(os.environ), input=data,
            timeout=60, check=False, **{"capture_output": True, **settings},  # type: ignore[call-overload]
        )
        out, err = (stream.decode() if stream is not None else "" for stream in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    return run
