from __future__ import annotations

from pathlib import Path

import pytest

from app.paths import Paths
from app.settings import Preset, SettingsError, built_in_presets, load_presets, own_presets, save_presets


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.find({"PACELINE_HOME": str(tmp_path)})


@pytest.fixture
def file(paths: Paths) -> Path:
    paths.config.mkdir()
    return paths.config / "presets.toml"


def test_those_that_come_along_are_sound() -> None:
    presets = built_in_presets()
    assert len({preset.name for preset in presets}) == len(presets) > 3
    assert all(preset.description for preset in presets)


def test_the_users_come_first_and_replace_ours_by_name(paths: Paths) -> None:
    mine = (Preset(name="Haiku", system="Answer in haiku.\nAlways."), Preset(name="Code", temperature=0.9))
    save_presets(paths, mine)
    presets = load_presets(paths)
    assert presets[:2] == mine
    assert [preset.name for preset in presets].count("Code") == 1
    assert len(presets) == len(built_in_presets()) + 1


def test_comments_outlive_a_save(paths: Paths, file: Path) -> None:
    file.write_text('# mine\n[[presets]]\nname = "A"\ntemperature = 0.1 # cool\n\n# second\n[[presets]]\nname = "B"\nseed = 1\n')
    save_presets(paths, [Preset(name="A", temperature=0.2), Preset(name="B")])
    assert file.read_text() == '# mine\n[[presets]]\nname = "A"\ntemperature = 0.2 # cool\n\n# second\n[[presets]]\nname = "B"\n'


def test_added_and_removed(paths: Paths, file: Path) -> None:
    file.write_text('[[presets]]\nname = "A" # first\n\n[[presets]]\nname = "B"\n')
    wanted = (Preset(name="A"), Preset(name="C", system="x\ny", stop=("a",)))
    save_presets(paths, wanted)
    assert own_presets(paths) == wanted
    assert "# first" in file.read_text()
    save_presets(paths, [])
    assert own_presets(paths) == ()


def test_a_mistake_is_told_with_file_and_line(paths: Paths, file: Path) -> None:
    file.write_text('[[presets]]\nname = "A"\n\n[[presets]]\nname = "B"\ntop_p = 2\n')
    with pytest.raises(SettingsError, match=r"presets\.toml, line 6: presets\.top_p is 2"):
        load_presets(paths)


def test_a_name_twice_is_told(paths: Paths, file: Path) -> None:
    file.write_text('[[presets]]\nname = "A"\n\n[[presets]]\nname = "A"\n')
    with pytest.raises(SettingsError, match="'A' is there twice"):
        load_presets(paths)


def test_a_broken_file_is_not_overwritten(paths: Paths, file: Path) -> None:
    file.write_text("[[presets]]\n")
    with pytest.raises(SettingsError, match=r"presets\.name is missing"):
        save_presets(paths, [Preset(name="A")])
    assert file.read_text() == "[[presets]]\n"
