"""`paceline models show`: header facts where the file is here, the catalogue's where it is not."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from models import Inventory
from tests.tiny_models import LAYERS, VOCAB, sliding_window, tiny_target

CATALOGUE = """
[[files]]
name = "tiny"
title = "Tiny"
repo = "acme/tiny-GGUF"
file = "tiny.gguf"
bytes = {bytes}
sha256 = "{sha256}"
licence = "Apache-2.0"
parameters = "0.1M"
layers = 9
notes = "made for a test"

[[files]]
name = "little"
repo = "acme/little-GGUF"
file = "little.gguf"
gated = true

[[pairs]]
name = "tiny-pair"
title = "The tiny pair"
target = "tiny"
draft = "little"
vocabulary = {{ shared = true, evidence = "every text compared" }}
"""


@pytest.fixture
def body(home: Path, target: Path) -> bytes:
    """The catalogue's `tiny`, not on disk yet."""
    data = target.read_bytes()
    config = home / "config"
    config.mkdir(parents=True)
    sha256 = hashlib.sha256(data).hexdigest()
    (config / "catalogue.toml").write_text(CATALOGUE.format(bytes=len(data), sha256=sha256))
    return data


def put(home: Path, body: bytes) -> Path:
    path = home / "models" / "acme" / "tiny-GGUF" / "tiny.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(body)
    return path


def shown(name: object, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert main(["models", "show", str(name), "--json"]) == 0
    models: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["models"]
    return models


def test_before_it_is_here_the_catalogue_speaks(body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    [facts] = shown("tiny", capsys)
    assert (facts["state"], facts["layers"], facts["licence"]) == ("absent", 9, "Apache-2.0")
    assert facts["pairs"] == [{"name": "tiny-pair", "role": "target", "with": "little"}]
    assert "architecture" not in facts
    assert main(["models", "show", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "not on this disk" in out
    assert "tiny-pair (target with little)" in out


def test_the_header_corrects_the_catalogue(body: bytes, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(home, body)
    [facts] = shown("tiny", capsys)
    assert (facts["state"], facts["layers"], facts["kv_heads"], facts["head_dim"]) == ("unverified", LAYERS, 2, 32)
    assert (facts["architecture"], facts["quantisation"], facts["vocabulary"]) == ("llama", "F32", VOCAB)
    assert (facts["context"], facts["template"], facts["licence"]) == (2048, "chatml", "Apache-2.0")
    Inventory(home / "models").record(path, hashlib.sha256(body).hexdigest(), origin="hub", repo=None, revision=None)
    [facts] = shown("acme/tiny-GGUF/tiny.gguf", capsys)
    assert (facts["state"], facts["origin"]) == ("whole", "hub")
    assert main(["models", "show", "tiny"]) == 0
    out = capsys.readouterr().out
    assert "on this disk, verified 20" in out
    assert str(path) in out


def test_another_version_than_the_catalogues_is_told(
    body: bytes, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Inventory(home / "models").record(put(home, body), "0" * 64, origin="hub", repo=None, revision=None)
    [facts] = shown("tiny", capsys)
    assert (facts["state"], "another version" in facts["fault"]) == ("unverified", True)


def test_a_pair_shows_both_files(body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    assert [facts["name"] for facts in shown("tiny-pair", capsys)] == ["tiny", "little"]
    assert main(["models", "show", "tiny-pair"]) == 0
    out = capsys.readouterr().out
    assert "shared; every text compared" in out
    assert "to be accepted on the hub first" in out


def test_any_file_by_its_path(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [facts] = shown(sliding_window(tmp_path), capsys)
    assert (facts["attention"], facts["window"], facts["window_layers"]) == ("sliding-window", 24, 1)
    assert facts["pairs"] == []


def test_a_hostile_header_prints_no_control_characters(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tiny_target(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00llama",
                                               b"general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x1b]0;x"))
    assert main(["models", "show", str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_a_broken_file_is_described_with_its_fault(
    body: bytes, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(home, body[:1000])
    [facts] = shown("tiny", capsys)
    assert "not a sound GGUF file" in facts["fault"]
    assert facts["layers"] == 9


def test_an_unknown_name_is_one_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "show", "nobody"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_an_import_that_changed_says_so(
    home: Path, target: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.gguf"
    shutil.copyfile(target, path)
    assert main(["models", "import", str(path)]) == 0
    capsys.readouterr()
    [facts] = shown("mine", capsys)
    assert (facts["state"], facts["layers"], facts["origin"]) == ("imported", LAYERS, "file")
    path.unlink()
    [facts] = shown("mine", capsys)
    assert (facts["state"], facts["fault"]) == ("changed", f"{path} is gone")
