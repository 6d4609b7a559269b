from __future__ import annotations

import stat
from pathlib import Path

import pytest

from app.paths import Paths
from app.settings import ChatSettings, LoadSettings, Settings, SettingsError, load_settings, save_settings


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.find({"PACELINE_HOME": str(tmp_path)})


@pytest.fixture
def file(paths: Paths) -> Path:
    paths.config.mkdir()
    return paths.config / "settings.toml"


def test_no_file_means_the_defaults(paths: Paths) -> None:
    assert load_settings(paths) == Settings()


def test_what_is_saved_is_loaded(paths: Paths) -> None:
    settings = Settings(
        theme="light", show_pace=False, on_context_full="summarise", shadow_rate=0.25,
        keys={"quit": "ctrl+x"}, load=LoadSettings(target="qwen", ctx=8192),
        chat=ChatSettings(system="One.\nTwo.", temperature=0, stop=("END",), mode="fixed:4"),
    )
    save_settings(paths, settings)
    assert load_settings(paths) == settings


def test_defaults_stay_out_of_the_file(paths: Paths) -> None:
    save_settings(paths, Settings(theme="light"))
    assert (paths.config / "settings.toml").read_text() == 'theme = "light"\n'


def test_the_file_is_private(paths: Paths) -> None:
    save_settings(paths, Settings(theme="light"))
    assert stat.S_IMODE((paths.config / "settings.toml").stat().st_mode) == 0o600


def test_comments_and_order_outlive_a_save(paths: Paths, file: Path) -> None:
    file.write_text('# mine\nshow_pace = false  # too busy\ntheme = "dark"\n\n[chat]\n# why not\ntemperature = 0.3\n')
    save_settings(paths, Settings(show_pace=True, theme="light", chat=ChatSettings(temperature=0.5)))
    assert file.read_text() == (
        '# mine\nshow_pace = true  # too busy\ntheme = "light"\n\n[chat]\n# why not\ntemperature = 0.5\n'
    )


def test_a_value_taken_back_leaves_the_file(paths: Paths, file: Path) -> None:
    file.write_text('[chat]\ntemperature = 0.3\nseed = 4\n\n[keys]\nquit = "ctrl+x"\nhelp = "f2"\n')
    save_settings(paths, Settings(chat=ChatSettings(seed=4), keys={"help": "f2"}))
    assert file.read_text() == '[chat]\nseed = 4\n\n[keys]\nhelp = "f2"\n'


def test_a_table_added_to_a_file_follows_its_values(paths: Paths, file: Path) -> None:
    file.write_text('theme = "light"\n')
    save_settings(paths, Settings(theme="light", shadow_rate=0.5, chat=ChatSettings(seed=4)))
    assert load_settings(paths) == Settings(theme="light", shadow_rate=0.5, chat=ChatSettings(seed=4))


def test_what_another_window_changed_meanwhile_stays(paths: Paths) -> None:
    mine = load_settings(paths)
    save_settings(paths, Settings(theme="light", keys={"help": "f2"}))
    changed = mine.model_copy(update={"show_pace": False})
    save_settings(paths, changed, since=mine)
    assert load_settings(paths) == Settings(theme="light", show_pace=False, keys={"help": "f2"})


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('theme = "dark"\nshow_pace = "often"\n', "line 2: show_pace is 'often'; it must be a valid boolean"),
        ("\n[chat]\ntemperature = -1\n", "line 3: chat.temperature is -1; it must be greater than or equal to 0"),
        ("[chat]\ntemperature = nan\n", "line 2: chat.temperature is nan"),
        ("[chat]\ntemprature = 1\n", "line 2: chat.temprature is not a setting"),
        ('[chat]\nmode = "fast"\n', "line 2: chat.mode is 'fast'; it must be auto, plain"),
        ('on_context_full = "burst"\n', "line 1: on_context_full is 'burst'; it must be 'drop', 'stop' or 'summarise'"),
        ('theme = "dark\n', "line 1: not valid TOML"),
    ],
)
def test_a_mistake_is_told_with_file_line_and_field(paths: Paths, file: Path, text: str, complaint: str) -> None:
    file.write_text(text)
    with pytest.raises(SettingsError) as refusal:
        load_settings(paths)
    assert str(refusal.value).startswith(f"{file}, {complaint}")
    assert "\n" not in str(refusal.value)


def test_a_file_that_is_no_text_is_told(paths: Paths, file: Path) -> None:
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="is not UTF-8 text"):
        load_settings(paths)


def test_a_broken_file_is_not_overwritten(paths: Paths, file: Path) -> None:
    file.write_text("theme = \n")
    with pytest.raises(SettingsError, match="line 1"):
        save_settings(paths, Settings(theme="light"))
    assert file.read_text() == "theme = \n"


def test_a_folder_that_cannot_be_made_is_one_line(paths: Paths) -> None:
    paths.config.write_text("a file where the folder should be")
    with pytest.raises(SettingsError, match=r"cannot (write|read)"):
        save_settings(paths, Settings(theme="light"))
