"""Help: the keys and commands that there are, read from the bindings and the registry themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, ClassVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.dom import DOMNode
from textual.screen import ModalScreen, Screen
from textual.widgets import Input, Static

from app.tui.commands import COMMANDS, owners
from app.tui.keys import KEYS, Where, bind, checked, keys_of, shown_key, written
from app.tui.widgets.prompt_input import PromptInput

HEADINGS: dict[Where, str] = {
    "everywhere": "Everywhere", "chat": "In the chat", "prompt": "In the prompt", "message": "On a picked message",
    "menu": "In its menu", "list": "In lists and forms",
}
ROOMY = 76
"""Columns from which on the names for settings.toml are shown."""
EDITING = "Editing text"
COMMANDS_HEADING = "Commands, typed into the prompt"


@dataclass(frozen=True, slots=True)
class HelpLine:
    """One line: what to press or type, what it does, and the binding's id for the `[keys]` table."""

    heading: str
    press: str
    words: str
    id: str = ""


def help_lines(app: App[Any], screen: Screen[Any], own: Mapping[str, str]) -> list[HelpLine]:
    """Every key that has a binding in the app, on `screen` or in one of its widgets, and every command that can run."""
    kept, _ = checked(own)
    bound = {binding.id for node in _nodes(app, screen) for binding in _bindings(node)}
    lines = [
        HelpLine(HEADINGS[where], "  ".join(map(written, keys_of(id, kept))), entry.words, id)
        for where in HEADINGS
        for id, entry in KEYS.items()
        if entry.where == where and (id in bound or where in ("menu", "list"))
    ]
    for node in _nodes(app, screen):
        if isinstance(node, PromptInput):
            lines += _editing(node)
    return lines + [
        HelpLine(COMMANDS_HEADING, command.usage, command.words)
        for command in COMMANDS
        if command.action == "attach" or any(hasattr(owner, f"action_{command.action}") for owner in owners(screen, app))
    ]


def _nodes(app: App[Any], screen: Screen[Any]) -> Iterator[DOMNode]:
    yield app
    yield from screen.walk_children(with_self=True)


def _bindings(node: DOMNode) -> Iterator[Binding]:
    for owner in type(node).__mro__:
        for declared in owner.__dict__.get("BINDINGS", ()):
            if isinstance(declared, Binding):
                yield declared


def _editing(node: DOMNode) -> Iterator[HelpLine]:
    """The editor's own keys, each action once."""
    ours = {key for id in KEYS for key in keys_of(id, {})}
    for binding in _bindings(node):
        keys = [key for key in binding.key.split(",") if key not in ours and not key.startswith("super")]
        if not binding.id and keys and binding.description:
            yield HelpLine(EDITING, "  ".join(map(written, keys)), binding.description)


class HelpScreen(ModalScreen[None]):
    """Scrolls; what is typed leaves the lines that have it."""

    DEFAULT_CSS = """
    HelpScreen {
        align: center middle;
        #box { width: 90%; max-width: 96; height: 90%; border: round $border; background: $surface; padding: 0 1; }
        Input { margin: 0 0 1 0; }
        #lines { height: 1fr; scrollbar-size-vertical: 1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("close", "dismiss"),
        Binding("down", "scroll(1)", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
    ]

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        """`own`: the user's keys, as in Settings.keys."""
        super().__init__()
        self._own = own or {}
        self._lines: list[HelpLine] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="box") as box:
            box.border_title = "Help"
            find = Input(placeholder="type to find a key or a command", compact=True)
            find.cursor_blink = False
            yield find
            with VerticalScroll(id="lines", can_focus=False):
                yield Static(markup=False)

    def on_mount(self) -> None:
        self._lines = help_lines(self.app, self.app.screen_stack[-2], self._own)
        self._show("")

    def on_resize(self) -> None:
        if self._lines:
            self._show(self.query_one(Input).value)

    def on_input_changed(self, event: Input.Changed) -> None:
        self._show(event.value)

    def action_scroll(self, rows: int) -> None:
        self.query_one("#lines").scroll_relative(y=rows, animate=False)

    def _show(self, wanted: str) -> None:
        names = self.size.width >= ROOMY
        more = " · names at the right are for settings.toml" if names else ""
        self.query_one("#box").border_subtitle = f"↑ ↓ scroll · {shown_key(self.app, 'close')} close{more}"
        words = wanted.lower().split()
        lines = [line for line in self._lines if all(word in f"{line.press} {line.words} {line.id}".lower() for word in words)]
        self.query_one("#lines Static", Static).update(_laid_out(lines, names=names) if lines else Text("nothing has that in it", "dim"))


def _laid_out(lines: list[HelpLine], *, names: bool) -> Group:
    """Under headings: keys, what they do, and the names at the right if there is room."""
    width = min(22, max(len(line.press) for line in lines))
    parts: list[RenderableType] = []
    for heading, below in groupby(lines, lambda line: line.heading):
        if parts:
            parts.append(Text())
        parts += [Text(heading, "bold underline"), _table(below, width, names=names)]
    return Group(*parts)


def _table(lines: Iterable[HelpLine], width: int, *, names: bool) -> Table:
    table = Table.grid(padding=(0, 2), expand=True)
    table.add_column(style="bold", width=width)
    table.add_column(ratio=1)
    if names:
        table.add_column(no_wrap=True, style="dim", justify="right")
    for line in lines:
        table.add_row(Text(line.press), Text(line.words), *([Text(line.id)] if names else []))
    return table
