"""What can be done with a picked message: a menu of letters, so that no letter typed over the messages does any of it."""

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

from app.tui.keys import KEYS, bind, shown_key

ENTRIES = ("copy", "copy_code", "edit", "another", "branch", "unfold", "delete", "undo")


class MessageMenu(ModalScreen[str | None]):
    """Dismisses with one of ENTRIES, or None. Its letters are heard, and arrows and Enter go through the list."""

    BINDINGS: ClassVar[list[BindingType]] = [bind("close", "dismiss(None)"), *(bind(id, f"dismiss('{id}')") for id in ENTRIES)]
    DEFAULT_CSS = """
    MessageMenu {
        align: center middle;
        Vertical { width: 44; max-width: 100%; height: auto; max-height: 100%; padding: 0 1; background: $panel; border: round $border; }
        Static { height: auto; width: 1fr; color: $text-muted; }
        OptionList { height: auto; border: none; padding: 0; background: $surface; text-wrap: nowrap; text-overflow: ellipsis; }
    }
    """

    def __init__(self, title: str, entries: Sequence[str]) -> None:
        """`entries`: those of ENTRIES that make sense for the message. The first is highlighted."""
        super().__init__()
        self._title = title
        self._entries = entries

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = self._title
            yield OptionList(markup=False, compact=True)
            yield Static("a letter, or Enter; Esc goes back", markup=False)

    def on_mount(self) -> None:
        lines = self.query_one(OptionList)
        for id in self._entries:
            lines.add_option(Option(Content.assemble((f"{shown_key(self.app, id):<3}", "bold"), KEYS[id].words)))
        lines.highlighted = 0
        lines.focus()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._entries[event.option_index])
