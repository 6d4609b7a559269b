"""A reply's thinking: one line that says how much of it there is, opened and closed by key or click."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from app.tui.widgets.plain_text import PlainText
from app.tui.widgets.thrifty import Thrifty


class _Head(Static):
    """The line; a click opens or closes."""

    def on_click(self) -> None:
        assert isinstance(self.parent, Thinking)
        self.parent.opened = not self.parent.opened


class Thinking(Vertical, Thrifty):
    """Folded unless `opened`. What is folded costs nothing while it grows."""

    DEFAULT_CSS = """
    Thinking {
        height: auto; width: 1fr;
        _Head { width: 1fr; height: 1; color: $text-muted; text-style: italic; }
        PlainText { color: $text-muted; border-left: solid $border-blurred; padding-left: 1; display: none; }
        &.-opened PlainText { display: block; }
    }
    """

    opened: reactive[bool] = reactive(False, init=False)

    def __init__(self, text: str, *, done: bool, opened: bool = False) -> None:
        super().__init__()
        self._text, self._done = text, done
        self._head = _Head(markup=False)
        self._body = PlainText()
        self.set_reactive(Thinking.opened, opened)

    def compose(self) -> ComposeResult:
        self._update()
        yield self._head
        yield self._body

    def show(self, text: str, *, done: bool) -> None:
        """The thinking so far, and whether it is over."""
        self._text, self._done = text, done
        self._update()

    def watch_opened(self) -> None:
        self._update()

    def _update(self) -> None:
        self.set_class(self.opened, "-opened")
        words = len(self._text.split()) if self._done else self._text.count(" ") + 1
        mark, verb = "▾" if self.opened else "▸", "thought" if self._done else "thinking…"
        self._head.update(Content(f"{mark} {verb} ({words:,} word{'s' * (words != 1)})"), layout=False)
        if self.opened:
            self._body.show(self._text)
