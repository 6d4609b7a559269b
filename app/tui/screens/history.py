"""All chats: searching them, opening one, and keeping them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import ClassVar, TypeVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.message import Message
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Static

from app.chat.conversation import Chat
from app.errors import AppError
from app.paths import typed_path
from app.sanitize import sanitize
from app.store import ChatStore, Found, StoreError, find_chats
from app.tui.keys import bind
from app.tui.screens.ask_line import AskLine
from app.tui.widgets.chat_list import ChatList

Result = TypeVar("Result")

NEW = 0
"""What the screen dismisses with for a chat that is not there yet."""
PAGE = 60
"""Chats that are shown at first; twice as many each time the end of the list is reached."""
_TYPING = 0.1
"""Seconds without a key after which a search begins."""


class SearchField(Input):
    """A field over a list: the keys that go through the list work while one types."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down", "screen.move('cursor_down')", "Choose", key_display="↑↓"),
        Binding("up", "screen.move('cursor_up')", "Up", show=False),
        Binding("pagedown", "screen.move('page_down')", "Page down", show=False),
        Binding("pageup", "screen.move('page_up')", "Page up", show=False),
        Binding("enter", "submit", "Open"),
        Binding("tab", "screen.list", "Mark, rename, delete …"),
    ]


class HistoryScreen(ModalScreen[int | None]):
    """Dismisses with the id of the chat to open, NEW for a new one, None to go back to the one that was open.

    Typing searches; up, down and Enter work meanwhile. In the list (Tab) single keys rename, pin, tag, delete and export
    the marked chats, or the highlighted one.
    """

    BINDINGS: ClassVar[list[BindingType]] = [bind("close", "dismiss(None)", show=True)]
    DEFAULT_CSS = """
    HistoryScreen {
        background: $background;
        Vertical { width: 1fr; height: 1fr; }
        #history-head { height: 1; width: 1fr; padding: 0 1; background: $panel; }
        #history-title { width: auto; padding: 0 1 0 0; text-style: bold; }
        #history-state { width: auto; padding: 0 0 0 1; color: $text-muted; }
        Input { width: 1fr; height: 1; border: none; padding: 0; background: $surface; }
        #history-none { display: none; height: 1fr; width: 1fr; content-align: center middle; color: $text-muted; }
        &.-none #history-none { display: block; }
        &.-none ChatList { height: 1; }
    }
    """

    class Deleted(Message):
        """These chats were deleted."""

        def __init__(self, chat_ids: list[int]) -> None:
            super().__init__()
            self.chat_ids = chat_ids

    def __init__(self, store: ChatStore, current: int | None, query: str = "", *, deleted: list[list[int]] | None = None) -> None:
        """`current` is the chat that is open; `query` stands in the search field at first. `deleted` is what earlier deletions
        took, the last one at the end; those made here are added, those taken back removed."""
        super().__init__()
        self._store = store
        self._field = SearchField(query, placeholder="search all chats, or #tag", compact=True, select_on_focus=False)
        self._list = ChatList(current, id="history-list")
        self._state = Static("", id="history-state", markup=False)
        self._nothing = Static("", id="history-none", markup=False)
        self._limit = PAGE
        self._shown_for: str | None = None
        """What stood in the search field when the list was read."""
        self.hit: int | None = None
        """The message with the words that were looked for, in the chat that is opened."""
        self._opening = False
        """Enter was quicker than the search: open what it finds."""
        self._deleted = deleted if deleted is not None else []

    def compose(self) -> ComposeResult:
        with Vertical():
            with Horizontal(id="history-head"):
                yield Static("Chats", id="history-title", markup=False)
                yield self._field
                yield self._state
            yield self._list
            yield self._nothing
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        self._field.focus()
        self._reload()

    # ---- the list

    def _reload(self, *, delay: float = 0.0, highlight: int | None = None) -> None:
        """Show what fits the search field now. The store is asked in a thread: a short word can take it 0.1 s."""
        self.run_worker(self._load(delay, highlight), exclusive=True, group="load")

    async def _load(self, delay: float, highlight: int | None) -> None:
        if delay:
            await asyncio.sleep(delay)
        query = self._field.value
        try:
            found, words = await asyncio.to_thread(find_chats, self._store, query, self._limit)
        except StoreError as error:
            self._tell(str(error), failed=True)
            return
        if delay and words and found:
            highlight = found[0].chat.id  # what was typed has to do with the top of the list, not with the chat that was there
        self._list.show(found, words, highlight=highlight)
        self._nothing.update("Nothing holds all of that." if query.strip() else "No chats yet.")
        self.set_class(not found, "-none")
        self._show_state()
        self._shown_for = query
        if self._opening and query == self._field.value:
            self._opening = False
            self.action_open()

    def _show_state(self) -> None:
        count = len(self._list.shown)
        marked = len(self._list.marks)
        more = "+" if count >= self._limit else ""
        self._state.update(f"{marked} marked" if marked else "1 chat" if count == 1 else f"{count}{more} chats")

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self._limit = PAGE
        self._opening = False
        self._reload(delay=_TYPING)

    def on_chat_list_marks_changed(self) -> None:
        self._show_state()

    def on_chat_list_end_near(self) -> None:
        if len(self._list.shown) >= self._limit:
            self._limit *= 2
            self._reload()

    # ---- going elsewhere

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._opening = bool(self._field.value.strip()) and self._shown_for != self._field.value
        if not self._opening:
            self.action_open()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_open()

    def action_open(self) -> None:
        """Open the highlighted chat, on the branch where the words were found."""
        if (here := self._list.here) is not None and self._did(partial(self._show_branch, here)):
            self.dismiss(here.chat.id)

    def _show_branch(self, found: Found) -> None:
        self._store.chat(found.chat.id)  # or it was deleted in another window
        self.hit = found.hit.message_id if found.hit is not None else None
        if found.hit is not None and found.hit.message_id not in {message.id for message in self._store.path(found.chat.id)}:
            self._store.select(found.hit.message_id)

    def action_new(self) -> None:
        self.dismiss(NEW)

    async def action_move(self, how: str) -> None:
        """Move the highlight, by an action of the list, while the search field has the focus."""
        await self._list.run_action(how)

    def action_search(self) -> None:
        self._field.focus()

    def action_list(self) -> None:
        """Go to the list; the foot of the screen shows its keys then."""
        self._list.focus()

    # ---- keeping order

    @work
    async def action_rename(self) -> None:
        """Rename the highlighted chat."""
        if (here := self._list.here) is not None:
            title = await self.app.push_screen_wait(AskLine("Name of the chat", sanitize(here.chat.title)))
            if title is not None:
                self._change(lambda: self._store.rename(here.chat.id, title))

    def action_pin(self) -> None:
        """Pin the chosen chats; if all of them are, let them go."""
        chosen = self._chosen()
        pinned = not all(chat.pinned for chat in chosen)
        self._change_each([chat.id for chat in chosen], lambda chat_id: self._store.pin(chat_id, pinned))

    @work
    async def action_tag(self) -> None:
        """Give one chat exactly these tags; give several these as well."""
        if chosen := self._chosen():
            own = chosen[0].tags if len(chosen) == 1 else ()
            line = await self.app.push_screen_wait(AskLine(self._tag_question(len(chosen)), ", ".join(map(sanitize, own))))
            if line is not None:
                tags = line.replace("#", "").split(",")
                before = {chat.id: () if len(chosen) == 1 else chat.tags for chat in chosen}
                self._change_each(list(before), lambda chat_id: self._store.set_tags(chat_id, [*before[chat_id], *tags]))

    def _tag_question(self, count: int) -> str:
        known = ", ".join(sanitize(tag) for tag, _ in self._store.tags()[:12])
        what = "Tags, with commas between them" if count == 1 else f"Tags for these {count} chats besides their own"
        return f"{what} (in use: {known})" if known else what

    def action_delete(self) -> None:
        """Delete the chosen chats; undo brings them back."""
        if (chosen := self._list.chosen) and self._change(lambda: self._store.delete_chats(chosen)):
            self._deleted.append(chosen)
            self.post_message(self.Deleted(chosen))
            self._tell(f"{_chats(len(chosen))} deleted; u brings {'it' if len(chosen) == 1 else 'them'} back")

    def action_undo(self) -> None:
        """Take the last deletion back."""
        if self._deleted:
            back = self._deleted.pop()
            self._change(lambda: self._store.restore_chats(back), highlight=back[0])
        else:
            self._tell("nothing was deleted")

    def action_details(self) -> None:
        """The numbers of the highlighted chat."""
        from app.tui.screens.details import DetailsScreen

        if (here := self._list.here) is not None:
            self.app.push_screen(DetailsScreen(self._store, here.chat.id), lambda _: self._reload())

    @work
    async def action_export(self) -> None:
        """Write the chosen chats into a file."""
        from app.transfer import save_export, suggested_name

        if chats := self._chosen():
            chosen = [chat.id for chat in chats]
            name = suggested_name(chats[0].title) if len(chats) == 1 else "chats.md"
            line = await self.app.push_screen_wait(AskLine(f"File for {_chats(len(chosen))}: .md to read, .json to import again", str(Path.cwd() / name)))
            if line is not None and line.strip():
                path = typed_path(line)
                written = await self._in_thread(lambda: save_export(self._store, chosen, path))
                if written is not None:
                    self._list.clear_marks()
                    self._tell(f"written to {written}")

    @work
    async def action_import_file(self) -> None:
        """Read chats from a file."""
        from app.transfer import import_file

        question = "File to import: of Paceline, ChatGPT (.json, .zip) or LM Studio"
        line = await self.app.push_screen_wait(AskLine(question, ""))
        if line is not None and line.strip():
            path = typed_path(line)
            done = await self._in_thread(lambda: import_file(self._store, path))
            if done is not None:
                self._tell(done.summary)
                self._field.value = ""
                self._reload(highlight=done.chat_ids[0])

    # ---- the store

    def _chosen(self) -> list[Chat]:
        """The chats that an action is for, those included that are marked and do not fit the search; none if one of them
        is gone, which the user is told."""
        chosen: list[Chat] = []
        return chosen if self._did(lambda: chosen.extend(self._store.chat(i) for i in self._list.chosen)) else []

    def _change(self, change: Callable[[], object], *, highlight: int | None = None) -> bool:
        """Change something and show the list anew; marks have done their work then."""
        if done := self._did(change):
            self._list.clear_marks()
            self._reload(highlight=highlight)
        return done

    def _change_each(self, chat_ids: list[int], change: Callable[[int], object]) -> None:
        def all_of_them() -> None:
            for chat_id in chat_ids:
                change(chat_id)

        self._change(all_of_them)

    def _did(self, call: Callable[[], object]) -> bool:
        """Call the store; False, and the user is told, if it refuses."""
        try:
            call()
        except AppError as error:
            self._tell(str(error), failed=True)
            return False
        return True

    async def _in_thread(self, call: Callable[[], Result]) -> Result | None:
        """The same in a thread, for what takes its time; None if it is refused."""
        try:
            return await asyncio.to_thread(call)
        except AppError as error:
            self._tell(str(error), failed=True)
            return None

    def _tell(self, line: str, *, failed: bool = False) -> None:
        self.notify(sanitize(line), severity="error" if failed else "information", markup=False)


def _chats(count: int) -> str:
    return "1 chat" if count == 1 else f"{count} chats"
