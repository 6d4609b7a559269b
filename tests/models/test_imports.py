"""The registry of imported models: nothing copied, nothing written beside them, and a changed file is noticed."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from models import BadGguf, ChecksumMismatch, DownloadCancelled
from models.errors import BadCatalogue
from models.importer import Found
from models.imports import ImportedModel, Imports, inspect, with_hashes
from models.pairing import pairings


@pytest.fixture
def theirs(tmp_path: Path, target: Path) -> Path:
    """A model in another program's folder."""
    path = tmp_path / "theirs" / "tiny.gguf"
    path.parent.mkdir()
    shutil.copyfile(target, path)
    return path


@pytest.fixture
def imports(tmp_path: Path) -> Imports:
    return Imports(tmp_path / "ours")


def looked_at(path: Path, name: str = "tiny") -> ImportedModel:
    return inspect(Found(path, name, "file"))


def test_what_is_kept_comes_back(imports: Imports, theirs: Path) -> None:
    kept = imports.add(looked_at(theirs))
    assert imports.find("tiny") == kept
    assert imports.list() == [kept]
    assert (kept.path, kept.bytes, kept.fault(), kept.state) == (theirs, theirs.stat().st_size, None, "imported")
    assert (kept.architecture, kept.quantisation) == ("llama", "F32")
    assert os.listdir(theirs.parent) == ["tiny.gguf"]


def test_a_changed_or_vanished_file_says_so(imports: Imports, theirs: Path) -> None:
    kept = imports.add(looked_at(theirs))
    os.utime(theirs, ns=(1, 1))
    assert kept.fault() == f"{theirs} has changed since it was imported"
    again = imports.add(looked_at(theirs))
    assert (again.fault(), again.name) == (None, "tiny")
    theirs.unlink()
    assert again.fault() == f"{theirs} is gone"
    assert [model.state for model in imports.list()] == ["changed"]


def test_names_stay_apart_and_stay_put(imports: Imports, theirs: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.gguf"
    shutil.copyfile(theirs, other)
    assert imports.add(looked_at(theirs)).name == "tiny"
    assert imports.add(looked_at(other)).name == "tiny-2"
    assert imports.add(looked_at(theirs, "renamed")).name == "tiny"
    assert imports.add(looked_at(other, "starter"), taken={"starter"}).name == "tiny-2"
    assert imports.remove("tiny-2")
    assert imports.add(looked_at(other, "starter"), taken={"starter"}).name == "starter-2"
    assert not imports.remove("tiny-2")
    assert other.exists()


def test_hashes_are_computed_once_and_outlive_another_import(imports: Imports, theirs: Path) -> None:
    seen: list[int] = []
    hashed = with_hashes(looked_at(theirs), None, progress=seen.append, cancelled=lambda: False)
    digest = hashlib.sha256(theirs.read_bytes()).hexdigest()
    assert hashed.files[0].sha256 == digest
    assert seen[-1] == theirs.stat().st_size
    imports.add(hashed)
    assert imports.add(looked_at(theirs)).files[0].sha256 == digest
    os.utime(theirs, ns=(1, 1))
    assert imports.add(looked_at(theirs)).files[0].sha256 is None


def test_a_blob_that_is_not_what_it_is_stored_under(theirs: Path) -> None:
    with pytest.raises(ChecksumMismatch, match="not the one it is stored under"):
        with_hashes(looked_at(theirs), "0" * 64, progress=lambda _: None, cancelled=lambda: False)
    with pytest.raises(DownloadCancelled):
        with_hashes(looked_at(theirs), None, progress=lambda _: None, cancelled=lambda: True)


def test_what_is_no_gguf_is_refused(tmp_path: Path, truncated: Path) -> None:
    with pytest.raises(BadGguf):
        looked_at(truncated)
    (tmp_path / "text.gguf").write_text("hello")
    with pytest.raises(BadGguf):
        looked_at(tmp_path / "text.gguf")


@pytest.mark.parametrize("text", ["", "{}x", "[1]", "[{}]", "[null]", '[{"files": [], "vocabulary": null}]', "3"])
def test_a_damaged_registry_is_not_overwritten(imports: Imports, theirs: Path, tmp_path: Path, text: str) -> None:
    registry = tmp_path / "ours" / "imported.json"
    registry.parent.mkdir()
    registry.write_text(text)
    for use in (imports.list, lambda: imports.add(looked_at(theirs))):
        with pytest.raises(BadCatalogue, match="delete it and import again"):
            use()
    assert registry.read_text() == text


def test_who_can_draft_for_whom(theirs: Path, mismatched: Path, padded: Path) -> None:
    big = replace(looked_at(theirs, "big"), weight_bytes=1000)
    small, half = replace(looked_at(padded, "small"), weight_bytes=100), replace(big, name="half", weight_bytes=500)
    stranger = replace(looked_at(mismatched, "stranger"), weight_bytes=100)
    wordless = replace(small, name="wordless", vocabulary=None)
    found = [(pair.draft, pair.target, pair.share) for pair in pairings([stranger, half, big, small, wordless])]
    assert found == [("small", "big", 0.1), ("half", "big", 0.5), ("small", "half", 0.2)]


def test_a_full_disk_names_the_registry_and_leaves_nothing_behind(
    imports: Imports, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("models.imports.os.replace", full)
    with pytest.raises(OSError, match=r"No space left on device.*imported\.json"):
        imports.add(looked_at(theirs))
    assert not list(tmp_path.rglob("*.tmp"))
