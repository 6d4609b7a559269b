"""What is attached to the prompt, one line above it: names with token counts, and what was refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from app.chat.attachments import Refused, too_long
from app.chat.conversation import Attachment


class Chips(Static):
    """Hidden while nothing is attached. A click on a chip leaves it out."""

    DEFAULT_CSS = """
    Chips {
        display: none;
        height: auto;
        max-height: 4;
        padding: 0 1;
        & > .chips--name { background: $primary 25%; color: $foreground; }
        & > .chips--problem { color: $text-error; text-style: bold; }
        & > .chips--quiet { color: $text-muted; }
        &:ansi > .chips--name { text-style: reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {"chips--name", "chips--problem", "chips--quiet"}

    class Dropped(Message):
        """A chip was clicked."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self) -> None:
        super().__init__(markup=False)

    def show(self, items: Sequence[Attachment | Refused], context: int | None, key: str) -> None:
        """`key` leaves the last one out, as it is written for the user."""
        self.display = bool(items)
        chips = [self._chip(item) for item in items if isinstance(item, Attachment)]
        lines = [Text("  ").join(chips)] if chips else []
        lines += [self._problem(item.reason, item.name) for item in items if isinstance(item, Refused)]
        if line := too_long([item for item in items if isinstance(item, Attachment)], context):
            lines.append(self._problem(line, items[-1].name))
        if lines:
            lines[-1].append(f"  {key} leaves {'the last ' if len(items) > 1 else 'it '}out", self.get_component_rich_style("chips--quiet"))
        self.update(Text("\n").join(lines))

    def on_click(self, event: events.Click) -> None:
        if name := event.style.meta.get("chip"):
            self.post_message(self.Dropped(name))

    def _chip(self, item: Attachment) -> Text:
        size = f"{item.tokens:,} tokens" if item.tokens is not None else _size(len(item.text.encode()))
        mark = Style(meta={"chip": item.name})
        name, quiet = (self.get_component_rich_style(part) for part in ("chips--name", "chips--quiet"))
        return Text.assemble((f" {item.name} ", name + mark), (f" {size}", quiet + mark))

    def _problem(self, reason: str, name: str) -> Text:
        return Text(f"✗ {reason}", self.get_component_rich_style("chips--problem") + Style(meta={"chip": name}))


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 1024 else f"{count / 1024:,.0f} KiB" if count < 1 << 20 else f"{count / 2**20:,.1f} MiB"
