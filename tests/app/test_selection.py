from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from app.errors import AppError
from app.selection import Choice, Selection, Selector
from models import Catalogue, Inventory, ModelFile, Pair, UnknownModel


def file(name: str, **facts: object) -> ModelFile:
    body = name.encode()
    return ModelFile(
        name=name, repo="acme/models", file=f"{name}.gguf", bytes=len(body), sha256=hashlib.sha256(body).hexdigest(), **facts  # type: ignore[arg-type]
    )


BIG, SMALL, ALONE, HUGE = file("big"), file("small"), file("alone"), file("huge")
BROKEN = file("broken", unusable="it uses an old format; take big")
PAIRS = (
    Pair(name="starter", title="Starter", target=BIG, draft=SMALL),
    Pair(name="other", title="Other", target=HUGE, draft=SMALL),
    Pair(name="clash", title="Clash", target=ALONE, draft=SMALL, unusable="their vocabularies differ"),
)


@pytest.fixture
def inventory(tmp_path: Path) -> Inventory:
    return Inventory(tmp_path / "models")


@pytest.fixture
def selector(inventory: Inventory) -> Selector:
    return Selector(Catalogue([BIG, SMALL, ALONE, HUGE, BROKEN], PAIRS), inventory)


def put(inventory: Inventory, model: ModelFile) -> Path:
    """The file on disk, verified."""
    path = inventory.location(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(model.name.encode())
    assert model.sha256
    inventory.record(path, model.sha256, origin="hub", repo=model.repo, revision=None)
    return path


def test_nothing_said_is_the_starter_pair(selector: Selector) -> None:
    assert selector.select(None, None) == Selection(Choice(file=BIG), Choice(file=SMALL), draft_implied=True)


def test_nothing_said_takes_a_pair_that_is_here_before_fetching_the_starter(selector: Selector, inventory: Inventory) -> None:
    put(inventory, HUGE)
    assert selector.select(None, None).target == Choice(file=HUGE)
    put(inventory, BIG)
    assert selector.select(None, None).target == Choice(file=BIG)


@pytest.mark.parametrize("name", ["other", "huge", "huge.gguf", "acme/models/huge.gguf"])
def test_a_pair_or_its_target_brings_the_draft(selector: Selector, name: str) -> None:
    assert selector.select(name, None) == Selection(Choice(file=HUGE), Choice(file=SMALL), draft_implied=True)


def test_the_draft_can_be_refused_or_replaced(selector: Selector) -> None:
    assert selector.select("other", "none").draft is None
    assert selector.select("other", "big") == Selection(Choice(file=HUGE), Choice(file=BIG))
    assert selector.select("other", "starter").draft == Choice(file=SMALL)


def test_a_pair_that_does_not_work_runs_without_its_draft_and_says_why(selector: Selector) -> None:
    selection = selector.select("clash", None)
    assert selection.draft is None
    assert selection.remark is not None
    assert "their vocabularies differ" in selection.remark


def test_a_file_that_does_not_work_is_refused(selector: Selector) -> None:
    with pytest.raises(AppError, match="old format; take big"):
        selector.select("broken", None)


def test_a_path_is_taken_as_it_is(selector: Selector, tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.touch()
    assert selector.select(str(path), str(path)) == Selection(Choice(path=path), Choice(path=path))
    assert selector.select(str(path), None).draft is None


def test_a_path_to_a_catalogue_file_brings_the_draft_as_well(selector: Selector, inventory: Inventory) -> None:
    path = put(inventory, BIG)
    assert selector.select(str(path), None) == Selection(Choice(path=path), Choice(file=SMALL), draft_implied=True)


def test_wrong_names_are_told_apart(selector: Selector, tmp_path: Path) -> None:
    with pytest.raises(AppError, match=r"there is no file .*gone\.gguf"):
        selector.select(str(tmp_path / "gone.gguf"), None)
    with pytest.raises(AppError, match="is a directory"):
        selector.select(f"{tmp_path}/", None)
    with pytest.raises(UnknownModel, match="no model named 'bgi'"):
        selector.select("bgi", None)
    with pytest.raises(UnknownModel, match="write hf:owner"):
        selector.select("hf:nonsense", None)


def test_the_hub_can_be_named(selector: Selector) -> None:
    target = selector.select("hf:someone/repo/model.gguf", None).target.file
    assert target is not None
    assert (target.repo, target.file) == ("someone/repo", "model.gguf")


def test_pull_and_remove_mean_all_files_of_a_pair(selector: Selector) -> None:
    assert selector.files_named("starter") == [BIG, SMALL]
    assert selector.files_named("small") == [SMALL]
