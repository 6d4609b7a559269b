"""What is attached to the prompt: kept up to date with its text, and shown in a line above it.

Names with token counts, and what was refused with the reason. Files are read in a thread; tokens are counted by whoever answers
`Count`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import Static

from app.chat.attachments import Refused, too_long, unfound
from app.chat.conversation import Attachment
from app.tui.keys import shown_key
from app.tui.widgets.prompt_attachments import Attached, Record, gathered
from app.units import byte_size

TAG = "prompt:"

Then = Callable[[str], None]
"""What to do when a text has been looked through."""


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

    class Count(Message):
        """The tokens of `text` are wanted under `tag`; see `counted`."""

        def __init__(self, text: str, tag: str) -> None:
            super().__init__()
            self.text = text
            self.tag = tag

    class Counted(Message):
        """A count came in."""

    class Found(Message):
        """Read in a thread: what `text` brings along."""

        def __init__(self, text: str, records: dict[str, Record], unfound: Sequence[str], then: Then | None) -> None:
            super().__init__()
            self.text = text
            self.records = records
            self.unfound = unfound
            self.then = then

    def __init__(self, cwd: Path) -> None:
        super().__init__(markup=False)
        self.attached = Attached(cwd)
        self.typing: str | None = None
        """A path that is just being completed: a folder on the way to a file is no mistake."""
        self._room: int | None = None
        self._unfound: list[str] = []
        """Mentions of files that are not there: they go along as words, which is said."""
        self._counting: dict[str, Attachment] = {}
        self._tags = count()

    def look(self, text: str, then: Then | None = None) -> None:
        """Find what `text` brings along and show it; then call `then` with the text. Only files need a thread."""
        if "@" in text:
            group = "look" if then is None else "send"
            self.run_worker(lambda: self._read(text, then), thread=True, exclusive=then is None, group=group)
        else:
            self._take(text, gathered(text, self.attached), (), then)

    def _read(self, text: str, then: Then | None) -> None:
        self.post_message(self.Found(text, gathered(text, self.attached), unfound(text, self.attached.cwd), then))

    def on_chips_found(self, event: Found) -> None:
        event.stop()
        self._take(event.text, event.records, event.unfound, event.then)

    def _take(self, text: str, records: dict[str, Record], unfound: Sequence[str], then: Then | None) -> None:
        known = {item.name for item in self.attached.items} | records.keys()
        self._unfound = [name for name in unfound if name not in known and name not in self.attached.left_out]
        for attachment in self.attached.take(records):
            self._count(attachment)
        self.show()
        if then is not None:
            then(text)

    # Tokens

    def set_room(self, tokens: int | None) -> None:
        """Tokens one message may have, of the model that is loaded now: its counts may be others."""
        self._room = tokens
        self._counting.clear()
        for attachment in self.attached.attachments:
            self._count(attachment)
        self.show()

    def _count(self, attachment: Attachment) -> None:
        if attachment not in self._counting.values():
            tag = f"{TAG}{next(self._tags)}"
            self._counting[tag] = attachment
            self.post_message(self.Count(attachment.text, tag))

    def counted(self, tag: str, tokens: int) -> None:
        """The answer to Count; one that nobody asked for is left aside."""
        if (attachment := self._counting.pop(tag, None)) is not None:
            self.attached.counted(attachment.name, attachment.text, tokens)
            self.show()
            self.post_message(self.Counted())

    @property
    def room(self) -> int | None:
        return self._room

    @property
    def uncounted(self) -> bool:
        return any(attachment.tokens is None for attachment in self.attached.attachments)

    @property
    def problem(self) -> str | None:
        """Why the message cannot be sent with what is attached."""
        refused = self.attached.refused
        return refused[0].reason if refused else too_long(self.attached.attachments, self._room)

    # What is shown

    def show(self) -> None:
        """Bring the line up to date."""
        items = [item for item in self.attached.items if item.name != self.typing or isinstance(item, Attachment)]
        nowhere = [name for name in self._unfound if name != self.typing]
        self.display = bool(items or nowhere)
        chips = [self._chip(item) for item in items if isinstance(item, Attachment)]
        lines = [Text("  ").join(chips)] if chips else []
        lines += [self._problem(item.reason, item.name) for item in items if isinstance(item, Refused)]
        if line := too_long(self.attached.attachments, self._room):
            lines.append(self._problem(line, items[-1].name))
        if lines and (key := shown_key(self.app, "drop_attachment")):
            which = "the last " if len(items) > 1 else "it "
            lines[-1].append(f"  {key} leaves {which}out", self.get_component_rich_style("chips--quiet"))
        quiet = self.get_component_rich_style("chips--quiet")
        lines += [Text(f"? there is no file {name}; that goes along as words", quiet) for name in nowhere]
        self.update(Text("\n").join(lines))

    def leave_out_last(self) -> None:
        if self.attached.shown:
            self.leave_out(self.attached.shown[-1])

    def leave_out(self, name: str) -> None:
        self.attached.leave_out(name)
        self.show()

    def on_click(self, event: events.Click) -> None:
        if name := event.style.meta.get("chip"):
            self.leave_out(name)

    def _chip(self, item: Attachment) -> Text:
        amount = f"{item.tokens:,} tokens" if item.tokens is not None else byte_size(len(item.text.encode()))
        mark = Style(meta={"chip": item.name})
        name, quiet = (self.get_component_rich_style(part) for part in ("chips--name", "chips--quiet"))
        return Text.assemble((f" {item.name} ", name + mark), (f" {amount}", quiet + mark))

    def _problem(self, reason: str, name: str) -> Text:
        return Text(f"✗ {reason}", self.get_component_rich_style("chips--problem") + Style(meta={"chip": name}))
