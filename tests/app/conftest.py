"""The command line as a user runs it: in this process for speed, in one of its own where exits and pipes matter."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.models.hub_server import HubServer, hub_server

ROOT = Path(__file__).resolve().parent.parent.parent

HUB_REPO = "acme/tiny-GGUF"

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


@pytest.fixture
def hub(home: Path, target: Path, draft: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub on loopback with a tiny pair, which the user's own catalogue makes the starter."""
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    entries = ""
    with hub_server() as server:
        for role, path in (("target", target), ("draft", draft)):
            body = path.read_bytes()
            server.files[f"{HUB_REPO}/{role}.gguf"] = body
            digest = hashlib.sha256(body).hexdigest()
            entries += f'[[files]]\nname = "tiny-{role}"\nrepo = "{HUB_REPO}"\nfile = "{role}.gguf"\nbytes = {len(body)}\nsha256 = "{digest}"\n'
        entries += '[[pairs]]\nname = "starter"\ntitle = "Tiny"\ntarget = "tiny-target"\ndraft = "tiny-draft"\n'
        (home / "config").mkdir(parents=True)
        (home / "config" / "catalogue.toml").write_text(entries)
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server
