"""One message of the transcript: who says it, the text, how it ended and how fast it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.events import Click
from textual.message import Message as TextualMessage
from textual.widgets import Static

from app.chat.conversation import Message, OriginSpan, pack_origins
from app.sanitize import sanitize
from app.tui.widgets.plain_text import ORIGIN_STYLES, PlainText
from app.tui.widgets.reply import Reply
from app.tui.widgets.thrifty import Thrifty

TELLING = 16
"""Tokens of a reply from which on its ratio to plain decoding says anything: the first ones measure the start."""
FOLDED = 8_000
"""Characters of a user's message that are shown; the rest (a pasted file, as a rule) unfolds on demand."""

LEGEND = Content.assemble(
    "by ", ("draft model", ORIGIN_STYLES["model"]), ", ", ("n-gram", ORIGIN_STYLES["ngram"]), ", target (plain)"
)
_ENDINGS = {
    "cancelled": "stopped by you",
    "length": "cut at the longest reply allowed",
    "context": "cut: the context is full",
    "interrupted": "cut short: the program or the engine ended",
    "failed": "failed",
}


def ending(message: Message, report: Mapping[str, Any]) -> str:
    """How a message ended, in a few words; empty if it is complete. The report's own line says more: it follows, or stands
    in the place of words that say the same."""
    line = report.get("line") if message.state != "interrupted" else ""  # that is said above the prompt, with what to do
    line = sanitize(line) if isinstance(line, str) else ""
    words = "" if line and message.state in ("length", "context") else _ENDINGS.get(message.state, "")
    return " · ".join(part for part in (words, line) if part)


def speed(report: Mapping[str, Any]) -> str:
    """A finished reply's numbers on one line; empty where there are none."""
    pace = report.get("pace")
    if not isinstance(pace, dict) or not (tokens := pace.get("tokens")):
        return ""
    parts = [f"{tokens:,} token{'s' * (tokens != 1)}"]
    if rate := pace.get("reply_tokens_per_second"):
        parts.append(f"{rate:.1f}/s")
    if (ratio := pace.get("ratio_to_plain")) is not None and tokens >= TELLING:
        parts.append(f"{ratio:.2f}× plain")
    return " · ".join(parts)


def printable(message: Message) -> Message:
    """The message without control sequences: what was imported, or written by another program, may hold some. Who proposed
    which characters is not known any more then."""
    text = sanitize(message.text)
    attachments = tuple(replace(a, name=sanitize(a.name)) for a in message.attachments)
    if text != message.text:
        return replace(message, text=text, attachments=attachments, packed_origins=pack_origins(()))
    return replace(message, attachments=attachments) if attachments != message.attachments else message


class MessageView(Vertical, Thrifty):
    """Shows one Message. The transcript sets cursor, marker and branch."""

    DEFAULT_CSS = """
    MessageView {
        height: auto; width: 1fr; padding: 0 1 0 1; margin: 0 0 1 0; border-left: blank;
        .message-head { height: 1; width: 1fr; color: $text-muted; }
        .message-foot { height: auto; width: 1fr; color: $text-muted; display: none; }
        .message-foot.-shown { display: block; }
        .message-marker { height: auto; width: 1fr; color: $text-warning; margin: 0 0 1 0; text-align: center; }
        &.-user { background: $surface; }
        &.-summary { color: $text-muted; }
        &.-cursor { border-left: thick $accent; background: $boost; }
    }
    """

    class Clicked(TextualMessage):
        """Somebody clicked on this message."""

        def __init__(self, message_id: int) -> None:
            super().__init__()
            self.message_id = message_id

    def __init__(
        self, message: Message, *, branch: tuple[int, int] = (1, 1), coloured: bool = False, thinking_opened: bool = False,
        marker: str = "",
    ) -> None:
        super().__init__(classes=f"-{message.role}" if message.kind == "message" else "-summary")
        self.message = message = printable(message)
        self.branch = branch
        self._marker_text = marker
        self._marker: Static | None = None
        self._head = Static(self._head_content(), classes="message-head", markup=False)
        self._foot = Static("", classes="message-foot", markup=False)
        self._unfolded = False
        self.reply: Reply | None = None
        """Of an assistant's message."""
        self._text: PlainText | None = None
        if message.role == "assistant":
            self.reply = Reply(
                message.text, message.origins if coloured or message.state == "streaming" else (), growing=message.state == "streaming", coloured=coloured,
                thinking_opened=thinking_opened,
            )
        else:
            self._text = PlainText(self._shown_text())

    def compose(self) -> ComposeResult:
        if self._marker_text:
            self._marker = Static(self._marker_text, classes="message-marker", markup=False)
            yield self._marker
        yield self._head
        body = self.reply or self._text
        assert body is not None
        yield body
        yield self._foot
        self._update_foot()

    # ---- what changes

    def grow(self, text: str, spans: Sequence[OriginSpan]) -> None:
        """More of a reply has come."""
        if self.reply is not None:
            self.reply.grow(text, spans)

    def finish(self, message: Message) -> None:
        """The message is complete."""
        self.message = message = printable(message)
        if self.reply is not None:
            self.reply.finish(message.text, message.origins)
        self._head.update(self._head_content(), layout=False)
        self._update_foot()

    def set_branch(self, branch: tuple[int, int]) -> None:
        """Which of how many branches this message is, from 1."""
        if branch != self.branch:
            self.branch = branch
            self._head.update(self._head_content(), layout=False)

    def set_marker(self, text: str) -> None:
        """A line above the message; empty for none."""
        if text == self._marker_text:
            return
        self._marker_text = text
        if self._marker is not None:
            self._marker.remove()
            self._marker = None
        if text:
            self._marker = Static(text, classes="message-marker", markup=False)
            self.mount(self._marker, before=0)

    def set_coloured(self, coloured: bool) -> None:
        """Colour a reply's tokens by origin, or show its Markdown."""
        if self.reply is not None and self.reply.coloured != coloured:
            if self.message.state != "streaming":
                self.reply.finish(self.message.text, self.message.origins)
            self.reply.coloured = coloured
            self._update_foot()

    def toggle_unfolded(self) -> bool:
        """Show all of a long text, or its beginning only. False if it is not long."""
        if self._text is None or not self.is_long:
            return False
        self._unfolded = not self._unfolded
        self._text.show(self._shown_text())
        self._update_foot()
        return True

    @property
    def is_long(self) -> bool:
        """Whether it is the user's and too long to be shown whole at once."""
        return self._text is not None and len(self.message.text) > FOLDED

    @property
    def text(self) -> str:
        """The message's text as it is now, a reply's without its thinking."""
        return self.reply.answer if self.reply is not None else self.message.text

    def on_click(self, event: Click) -> None:
        self.post_message(self.Clicked(self.message.id))

    # ---- contents

    def _shown_text(self) -> str:
        return self.message.text if self._unfolded or len(self.message.text) <= FOLDED else self.message.text[:FOLDED]

    def _head_content(self) -> Content:
        who = {"user": "You", "assistant": "Reply", "system": "System"}[self.message.role]
        if self.message.kind == "summary":
            who = "Summary of everything above; the model reads this in its place"
        parts: list[Content | tuple[str, str] | str] = [(who, "bold" if self.message.role == "user" else "")]
        at, count = self.branch
        if count > 1:
            parts.append((f"  ◂ {at}/{count} ▸", "bold $text-accent"))
        for attachment in self.message.attachments:
            tokens = f" {attachment.tokens:,} tokens" if attachment.tokens is not None else ""
            parts.append((f"  @{attachment.name}{tokens}", "italic"))
        return Content.assemble(*parts)

    def _update_foot(self) -> None:
        parts: list[str | Content] = []
        if self._text is not None and len(self.message.text) > FOLDED:
            hidden = len(self.message.text) - FOLDED
            parts.append("Enter, f folds this text" if self._unfolded else f"… {hidden:,} more characters; Enter, f shows them")
        report = self.message.report or {}
        if end := ending(self.message, report):
            parts.append(f"■ {end}")
        if self.reply is not None and self.message.state != "streaming" and (numbers := speed(report)):
            parts.append(numbers)
        if self.reply is not None and self.reply.coloured:
            parts.append(LEGEND)
        self._foot.update(Content(" · ").join(parts))
        self._foot.set_class(bool(parts), "-shown")


def finished(message: Message, text: str, spans: Sequence[OriginSpan], **changes: Any) -> Message:
    """`message` with its final text and origins."""
    return replace(message, text=text, packed_origins=pack_origins(spans), **changes)
