"""Help, settings and presets: the screens over the chat."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.app import App, ComposeResult
from textual.screen import Screen
from textual.widgets import Checkbox, Input, Select, Static, TextArea

from app.paths import Paths
from app.settings import (
    ChatSettings,
    Preset,
    Settings,
    built_in_presets,
    load_presets,
    own_presets,
    save_presets,
)
from app.tui.keys import KEYS, apply_keys, bind
from app.tui.screens.form import FormRow
from app.tui.screens.help import COMMANDS_HEADING, HelpScreen, help_lines
from app.tui.screens.presets import PresetForm, PresetsScreen
from app.tui.screens.settings import SettingsResult, SettingsScreen
from app.tui.themes import NO_COLOUR, apply_theme
from app.tui.widgets.prompt import Prompt

CHAT = ChatSettings(system="Be [b]brief[/b].", temperature=0.3, preset="Mine")


class Host(App[None]):
    BINDINGS = [bind("help", "help"), bind("pace", "pace")]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        yield Prompt(lambda most: [])

    def on_mount(self) -> None:
        apply_theme(self, "dark", {})
        apply_keys(self, {"pace": "ctrl+b"})

    def action_help(self) -> None:
        self.push_screen(HelpScreen({"pace": "ctrl+b"}))

    def action_pace(self) -> None:
        pass


def row(screen: Screen[object], name: str) -> FormRow:
    return next(row for row in screen.query(FormRow) if row.entry.name == name)


def problem(screen: Screen[object], name: str) -> str:
    shown = row(screen, name)
    return str(shown.query_one(".problem", Static).render()) if shown.has_class("-wrong") else ""


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths.find({"PACELINE_HOME": str(tmp_path)})


# ---- help


async def test_help_shows_the_bindings_there_are_with_the_users_keys() -> None:
    app = Host()
    async with app.run_test(size=(100, 40)):
        lines = {line.id: line for line in help_lines(app, app.screen, {"pace": "ctrl+b"}) if line.id}
        commands = [line.press for line in help_lines(app, app.screen, {}) if line.heading == COMMANDS_HEADING]
    assert lines["pace"].press == "Ctrl+B"
    assert lines["newline"].press == "Ctrl+J  Alt+Enter  Shift+Enter"
    assert "models" not in lines  # nothing binds it here
    assert set(lines) < set(KEYS)
    assert commands == ["/attach <path>", "/pace", "/help", "/quit"]  # what has no action here is not offered


async def test_help_can_be_searched_scrolled_and_closed() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f1")
        await pilot.pause()
        screen = app.screen
        assert isinstance(screen, HelpScreen)
        await pilot.press("down", "pagedown")
        await pilot.pause()
        assert screen.query_one("#lines").scroll_y > 0
        await pilot.press(*"new line")
        await pilot.pause()
        assert "1" not in str(screen.query_one("#lines Static", Static).size.height)[1:]
        await pilot.press(*"zzz")
        await pilot.pause()
        assert "nothing has that" in str(screen.query_one("#lines Static", Static).render())
        await pilot.press("escape")
        await pilot.pause()
        assert app.screen is not screen


async def test_a_heading_of_the_help_is_as_wide_as_the_screen_allows() -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f1", *"/quit")
        await pilot.pause()
        lines = app.screen.query_one("#lines Static", Static)
        rows = ["".join(segment.text for segment in strip).strip() for strip in lines.render_lines(lines.size.region)]
        assert rows == [COMMANDS_HEADING, "/quit  Leave Paceline"]


# ---- settings


async def test_settings_are_changed_when_they_are_saved() -> None:
    app, results = Host(), list[SettingsResult | None]()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = SettingsScreen(Settings(keys={"pace": "ctrl+b"}), CHAT)
        await app.push_screen(screen, results.append)
        await pilot.pause()
        row(screen, "temperature").query_one(Input).value = "0.7"
        row(screen, "system").query_one(TextArea).text = ""
        row(screen, "stop").query_one(TextArea).text = "END\n\nSTOP"
        row(screen, "kv_state_budget_mb").query_one(Input).value = "100"
        row(screen, "auto_title").query_one(Checkbox).value = False
        row(screen, "on_context_full").query_one(Select).value = "stop"
        await pilot.press("ctrl+s")
        await pilot.pause()
    assert results == [SettingsResult(
        Settings(keys={"pace": "ctrl+b"}, kv_state_budget_mb=100, auto_title=False, on_context_full="stop"),
        ChatSettings(temperature=0.7, stop=("END", "STOP"), preset="Mine"),
    )]


async def test_new_chats_can_start_like_this_one() -> None:
    app, results = Host(), list[SettingsResult | None]()
    async with app.run_test() as pilot:
        await app.push_screen(SettingsScreen(Settings(), CHAT), results.append)
        await pilot.pause()
        app.screen.query_one("#also", Checkbox).value = True
        await pilot.press("ctrl+s")
        await pilot.pause()
        await app.push_screen(SettingsScreen(Settings()), results.append)
        await pilot.pause()
        row(app.screen, "seed").query_one(Input).value = "7"
        await pilot.press("ctrl+s")
        await pilot.pause()
    assert results == [SettingsResult(Settings(chat=CHAT), CHAT), SettingsResult(Settings(chat=ChatSettings(seed=7)), None)]


async def test_a_wrong_value_is_told_below_it_and_not_saved() -> None:
    app, results = Host(), list[SettingsResult | None]()
    async with app.run_test() as pilot:
        screen = SettingsScreen(Settings(), CHAT)
        await app.push_screen(screen, results.append)
        await pilot.pause()
        row(screen, "temperature").query_one(Input).value = "hot"
        row(screen, "top_p").query_one(Input).value = "2"
        row(screen, "mode").query_one(Input).value = "fast"
        await pilot.pause()
        assert problem(screen, "temperature") == "is 'hot'; it must be a valid number"
        assert problem(screen, "top_p") == "is '2'; it must be less than or equal to 1"
        assert "must be auto, plain" in problem(screen, "mode")
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert results == []
        assert row(screen, "temperature").query_one(Input).has_focus
        row(screen, "temperature").query_one(Input).value = ""
        await pilot.pause()
        assert problem(screen, "temperature") == ""


async def test_a_theme_is_shown_at_once_and_taken_back_by_cancelling() -> None:
    app, results = Host(), list[SettingsResult | None]()
    async with app.run_test() as pilot:
        screen = SettingsScreen(Settings(), None)
        await app.push_screen(screen, results.append)
        await pilot.pause()
        row(screen, "theme").query_one(Select).value = "light"
        await pilot.pause()
        assert app.theme == "light"
        await pilot.press("escape")
        await pilot.pause()
        assert (app.theme, results) == ("dark", [None])


async def test_a_theme_does_not_show_where_no_colour_is_wanted_but_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app, results = Host(), list[SettingsResult | None]()
    async with app.run_test() as pilot:
        app.theme = NO_COLOUR
        screen = SettingsScreen(Settings(), None)
        await app.push_screen(screen, results.append)
        await pilot.pause()
        row(screen, "theme").query_one(Select).value = "light"
        await pilot.pause()
        assert app.theme == NO_COLOUR
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert app.theme == NO_COLOUR
    assert results[0] is not None
    assert results[0].settings.theme == "light"


# ---- presets


async def test_a_preset_is_chosen(paths: Paths) -> None:
    app, results = Host(), list[ChatSettings | None]()
    async with app.run_test() as pilot:
        await app.push_screen(PresetsScreen(paths, ChatSettings()), results.append)
        await pilot.pause()
        await pilot.press("down", "enter")
        await pilot.pause()
    assert results == [built_in_presets()[1].applied()]


async def test_a_preset_is_made_of_the_chat_changed_deleted_and_brought_back(paths: Paths) -> None:
    app = Host()
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(PresetsScreen(paths, CHAT))
        await pilot.pause()
        await pilot.press("n")
        await pilot.pause()
        assert isinstance(app.screen, PresetForm)
        row(app.screen, "name").query_one(Input).value = "[brief]"
        await pilot.press("ctrl+s")
        await pilot.pause()
        made = Preset.of("[brief]", CHAT)
        assert own_presets(paths) == (made,)
        await pilot.press("c")
        await pilot.pause()
        row(app.screen, "top_k").query_one(Input).value = "7"
        await pilot.press("ctrl+s")
        await pilot.pause()
        changed = made.model_copy(update={"top_k": 7})
        assert own_presets(paths) == (changed,)
        await pilot.press("d")
        await pilot.pause()
        assert own_presets(paths) == ()
        await pilot.press("u")
        await pilot.pause()
        assert own_presets(paths) == (changed,)


async def test_ours_can_be_changed_but_not_deleted(paths: Paths) -> None:
    app = Host()
    async with app.run_test() as pilot:
        await app.push_screen(PresetsScreen(paths, ChatSettings(preset="Code")))
        await pilot.pause()
        await pilot.press("d")
        await pilot.pause()
        assert load_presets(paths) == built_in_presets()
        await pilot.press("c")
        await pilot.pause()
        row(app.screen, "temperature").query_one(Input).value = "1"
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert [(preset.name, preset.temperature) for preset in own_presets(paths)] == [("Code", 1.0)]


async def test_a_name_without_letters_is_refused(paths: Paths) -> None:
    app = Host()
    async with app.run_test() as pilot:
        await app.push_screen(PresetsScreen(paths, ChatSettings()))
        await pilot.pause()
        await pilot.press("n")
        await pilot.pause()
        row(app.screen, "name").query_one(Input).value = " "
        await pilot.press("ctrl+s")
        await pilot.pause()
        assert problem(app.screen, "name")
        assert own_presets(paths) == ()


async def test_a_broken_file_is_told_and_not_touched(paths: Paths) -> None:
    paths.config.mkdir(parents=True)
    (paths.config / "presets.toml").write_text("[[presets]]\nname = 1\n")
    told: list[str] = []
    app, results = Host(), list[ChatSettings | None]()
    app.notify = lambda message, **more: told.append(message)  # type: ignore[method-assign, assignment]
    async with app.run_test() as pilot:
        await app.push_screen(PresetsScreen(paths, ChatSettings()), results.append)
        await pilot.pause()
    assert results == [None]
    assert "presets.toml, line 2" in told[0]
    with pytest.raises(Exception, match="line 2"):
        save_presets(paths, [])
