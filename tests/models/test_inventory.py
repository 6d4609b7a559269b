"""The inventory gives out what is whole and unchanged since it was verified, and nothing else."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest
from filelock import FileLock

from models import Inventory, ModelBusy, ModelFile
from tests.models.conftest import content, model_file

BODY = content(1000)


def placed(models_dir: Path, file: ModelFile) -> Path:
    inventory = Inventory(models_dir)
    path = inventory.location(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(BODY)
    inventory.record(path, hashlib.sha256(BODY).hexdigest(), origin="hub", repo=file.repo, revision=None)
    return path


def test_an_empty_or_absent_directory_holds_nothing(tmp_path: Path) -> None:
    inventory = Inventory(tmp_path / "none")
    assert inventory.list() == []
    assert inventory.path_of(model_file(BODY)) is None


def test_a_touched_file_is_no_longer_given_out(tmp_path: Path) -> None:
    file = model_file(BODY)
    path = placed(tmp_path, file)
    inventory = Inventory(tmp_path)
    assert inventory.path_of(file) == path
    os.utime(path, ns=(1, 1))
    assert inventory.path_of(file) is None
    assert [entry.state for entry in inventory.list()] == ["unverified"]


def test_a_broken_record_counts_as_none(tmp_path: Path) -> None:
    file = model_file(BODY)
    path = placed(tmp_path, file)
    for text in ("", "{}", "[]", "null", '{"sha256": 1}', "\0"):
        path.with_name(path.name + ".verified.json").write_text(text)
        assert Inventory(tmp_path).path_of(file) is None


def test_the_same_name_from_two_repositories_is_two_files(tmp_path: Path) -> None:
    file = model_file(BODY)
    other = file.model_copy(update={"repo": "someone/else"})
    placed(tmp_path, file)
    assert Inventory(tmp_path).path_of(other) is None


def test_another_hash_under_the_same_name_is_not_the_file(tmp_path: Path) -> None:
    file = model_file(BODY)
    placed(tmp_path, file)
    assert Inventory(tmp_path).path_of(file.model_copy(update={"sha256": "0" * 64})) is None


def test_remove_takes_everything_of_one_file_and_leaves_the_rest(tmp_path: Path) -> None:
    file, other = model_file(BODY), model_file(BODY, "other.gguf")
    placed(tmp_path, file)
    kept = placed(tmp_path, other)
    inventory = Inventory(tmp_path)
    inventory.part_location(file).write_bytes(b"half")
    assert [(e.name.split("/")[-1], e.state) for e in inventory.list()] == [
        ("other.gguf", "whole"),
        ("tiny.gguf", "whole"),
        ("tiny.gguf", "partial"),
    ]
    assert inventory.remove(file) == len(BODY) + 4
    assert [entry.path for entry in inventory.list()] == [kept]
    assert inventory.remove_local(inventory.list()[0]) == len(BODY)
    assert list(tmp_path.iterdir()) == []
    assert inventory.remove(file) == 0


def test_a_file_being_fetched_is_not_removed(tmp_path: Path) -> None:
    file = model_file(BODY)
    path = placed(tmp_path, file)
    inventory = Inventory(tmp_path)
    with FileLock(inventory.lock_location(file)), pytest.raises(ModelBusy):
        inventory.remove(file)
    assert path.exists()
    assert inventory.remove(file) == len(BODY)
