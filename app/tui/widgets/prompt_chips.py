"""What is attached to the prompt, one line above it: names with token counts, and what was refused with the reason."""

from __future__ import annotations

from collections.abc import Sequence

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
    Chips { display: none; height: auto; max-height: 4; padding: 0 1; }
    """

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
        chips = [_chip(item) for item in items if isinstance(item, Attachment)]
        lines = [Text("  ").join(chips)] if chips else []
        lines += [_problem(item.reason, item.name) for item in items if isinstance(item, Refused)]
        if line := too_long([item for item in items if isinstance(item, Attachment)], context):
            lines.append(_problem(line, items[-1].name))
        if lines:
            lines[-1].append(f"  {key} leaves out {'the last' if len(items) > 1 else 'it'}", "dim")
        self.update(Text("\n").join(lines))

    def on_click(self, event: events.Click) -> None:
        if name := event.style.meta.get("chip"):
            self.post_message(self.Dropped(name))


def _chip(item: Attachment) -> Text:
    size = f"{item.tokens:,} tokens" if item.tokens is not None else _size(len(item.text.encode()))
    mark = Style(meta={"chip": item.name})
    return Text.assemble((f" {item.name} ", mark + Style(reverse=True)), (f" {size}", mark + Style(dim=True)))


def _problem(reason: str, name: str) -> Text:
    return Text.assemble(("✗ ", "bold"), (reason, "bold"), style=Style(meta={"chip": name}))


def _size(count: int) -> str:
    return f"{count:,} bytes" if count < 1024 else f"{count / 1024:,.0f} KiB" if count < 1 << 20 else f"{count / 2**20:,.1f} MiB"
