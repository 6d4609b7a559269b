"""One choice out of a few."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.tui.keys import bind


class PickOne(ModalScreen[int | None]):
    """Dismisses with the number of the line that was picked, from 0, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [bind("close", "dismiss(None)")]
    DEFAULT_CSS = """
    PickOne {
        align: center middle;
        Vertical { width: 90%; max-width: 90; height: auto; max-height: 90%; padding: 0 1; background: $panel; border: round $border; }
        Static { height: auto; width: 1fr; }
        #pick-hint { color: $text-muted; }
        OptionList {
            height: auto; max-height: 16; border: none; padding: 0; background: $surface;
            text-wrap: nowrap; text-overflow: ellipsis;
        }
    }
    """

    def __init__(self, question: str, lines: Sequence[str], chosen: int = 0) -> None:
        """`chosen` is highlighted at first."""
        super().__init__()
        self._question = question
        self._lines = lines
        self._chosen = chosen

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            yield OptionList(*(Option(Content(line)) for line in self._lines), markup=False, compact=True)
            yield Static("Enter takes it, Esc goes back", id="pick-hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).highlighted = self._chosen

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(event.option_index)
