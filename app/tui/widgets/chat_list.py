"""The list of chats: a row each, marks that stay while the search changes, and more rows when the end comes near."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from app.store import Found, Words
from app.tui.keys import bind
from app.tui.widgets.chat_row import SIGNS, row


class ChatList(OptionList):
    """What its keys ask for is done by the screen, which knows the store."""

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("list_mark", "mark", show=True),
        bind("list_rename", "screen.rename", show=True),
        bind("list_pin", "screen.pin", show=True),
        bind("list_tag", "screen.tag", show=True),
        bind("list_delete", "screen.delete", show=True),
        bind("list_undo", "screen.undo", show=True),
        bind("list_export", "screen.export", show=True),
        bind("list_import", "screen.import_file", show=True),
        bind("list_new", "screen.new"),
        bind("list_details", "screen.details"),
        bind("list_search", "screen.search"),
        Binding("tab", "screen.search", "Search", show=False),
    ]
    DEFAULT_CSS = """
    ChatList {
        height: 1fr; width: 1fr; border: none; padding: 0; background: $background;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    class MarksChanged(Message):
        """More or fewer chats are marked."""

    class EndNear(Message):
        """The last row is highlighted; there may be more chats."""

    def __init__(self, current: int | None, *, id: str | None = None) -> None:
        """`current` is the chat that is open."""
        super().__init__(id=id, markup=False, compact=True)
        self.marks: set[int] = set()
        self._current = current
        self._found: dict[int, Found] = {}
        self._words = Words("")

    @property
    def chosen(self) -> list[int]:
        """The chats that an action is for: those marked, or the highlighted one."""
        here = self.here
        return sorted(self.marks) if self.marks else [here.chat.id] if here is not None else []

    @property
    def here(self) -> Found | None:
        """The highlighted chat."""
        option = self.highlighted_option
        return self._found[int(option.id)] if option is not None and option.id is not None else None

    @property
    def shown(self) -> list[int]:
        """The chats in the list, from the top."""
        return list(self._found)

    def show(self, found: Sequence[Found], words: Words, *, highlight: int | None = None) -> None:
        """These chats, with the words that were looked for; the highlight stays on its chat, or goes to `highlight`."""
        place = self.highlighted or 0
        wanted = highlight if highlight is not None else self.here.chat.id if self.here is not None else self._current
        self._found, self._words = {item.chat.id: item for item in found}, words
        now = time.time()
        self.clear_options()
        self.add_options([Option(self._row(item, now), id=str(item.chat.id)) for item in found])
        if found:
            ids = list(self._found)
            self.highlighted = ids.index(wanted) if wanted in self._found else min(place, len(ids) - 1)

    def action_mark(self) -> None:
        """Mark the chat or take its mark away, and go on to the next."""
        if self.here is not None:
            self.toggle_mark(self.here.chat.id)
            self.action_cursor_down()

    def on_click(self, event: events.Click) -> None:
        """A click at the very left marks; anywhere else it opens, which the list sees to."""
        index = event.style.meta.get("option")
        if index is not None and event.x < SIGNS:
            event.prevent_default()
            self.highlighted = index
            self.toggle_mark(self.shown[index])

    def toggle_mark(self, chat_id: int) -> None:
        self.marks ^= {chat_id}
        self._redraw([chat_id])

    def clear_marks(self) -> None:
        cleared, self.marks = self.marks, set()
        self._redraw(cleared)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        if event.option_index == self.option_count - 1:
            self.post_message(self.EndNear())

    def _redraw(self, chat_ids: Sequence[int] | set[int]) -> None:
        now = time.time()
        for chat_id in chat_ids:
            if chat_id in self._found:
                self.replace_option_prompt(str(chat_id), self._row(self._found[chat_id], now))
        self.post_message(self.MarksChanged())

    def _row(self, found: Found, now: float) -> Content:
        chat_id = found.chat.id
        return row(found, self._words, marked=chat_id in self.marks, current=chat_id == self._current, now=now)
