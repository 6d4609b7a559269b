"""`paceline models import`, and using what was imported."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.errors import AppError
from app.paths import Paths
from app.selection import Selector
from engine.quantize import quantize
from models import Inventory
from tests.app.conftest import Paceline


@pytest.fixture
def theirs(tmp_path: Path, target: Path, mismatched: Path) -> Path:
    """Another program's folder: a model, a smaller one that can draft for it, and one that cannot."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    shutil.copyfile(target, folder / "big.gguf")
    shutil.copyfile(mismatched, folder / "stranger.gguf")
    quantize(target, folder / "small.gguf", "Q8_0")
    (folder / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    return folder


def imported(folder: object, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["models", "import", str(folder), "--json", *options]) == 0
    outcome: dict[str, Any] = json.loads(capsys.readouterr().out)
    return outcome


def total_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_a_folder_is_imported_where_it_is(theirs: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(os.listdir(theirs))
    outcome = imported(theirs, capsys)
    assert [model["name"] for model in outcome["imported"]] == ["big", "small", "stranger"]
    assert [(pair["draft"], pair["target"]) for pair in outcome["pairings"]] == [("small", "big")]
    [refused] = outcome["refused"]
    assert refused["path"].endswith("broken.gguf")
    assert sorted(os.listdir(theirs)) == before
    assert total_bytes(home) < 20_000


def test_it_says_who_drafts_for_whom(theirs: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "import", str(theirs)]) == 0
    out, err = capsys.readouterr()
    [row] = [line for line in out.splitlines() if line.split()[:1] == ["big"]]
    assert row.split()[-1] == "small"
    assert "left out" in err
    assert "--target big --draft small" in err
    assert main(["models", "list"]) == 0
    assert "imported" in capsys.readouterr().out


def test_a_later_import_is_paired_with_an_earlier_one(
    theirs: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(theirs / "big.gguf", capsys)
    assert main(["models", "import", str(theirs / "small.gguf")]) == 0
    assert "small can draft for big, which was here already" in capsys.readouterr().err


def test_hashes_on_request(theirs: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert [model["files"][0]["sha256"] for model in imported(theirs / "big.gguf", capsys)["imported"]] == [None]
    [model] = imported(theirs / "big.gguf", capsys, "--hash")["imported"]
    assert len(model["files"][0]["sha256"]) == 64


def test_an_imported_name_answers(theirs: Path, home: Path, paceline: Paceline) -> None:
    assert paceline("models", "import", theirs).returncode == 0
    done = paceline("ask", "--target", "big", "--draft", "small", "-n", "4", "--mode", "fixed:2", "--json", "Hello")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["models"]["target"]["path"] == str(theirs / "big.gguf")
    assert answer["models"]["draft"]["path"] == str(theirs / "small.gguf")
    assert answer["speculation"]["drafted"] > 0


def test_a_changed_file_is_never_loaded_as_the_old_one(
    theirs: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    imported(theirs, capsys)
    selector = Selector.at(Paths.find())
    assert selector.select("big", "small").target.path == theirs / "big.gguf"
    shutil.copyfile(theirs / "stranger.gguf", theirs / "big.gguf")
    with pytest.raises(AppError, match=r"big cannot be used: .*big.gguf has changed since it was imported"):
        selector.select("big", None)
    (theirs / "small.gguf").rename(theirs / "moved.gguf")
    with pytest.raises(AppError, match=r"small.gguf is gone"):
        selector.select(str(theirs / "stranger.gguf"), "small")
    imported(theirs / "big.gguf", capsys)
    assert selector.select("big", None).target.path == theirs / "big.gguf"


def test_removing_an_import_keeps_the_file(theirs: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    imported(theirs, capsys)
    assert main(["models", "remove", "big"]) == 0
    assert "its file stays" in capsys.readouterr().out
    assert (theirs / "big.gguf").exists()
    assert main(["models", "remove", "big"]) == 1


def test_a_name_of_the_catalogue_is_not_taken_away(
    theirs: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (theirs / "big.gguf").rename(theirs / "starter.gguf")
    assert imported(theirs / "starter.gguf", capsys)["imported"][0]["name"] == "starter-2"


def test_our_own_folder_is_not_imported(theirs: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(theirs, home / "models" / "acme" / "x")
    assert main(["models", "import", str(home)]) == 1
    assert "nothing to import" in capsys.readouterr().err


def test_a_copy_of_a_downloaded_file_is_one_draft_under_a_name_of_its_own(
    theirs: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = home / "models" / "acme" / "x" / "small.gguf"
    here.parent.mkdir(parents=True)
    shutil.copyfile(theirs / "small.gguf", here)
    Inventory(home / "models").record(here, "0" * 64, origin="hub", repo="acme/x", revision=None)
    outcome = imported(theirs, capsys)
    assert [model["name"] for model in outcome["imported"]] == ["big", "small-2", "stranger"]
    assert [(pair["draft"], pair["target"]) for pair in outcome["pairings"]] == [("small-2", "big")]
    selector = Selector.at(Paths.find())
    assert selector.select("small-2", None).target.path == theirs / "small.gguf"
    assert selector.select("small", None).target.path == here


def test_a_draft_that_was_downloaded_counts(theirs: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    here = home / "models" / "acme" / "x" / "tiny.gguf"
    here.parent.mkdir(parents=True)
    (theirs / "small.gguf").rename(here)
    Inventory(home / "models").record(here, "0" * 64, origin="hub", repo="acme/x", revision=None)
    assert [(pair["draft"], pair["target"]) for pair in imported(theirs, capsys)["pairings"]] == [("tiny", "big")]


def test_nothing_there_is_one_line(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "import", str(tmp_path / "no")]) == 1
    assert capsys.readouterr().err == f"paceline: there is no {tmp_path / 'no'}\n"


def test_other_programs_are_found_by_themselves(
    target: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "OLLAMA_MODELS", "LLAMA_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    model = tmp_path / ".lmstudio" / "models" / "acme" / "tiny" / "tiny.gguf"
    model.parent.mkdir(parents=True)
    shutil.copyfile(target, model)
    assert main(["models", "import", "--json"]) == 0
    [found] = json.loads(capsys.readouterr().out)["imported"]
    assert (found["name"], found["origin"]) == ("tiny", "LM Studio")
