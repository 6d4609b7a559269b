"""The prompt's editor: grows with its text, takes pastes as one text, and leaves Enter to the prompt.

Enter, the newline keys and the history keys are bindings with ids, so that the user can change them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar
from unicodedata import category

from rich.text import Text
from textual import events
from textual.actions import SkipAction
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widgets import TextArea

from app.chat.attachments import pasted_at_end
from app.sanitize import sanitize
from app.tui.keys import bind
from app.tui.widgets.prompt_graphemes import ClusterText, next_boundary, previous_boundary

ROWS = 10
"""Most lines in sight; fewer where the terminal has few."""
FOLD_CHARACTERS = 4_000
FOLD_LINES = 60
"""A longer paste is shown as a mention and sent in full: an editor of a million characters would be slow at every key."""


class PromptInput(TextArea):
    """From one line to ten, then it scrolls."""

    DEFAULT_CSS = """
    PromptInput {
        height: auto;
        border: round $border-blurred;
        padding: 0 1;
        background: $background;
        scrollbar-size-vertical: 1;
        &:focus { border: round $border; }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        bind("send", "send"),
        bind("newline", "newline"),
        bind("earlier_prompt", "earlier_prompt"),
        bind("later_prompt", "later_prompt"),
        bind("complete", "complete"),
        bind("drop_attachment", "drop_attachment"),
    ]

    class Send(Message):
        """The text is to be sent, or the completion to be taken."""

    class LongPaste(Message):
        """A text too long to edit was pasted; its mention is to be inserted."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Asked(Message):
        """A key for the prompt as a whole: `earlier`, `later`, `complete`, `drop` or `close`."""

        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    def __init__(self) -> None:
        super().__init__(
            soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False,
            placeholder="Ask something   / for commands   @ for a file",
        )
        self.cursor_blink = False  # it would redraw twice a second, also over a slow line
        self.completing = False
        """The list of completions is open: arrows, Tab, Enter and Esc belong to it."""

    def render_line(self, y: int) -> Strip:
        if self.content_size.width < 1:  # for a moment of a resize; the placeholder cannot be wrapped to nothing
            return Strip.blank(self.size.width)
        return super().render_line(y)

    def on_key(self, event: events.Key) -> None:
        if event.key == "escape" and self.completing:
            self.post_message(self.Asked("close"))
            event.stop()
            event.prevent_default()
        elif event.key == "enter":
            event.prevent_default()  # the binding decides what it does
        elif event.character is not None and category(event.character) == "Cf":
            self.put_in(event.character)  # joins or directs letters; Textual takes it for no text
            event.stop()
            event.prevent_default()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As high as the text, but never more than about half of the screen."""
        return min(super().get_content_height(container, viewport, width), ROWS, max(1, viewport.height // 2 - 3))

    # Pasting

    async def on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        self.paste(event.text)

    def paste(self, text: str) -> None:
        """Put `text` in at the cursor; a long one goes to the prompt first."""
        text = sanitize(text.replace("\r\n", "\n").replace("\r", "\n"))
        if len(text) > FOLD_CHARACTERS or text.count("\n") > FOLD_LINES:
            self.post_message(self.LongPaste(text))
        elif text:
            self.put_in(text)

    def put_in(self, text: str) -> None:
        """Replace the selection by `text`; the cursor stands after it."""
        result = self.replace(text, *self.selection, maintain_selection_offset=False)
        self.move_cursor(result.end_location)

    def action_paste(self) -> None:
        self.paste(self.app.clipboard)

    # Bindings

    def action_send(self) -> None:
        row, column = self.cursor_location
        line = self.document.get_line(row)
        if not self.completing and column == len(line) and line.endswith("\\"):
            self.replace("\n", (row, column - 1), (row, column), maintain_selection_offset=False)
            return
        self.post_message(self.Send())

    def action_newline(self) -> None:
        self.put_in("\n")

    def action_earlier_prompt(self) -> None:
        self.post_message(self.Asked("earlier"))

    def action_later_prompt(self) -> None:
        self.post_message(self.Asked("later"))

    def action_complete(self) -> None:
        if not self.completing:
            raise SkipAction  # Tab goes to the next widget
        self.post_message(self.Asked("complete"))

    def action_drop_attachment(self) -> None:
        self.post_message(self.Asked("drop"))

    def action_delete_left(self) -> None:
        """A pasted text's mention goes as a whole."""
        row, column = self.cursor_location
        mention = pasted_at_end(self.document.get_line(row)[:column]) if self.selection.is_empty else ""
        if mention:
            self.delete((row, column - len(mention)), (row, column), maintain_selection_offset=False)
        else:
            super().action_delete_left()

    def get_line(self, line_index: int) -> Text:
        return ClusterText(self.document.get_line(line_index), end="", no_wrap=True)

    def get_cursor_left_location(self) -> tuple[int, int]:
        row, column = self.cursor_location
        if not column:
            return super().get_cursor_left_location()
        return row, previous_boundary(self.document.get_line(row), column)

    def get_cursor_right_location(self) -> tuple[int, int]:
        row, column = self.cursor_location
        line = self.document.get_line(row)
        return (row, next_boundary(line, column)) if column < len(line) else super().get_cursor_right_location()

    def action_cursor_up(self, select: bool = False) -> None:
        if not select and (self.completing or self.navigator.is_first_wrapped_line(self.cursor_location)):
            self.post_message(self.Asked("earlier"))
        else:
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:
        if not select and (self.completing or self.navigator.is_last_wrapped_line(self.cursor_location)):
            self.post_message(self.Asked("later"))
        else:
            super().action_cursor_down(select)

    def action_cursor_page_up(self) -> None:
        self._page(super().action_cursor_page_up)

    def action_cursor_page_down(self) -> None:
        self._page(super().action_cursor_page_down)

    def _page(self, action: Callable[[], None]) -> None:
        if self.wrapped_document.height <= self.content_size.height:
            raise SkipAction  # all of it is in sight: the keys scroll the chat
        action()

