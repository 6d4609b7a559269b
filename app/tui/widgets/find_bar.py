"""The line to search this chat with: a field, and where among the hits we are."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input, Static


class FindBar(Horizontal):
    """Hidden until `open`. Down and Enter go to an earlier hit's later neighbour, Up to the one before; Escape closes."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,enter", "step(1)", "Next hit", id="find.next"),
        Binding("up", "step(-1)", "Previous hit", id="find.previous"),
        Binding("escape", "close", "Close", id="find.close"),
    ]
    DEFAULT_CSS = """
    FindBar {
        height: 1; width: 1fr; display: none; background: $panel;
        &.-open { display: block; }
        Static { width: auto; padding: 0 1; }
        Input { width: 1fr; border: none; height: 1; padding: 0; background: $panel; }
    }
    """

    class Wanted(Message):
        """Search for this."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Stepped(Message):
        """Show this message."""

        def __init__(self, message_id: int) -> None:
            super().__init__()
            self.message_id = message_id

    class Closed(Message):
        """The search is over."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._field = Input(placeholder="words", compact=True)
        self._where = Static("", markup=False)
        self._hits: list[int] = []
        self._at = 0

    def compose(self) -> ComposeResult:
        yield Static("Find:", markup=False)
        yield self._field
        yield self._where

    @property
    def is_open(self) -> bool:
        return self.has_class("-open")

    def open(self, text: str = "") -> None:
        """Show the field, with `text` in it."""
        self.add_class("-open")
        if text:
            self._field.value = text
        self._field.focus()
        if self._field.value:
            self.post_message(self.Wanted(self._field.value))

    def found(self, hits: list[int]) -> None:
        """The messages that were found, first to last: go to the last of them."""
        self._hits, self._at = hits, len(hits) - 1
        self._say()
        if hits:
            self.post_message(self.Stepped(hits[self._at]))

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.is_open:
            self.post_message(self.Wanted(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_step(1)

    def action_step(self, step: int) -> None:
        if self._hits:
            self._at = (self._at + step) % len(self._hits)
            self._say()
            self.post_message(self.Stepped(self._hits[self._at]))

    def action_close(self) -> None:
        self.remove_class("-open")
        self.post_message(self.Closed())

    def _say(self) -> None:
        self._where.update(f"{self._at + 1}/{len(self._hits)}" if self._hits else "nothing found" if self._field.value.strip() else "")
