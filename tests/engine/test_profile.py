"""What was measured survives a restart exactly, and a file that is damaged or another pair's is measured anew."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from engine import Engine, LoadConfig
from engine.cost import CostModel
from engine.profile import Profile, load_profile, profile_path

KEY = {"target": "model.gguf:123", "draft": "", "devices": "cpu"}


def measured() -> CostModel:
    costs = CostModel()
    for rows, seconds in ((1, 0.0301234567), (4, 0.07), (16, 0.2)):
        costs.target.set(rows, 64, seconds)
        costs.draft.set(rows, 64, seconds / 3)
    return costs


def saved(directory: Path, key: dict[str, str] = KEY) -> Profile:
    profile = Profile(profile_path(directory, key), key, measured().copy(), measured().copy())
    profile.save()
    return profile


def test_a_profile_comes_back_as_it_was(tmp_path: Path) -> None:
    profile = saved(tmp_path)
    profile.costs.target.observe(4, 64, 0.09)
    profile.acceptance.observe_model(0.9, 0.0)
    profile.save()
    loaded = load_profile(tmp_path, KEY)
    assert loaded is not None
    assert loaded.calibrated.to_json() == profile.calibrated.to_json()
    assert loaded.costs.to_json() == profile.costs.to_json() != loaded.calibrated.to_json()
    assert loaded.acceptance.to_json() == profile.acceptance.to_json()


def test_there_is_one_file_per_pair_and_machine_named_after_the_model(tmp_path: Path) -> None:
    saved(tmp_path)
    saved(tmp_path, KEY | {"devices": "a GPU"})
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 2
    assert all(name.startswith("model.gguf--") and name.endswith(".json") for name in names)
    assert load_profile(tmp_path, KEY | {"draft": "other"}) is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "", lambda text: text[: len(text) // 2], lambda text: "[]", lambda text: "null",
        lambda text: text.replace('"format": ', '"format": 9'),
        lambda text: text.replace("model.gguf:123", "model.gguf:124"),
        lambda text: text.replace('"1"', '"one"'),
        lambda text: text.replace('"learned"', '"unlearned"'),
        lambda text: json.dumps(json.loads(text) | {"acceptance": []}),
        lambda text: json.dumps(json.loads(text) | {"calibrated": {"target": [{}], "draft": [{}]}}),
        lambda text: json.dumps(json.loads(text) | {"calibrated": {"target": [{"1": -1}], "draft": []}}),
    ],
)
def test_a_damaged_file_is_none(damage: object, tmp_path: Path) -> None:
    path = saved(tmp_path).path
    assert path is not None
    assert load_profile(tmp_path, KEY) is not None
    path.write_text(damage(path.read_text()))  # type: ignore[operator]
    assert load_profile(tmp_path, KEY) is None


def test_bytes_that_are_no_text_are_none(tmp_path: Path) -> None:
    path = saved(tmp_path).path
    assert path is not None
    path.write_bytes(b"\xff\xfe\x00" * 100)
    assert load_profile(tmp_path, KEY) is None


def test_without_a_folder_nothing_is_kept(tmp_path: Path) -> None:
    assert profile_path(None, KEY) is None
    Profile(None, KEY, measured(), measured()).save()
    assert load_profile(None, KEY) is None
    assert load_profile(tmp_path / "missing", KEY) is None


@pytest.mark.skipif(sys.platform == "win32", reason="permissions are Unix's")
def test_the_file_is_the_user_s_alone_and_no_part_stays_behind(tmp_path: Path) -> None:
    path = saved(tmp_path / "new folder").path
    assert path is not None
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_costs_the_file_and_nothing_else(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    saved(tmp_path)
    tmp_path.chmod(0o700)
    assert list(tmp_path.iterdir()) == []


def test_the_first_engine_decides_with_the_figures_the_next_one_reads(target: Path, draft: Path, tmp_path: Path) -> None:
    """A seeded reply is decided by them, and has to come out the same in both."""
    config = LoadConfig(target, draft, context=512, threads=1, profile_dir=tmp_path)
    figures = []
    for _ in range(2):
        with Engine(config) as engine:
            costs = engine._profile.calibrated
            figures.append([costs.verify(n, 100) for n in range(1, 65)] + [costs.draft_step(100), costs.catch_up(30, 100)])
    assert figures[0] == figures[1]
