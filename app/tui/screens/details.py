"""One chat in numbers: what its replies took, how drafting did, and what is asked of the model."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Footer, Static

from app.chat.conversation import Chat
from app.errors import AppError
from app.sanitize import sanitize
from app.store import ChatStore, ChatTotals
from app.tui.keys import bind
from app.tui.widgets.chat_row import UNTITLED, when
from app.tui.widgets.status import bar

_BARS = 16
"""Positions shown."""
_NAMES = {"model": "draft model", "ngram": "n-gram lookup"}
_LABEL = 16
"""Cells of the first column."""

Row = tuple[str, str]


class DetailsScreen(ModalScreen[None]):
    """Reads the chat anew each time it is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("close", "dismiss(None)", show=True),
        bind("list_details", "dismiss(None)"),
    ]
    DEFAULT_CSS = """
    DetailsScreen {
        background: $background;
        Vertical { width: 1fr; height: 1fr; }
        #details-title { height: 1; width: 1fr; padding: 0 1; background: $panel; text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }
        VerticalScroll { width: 1fr; height: 1fr; padding: 0 1; }
        VerticalScroll Static { height: auto; width: 1fr; }
    }
    """

    def __init__(self, store: ChatStore, chat_id: int) -> None:
        super().__init__()
        self._store = store
        self._chat_id = chat_id

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static("", id="details-title", markup=False)
            with VerticalScroll():
                yield Static("", id="details-text", markup=False)
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        title, text = self.query_one("#details-title", Static), self.query_one("#details-text", Static)
        try:
            chat, totals = self._store.chat(self._chat_id), self._store.totals(self._chat_id)
        except AppError as error:
            text.update(sanitize(str(error)))
            return
        title.update(sanitize(chat.title) or UNTITLED)
        text.update(describe(chat, totals))
        self.query_one(VerticalScroll).focus()


def describe(chat: Chat, totals: ChatTotals) -> Content:
    """All of it, section by section; a section without anything to say is left out."""
    sections = (
        ("Chat", _about(chat, totals)), ("Replies", _replies(totals)), ("Drafting", _drafting(totals)),
        ("Kept by position", _positions(totals)), ("Asked of the model", _settings(chat)),
    )
    return Content("\n\n").join(
        Content("\n").join([Content.styled(heading, "bold"), *(_row(*row) for row in rows)]) for heading, rows in sections if rows
    )


def _row(label: str, text: str) -> Content:
    return Content.assemble((f"  {label:<{_LABEL}}", "$foreground-muted"), sanitize(text))


def _about(chat: Chat, totals: ChatTotals) -> list[Row]:
    rows = [
        ("begun", datetime.fromtimestamp(chat.created).strftime("%Y-%m-%d %H:%M")), ("last used", when(chat.updated, time.time())),
        ("messages", f"{totals.messages:,}" + (f" on {totals.branches} branches" if totals.branches > 1 else "")),
    ]
    return rows + ([("tags", " ".join(f"#{tag}" for tag in chat.tags))] if chat.tags else [])


def _replies(totals: ChatTotals) -> list[Row]:
    if not totals.replies:
        return []
    read = totals.prompt_tokens - totals.cached_tokens
    speed = totals.tokens_per_second
    return [
        ("replies", f"{totals.replies:,}"),
        ("written", f"{totals.completion_tokens:,} tokens in {_seconds(totals.decode_seconds)}" + (f", {speed:.1f} a second" if speed else "")),
        ("read", f"{read:,} tokens in {_seconds(totals.prompt_seconds)}; {totals.cached_tokens:,} more were known from before"),
    ]


def _drafting(totals: ChatTotals) -> list[Row]:
    if not totals.drafted:
        return []
    rows = [("rounds", f"{totals.rounds:,}"), ("all drafts", _kept(totals.accepted, totals.drafted, totals.acceptance_rate))]
    for name, share in totals.by_drafter.items():
        if share.drafted:
            rows.append((_NAMES.get(name, name), _kept(share.accepted, share.drafted, share.acceptance_rate)))
    return rows


def _kept(accepted: int, drafted: int, rate: float | None) -> str:
    return f"{accepted:,} of {drafted:,} tokens kept ({rate or 0:.0%})"


def _positions(totals: ChatTotals) -> list[Row]:
    counts: Iterable[tuple[int, int]] = zip(totals.accepted_by_position, totals.drafted_by_position, strict=False)
    return [(f"{at:>2}", f"{bar(kept / drafted)} {kept / drafted:4.0%}") for at, (kept, drafted) in enumerate(counts, 1) if drafted][:_BARS]


def _settings(chat: Chat) -> list[Row]:
    values = chat.settings.model_dump(exclude_none=True)
    system = values.pop("system", None)
    rows = [(name.replace("_", " "), ", ".join(map(repr, value)) if name == "stop" else str(value)) for name, value in values.items() if value != ()]
    if not rows and not system:
        return [("everything", "as the model's own defaults have it")]
    return rows + ([("system prompt", system)] if system else [])


def _seconds(seconds: float) -> str:
    minutes, rest = divmod(seconds, 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest:.0f} s" if minutes else f"{rest:.1f} s"
