"""Presets: choose one for the chat, make one of the chat's settings, change or delete the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import ValidationError
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, OptionList, Static
from textual.widgets.option_list import Option

from app.paths import Paths
from app.sanitize import sanitize
from app.settings import (
    ChatSettings,
    Preset,
    SettingsError,
    describe,
    load_presets,
    own_presets,
    save_presets,
)
from app.tui.keys import KEYS, bind, shown_key
from app.tui.screens.form import NARROW, Entry, Form
from app.tui.screens.settings import SAMPLING

NAMING = (Entry("name", "Name", empty=""), Entry("description", "In a few words", empty=""))


class PresetForm(ModalScreen[Preset | None]):
    """Edits one preset; dismisses with it, or None."""

    DEFAULT_CSS = """
    PresetForm {
        align: center middle;
        #box { width: 90%; max-width: 100; height: 90%; border: round $border; background: $surface; padding: 0 1; }
        #rows { height: 1fr; scrollbar-size-vertical: 1; padding: 1 0; }
        #buttons { height: 1; align-horizontal: right; margin: 1 0 0 0; }
        #buttons Button { margin: 0 0 0 2; }
        &.-narrow .hint { display: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [bind("close", "dismiss"), bind("save", "save")]
    HORIZONTAL_BREAKPOINTS = NARROW

    def __init__(self, preset: Preset) -> None:
        super().__init__()
        self._preset = preset

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = "Preset"
            with VerticalScroll(id="rows", can_focus=False):
                yield Form(Preset, (*NAMING, *SAMPLING), self._preset.model_dump())
            with Horizontal(id="buttons"):
                yield Button(f"{shown_key(self.app, 'save')} Save", id="save", compact=True, variant="primary")
                yield Button(f"{shown_key(self.app, 'close')} Cancel", id="cancel", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        if event.button.id == "save":
            self.action_save()
        else:
            self.dismiss(None)

    def action_save(self) -> None:
        values = self.query_one(Form).values()
        if values is None:
            return
        try:
            self.dismiss(Preset.model_validate(values))
        except ValidationError as error:
            self.notify(" ".join(describe(error)), severity="warning", markup=False)


class PresetsScreen(ModalScreen[ChatSettings | None]):
    """Dismisses with the settings of the chosen preset, or None."""

    DEFAULT_CSS = """
    PresetsScreen {
        align: center middle;
        #box { width: 90%; max-width: 110; height: 90%; border: round $border; background: $surface; padding: 0 1; }
        OptionList { width: 2fr; max-width: 40; height: 1fr; background: $surface; &, &:focus { border: none; background-tint: 0%; } }
        #detail { width: 3fr; height: 1fr; padding: 0 1; border-left: solid $border-blurred; scrollbar-size-vertical: 1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("close", "dismiss"),
        bind("list_new", "new"),
        bind("list_change", "change"),
        bind("list_delete", "delete"),
        bind("list_undo", "undo"),
    ]

    def __init__(self, paths: Paths, current: ChatSettings) -> None:
        super().__init__()
        self._paths = paths
        self._current = current
        self._presets: Sequence[Preset] = ()
        self._own: list[Preset] = []
        self._deleted: list[Preset] | None = None
        """The user's presets before the last delete."""

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = "Presets"
            with Horizontal():
                yield OptionList(markup=False)
                with VerticalScroll(id="detail", can_focus=False):
                    yield Static(markup=False)

    def on_mount(self) -> None:
        self._read(self._current.preset)
        self.query_one(OptionList).focus()
        keys = [(id, KEYS[id].words.lower()) for id in ("list_new", "list_change", "list_delete", "list_undo", "close")]
        hints = ["Enter use", *(f"{shown_key(self.app, id)} {words}" for id, words in keys)]
        self.query_one("#box").border_subtitle = Content(" · ".join(hints))

    def _read(self, chosen: str | None) -> None:
        """Show the presets that there are."""
        try:
            self._presets, self._own = load_presets(self._paths), list(own_presets(self._paths))
        except SettingsError as error:
            self.notify(str(error), severity="error", timeout=15, markup=False)
            self.dismiss(None)
            return
        own = {preset.name for preset in self._own}
        names = [preset.name for preset in self._presets]
        options = self.query_one(OptionList)
        options.clear_options()
        options.add_options(Option(Text.assemble(name, ("  yours" if name in own else "", "dim"))) for name in map(sanitize, names))
        options.highlighted = names.index(chosen) if chosen in names else 0

    @property
    def _preset(self) -> Preset | None:
        highlighted = self.query_one(OptionList).highlighted
        return self._presets[highlighted] if highlighted is not None else None

    def on_option_list_option_highlighted(self) -> None:
        if (preset := self._preset) is not None:
            self.query_one("#detail Static", Static).update(_described(preset))
            self.query_one("#detail").scroll_home(animate=False)

    def on_option_list_option_selected(self) -> None:
        if (preset := self._preset) is not None:
            self.dismiss(preset.applied())

    def action_new(self) -> None:
        self._edit(Preset.of("New preset", self._current), None)

    def action_change(self) -> None:
        """One of ours becomes the user's by being changed; deleting that brings ours back."""
        if (preset := self._preset) is not None:
            self._edit(preset, preset.name)

    def _edit(self, preset: Preset, replaced: str | None) -> None:
        def done(changed: Preset | None) -> None:
            if changed is None:
                return
            kept = [own for own in self._own if own.name not in (changed.name, replaced)]
            place = next((i for i, own in enumerate(self._own) if own.name in (changed.name, replaced)), len(kept))
            self._save([*kept[:place], changed, *kept[place:]], changed.name)

        self.app.push_screen(PresetForm(preset), done)

    def action_delete(self) -> None:
        preset = self._preset
        if preset is None or preset not in self._own:
            self.notify("this one comes with Paceline and stays", severity="warning", markup=False)
            return
        before = self._own
        if self._save([own for own in before if own.name != preset.name], None):
            self._deleted = before
            self.notify(f"deleted {preset.name}; u brings it back", markup=False)

    def action_undo(self) -> None:
        if self._deleted is not None:
            self._save(self._deleted, None)
            self._deleted = None

    def _save(self, own: Sequence[Preset], chosen: str | None) -> bool:
        try:
            save_presets(self._paths, own)
        except SettingsError as error:
            self.notify(str(error), severity="error", timeout=15, markup=False)
            return False
        self._read(chosen)
        return True


def _described(preset: Preset) -> Text:
    """What the preset sets, for reading."""
    text = Text(sanitize(preset.description), "italic")
    values = {**preset.sampling(), **preset.request()}
    for name, value in values.items():
        shown = " · ".join(value) if isinstance(value, tuple) else str(value)
        text.append(f"\n{name.replace('_', ' ')}  ", "dim not italic").append(sanitize(shown), "not italic")
    if preset.system:
        text.append("\n\nsystem prompt\n", "dim not italic").append(sanitize(preset.system), "not italic")
    return text
