"""The settings: of this chat (system prompt, sampling), and of the program. Nothing is changed before it is saved."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Button, Label, Select

from app.settings import ChatSettings, Settings
from app.tui.keys import bind, shown_key
from app.tui.screens.form import NARROW, Entry, Form, Tick
from app.tui.themes import THEMES, wanted_theme

SAMPLING = (
    Entry("system", "System prompt", kind="text"),
    Entry("temperature", "Temperature", "0.8 · 0: the likeliest always"),
    Entry("top_k", "Top k", "40 · 0: off"),
    Entry("top_p", "Top p", "0.95 · 1: off"),
    Entry("min_p", "Min p", "0.05 · 0: off"),
    Entry("repeat_penalty", "Repeat penalty", "1, which is off"),
    Entry("max_tokens", "Longest reply", "1024 tokens"),
    Entry("seed", "Seed", "another one each time"),
    Entry("mode", "Drafting", "auto · plain ngram draft fixed:4"),
    Entry("stop", "Stop at", "one text a line", kind="lines"),
)
"""The hints start with what holds where nothing is said."""

PROGRAM = (
    Entry("theme", "Theme", kind="choice"),
    Entry("on_context_full", "When context is full", kind="choice", choices=(
        ("leave out the oldest turns", "drop"), ("stop the reply", "stop"), ("summarise the oldest turns", "summarise"),
    )),
    Entry("show_pace", "Pace panel", "open", kind="switch"),
    Entry("colour_origins", "Colours", "by who proposed each token", kind="switch"),
    Entry("auto_title", "Titles", "made by the model; else your first words", kind="switch"),
    Entry("shadow_rate", "Checked replies", "0 to 1: share checked when idle"),
    Entry("kv_state_budget_mb", "Disk for read chats", "MiB · 0: keep none"),
)


@dataclass(frozen=True, slots=True)
class SettingsResult:
    """What was saved: the program's settings, and the chat's if there was one."""

    settings: Settings
    chat: ChatSettings | None


class SettingsScreen(ModalScreen[SettingsResult | None]):
    """Dismisses with what was saved, or None."""

    DEFAULT_CSS = """
    SettingsScreen {
        align: center middle;
        #box { width: 90%; max-width: 100; height: 90%; border: round $border; background: $surface; padding: 0 1; }
        .heading { text-style: bold; color: $text-primary; margin: 1 0 0 1; }
        #rows { height: 1fr; scrollbar-size-vertical: 1; }
        #buttons { height: 1; align-horizontal: right; margin: 1 0 0 0; }
        #buttons Button { margin: 0 0 0 2; }
        #also { margin: 0 0 0 23; }
        &.-narrow .hint { display: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [bind("close", "close"), bind("save", "save")]
    HORIZONTAL_BREAKPOINTS = NARROW

    def __init__(self, settings: Settings, chat: ChatSettings | None = None) -> None:
        """Without a chat the settings that new chats start with are edited in its place."""
        super().__init__()
        self._settings = settings
        self._chat = chat
        self._theme = ""
        self._chosen_theme = settings.theme

    def compose(self) -> ComposeResult:
        themes = [*THEMES, *sorted(set(self.app.available_themes) - set(THEMES))]
        program = [Entry("theme", "Theme", kind="choice", choices=[(name, name) for name in themes]), *PROGRAM[1:]]
        with Vertical(id="box") as box:
            box.border_title = "Settings"
            with VerticalScroll(id="rows", can_focus=False):
                yield Label("New chats" if self._chat is None else "This chat", classes="heading")
                asked = self._settings.chat if self._chat is None else self._chat
                yield Form(ChatSettings, SAMPLING, asked.model_dump())
                if self._chat is not None:
                    yield Tick("new chats start like this too", id="also")
                yield Label("Paceline", classes="heading")
                yield Form(Settings, program, self._settings.model_dump())
            with Horizontal(id="buttons"):
                yield Button(f"{shown_key(self.app, 'save')} Save", id="save", compact=True, variant="primary")
                yield Button(f"{shown_key(self.app, 'close')} Cancel", id="cancel", compact=True)

    def on_mount(self) -> None:
        self._theme = self.app.theme

    def on_select_changed(self, event: Select.Changed) -> None:
        """Show a theme at once; it stays only if it is saved. Where the environment wants no colour it does not show."""
        if isinstance(event.value, str) and event.value in self.app.available_themes and event.value != self._chosen_theme:
            self._chosen_theme = event.value
            self.app.theme = wanted_theme(event.value, os.environ)
            if self.app.theme != event.value:
                self.notify("NO_COLOR or TERM=dumb is set: the theme shows where it is not", markup=False)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "save":
            self.action_save()
        else:
            self.action_close()

    def action_close(self) -> None:
        self.app.theme = self._theme
        self.dismiss(None)

    def action_save(self) -> None:
        asked, program = (form.values() for form in self.query(Form))
        if asked is None or program is None:
            self.notify("a value cannot be saved as it is; the reason stands below it", severity="warning", markup=False)
            return
        before = self._settings.chat if self._chat is None else self._chat
        chat = ChatSettings.model_validate({**before.model_dump(), **asked})
        settings = Settings.model_validate({**self._settings.model_dump(), **program})
        if self._chat is None or self.query_one("#also", Tick).value:
            settings = settings.model_copy(update={"chat": chat})
        self.dismiss(SettingsResult(settings, chat if self._chat is not None else None))
