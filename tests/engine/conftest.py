"""A tiny pair that is loaded, its plain reply, and the same pair where drafting pays."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import Engine
from tests.engine.helpers import CLEAR, Reference, ask, config


@pytest.fixture(scope="module")
def pair(target: Path, drafts: dict[str, Path]) -> Iterator[Engine]:
    with Engine(config(target, drafts["good"])) as engine:
        yield engine


@pytest.fixture(scope="module")
def reference(target: Path) -> Iterator[Reference]:
    with Reference(target) as reference:
        yield reference


@pytest.fixture(scope="module")
def plain(pair: Engine) -> str:
    return ask(pair, CLEAR, mode="plain", max_tokens=60).text


def paying(directory: Path, reading: float = 0.0) -> None:
    """Rewrite the profile in `directory` for a machine where drafts cost next to nothing, but for the first of a
    reply: `reading` seconds for each prompt token the draft has not seen."""
    (path,) = directory.glob("*.json")
    data = json.loads(path.read_text())
    rows = {str(n): 0.03 + 0.0001 * n for n in range(1, 65)}
    steps = {"1": 0.0001, "2": 0.0002, "20": 0.0002 + 18 * reading, "400": 0.0002 + 398 * reading}
    for name in ("calibrated", "learned"):
        data[name] = {"target": [rows], "draft": [steps]}
    path.write_text(json.dumps(data))


@pytest.fixture
def paying_pair(target: Path, drafts: dict[str, Path], tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The good pair on a machine where drafting pays."""
    with Engine(config(target, drafts["good"], profile_dir=tmp_path / "profiles")):
        pass
    paying(tmp_path / "profiles", getattr(request, "param", 0.0))
    with Engine(config(target, drafts["good"], profile_dir=tmp_path / "profiles")) as engine:
        yield engine
