"""How the prompt and the screens over the chat look. After a wanted change: pytest --snapshot-update, and look at the report."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from textual.app import App, ComposeResult
from textual.filter import LineFilter
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Static

from app.paths import Paths
from app.settings import ChatSettings, Settings
from app.tui.keys import apply_keys, bind
from app.tui.screens.help import HelpScreen
from app.tui.screens.presets import PresetsScreen
from app.tui.screens.settings import SettingsScreen
from app.tui.themes import apply_theme, line_filters
from app.tui.widgets.prompt import Prompt

Compare = Callable[..., bool]

THEMES = [("dark", (80, 24)), ("light", (120, 36)), ("high-contrast", (60, 20)), ("no-colour", (80, 24))]


class Shown(App[None]):
    """A prompt under an empty chat, in a theme."""

    CSS = "#chat { height: 1fr; }"
    BINDINGS = [bind("help", "help"), bind("quit", "quit"), bind("pace", "pace")]  # noqa: RUF012

    def __init__(self, theme_name: str, folder: Path, screen: Screen[Any] | None = None) -> None:
        super().__init__()
        self.theme_name = theme_name
        self.folder = folder
        self.over = screen

    def compose(self) -> ComposeResult:
        yield Static("", id="chat")
        yield Prompt(lambda most: [], self.folder)

    def on_mount(self) -> None:
        apply_theme(self, self.theme_name, {})
        apply_keys(self, {})
        self.query_one(Prompt).focus()
        if self.over is not None:
            self.push_screen(self.over)

    def get_line_filters(self) -> list[LineFilter]:
        return list(line_filters(self, super().get_line_filters()))

    def action_pace(self) -> None:
        pass

    def on_prompt_count_tokens(self, event: Prompt.CountTokens) -> None:
        self.query_one(Prompt).tokens_counted(event.tag, len(event.text))


@pytest.fixture(autouse=True)
def colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.parametrize(("theme", "size"), THEMES)
def test_help(snap_compare: Compare, tmp_path: Path, theme: str, size: tuple[int, int]) -> None:
    assert snap_compare(Shown(theme, tmp_path, HelpScreen()), terminal_size=size)


@pytest.mark.parametrize(("theme", "size"), THEMES)
def test_settings_with_a_mistake(snap_compare: Compare, tmp_path: Path, theme: str, size: tuple[int, int]) -> None:
    chat = ChatSettings(system="You are brief.\nYou never guess.", temperature=0.2, stop=("END",))
    screen = SettingsScreen(Settings(), chat)
    assert snap_compare(Shown(theme, tmp_path, screen), terminal_size=size, press=["tab", "x"])


@pytest.mark.parametrize(("theme", "size"), THEMES)
def test_presets(snap_compare: Compare, tmp_path: Path, theme: str, size: tuple[int, int]) -> None:
    screen = PresetsScreen(Paths.find({"PACELINE_HOME": str(tmp_path)}), ChatSettings(preset="Code review"))
    assert snap_compare(Shown(theme, tmp_path, screen), terminal_size=size)


@pytest.mark.parametrize(("theme", "size"), THEMES)
def test_prompt_with_attachments_and_completions(
    snap_compare: Compare, tmp_path: Path, theme: str, size: tuple[int, int]
) -> None:
    (tmp_path / "notes.txt").write_text("12345")
    (tmp_path / "photo.png").write_bytes(b"\0")

    async def write(pilot: Pilot[None]) -> None:
        prompt = pilot.app.query_one(Prompt)
        prompt.load("see @notes.txt and @photo.png, 你好 ")
        prompt.input.paste("line\n" * 200)
        await pilot.pause()
        await pilot.press("ctrl+j", "@")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause(0.3)
        await pilot.app.workers.wait_for_complete()

    assert snap_compare(Shown(theme, tmp_path), terminal_size=size, run_before=write)


@pytest.mark.parametrize(("theme", "size"), THEMES)
def test_commands(snap_compare: Compare, tmp_path: Path, theme: str, size: tuple[int, int]) -> None:
    assert snap_compare(Shown(theme, tmp_path), terminal_size=size, press=["/", "r", "down"])
