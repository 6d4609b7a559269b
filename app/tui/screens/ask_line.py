"""One question with a one-line answer."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from app.tui.keys import bind


class AskLine(ModalScreen[str | None]):
    """Dismisses with the line, which may be empty, or with None."""

    BINDINGS: ClassVar[list[BindingType]] = [bind("close", "dismiss(None)")]
    DEFAULT_CSS = """
    AskLine {
        align: center middle;
        Vertical { width: 90%; max-width: 90; height: auto; padding: 0 1; background: $panel; border: round $border; }
        Static { height: auto; width: 1fr; }
        #ask-hint { color: $text-muted; }
        Input { width: 1fr; height: 1; border: none; padding: 0; background: $surface; }
    }
    """

    def __init__(self, question: str, text: str = "") -> None:
        """`text` stands in the field at first."""
        super().__init__()
        self._question = question
        self._text = text

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._question, markup=False)
            yield Input(self._text, compact=True, select_on_focus=False)
            yield Static("Enter takes it, Esc goes back", id="ask-hint", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.dismiss(event.value)
