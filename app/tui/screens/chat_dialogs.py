"""What the chat screen opens over itself, and what its commands do with whole chats: the chat list, details, presets,
files. Each dialog dismisses with a value; here it takes effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

from app.errors import AppError
from app.paths import typed_path
from app.settings import ChatSettings
from app.store.errors import NotFound

if TYPE_CHECKING:
    from app.tui.screens.chat import ChatScreen

Method = TypeVar("Method", bound=Callable[..., Awaitable[None]])


class Teller(Protocol):
    """Whoever can say a line to the user."""

    def tell(self, line: str, *, failed: bool = False) -> None: ...


def refusable(method: Method) -> Method:
    """What the store or a file refuses (a chat deleted in another window, say) becomes one line; the chat goes on."""

    @wraps(method)
    async def guarded(self: Teller, *args: Any) -> None:
        try:
            await method(self, *args)
        except AppError as error:
            self.tell(str(error), failed=True)

    return cast("Method", guarded)


class ChatDialogs:
    """The screen's hand for whole chats. Its actions are commands (see app/tui/commands.py)."""

    def __init__(self, screen: ChatScreen) -> None:
        self._screen = screen
        self._session = screen.session
        self._host = screen.host
        self.tell = screen.tell
        self.choosing = False
        """The chat list is open, or what was done there has not taken effect."""

    # ---- which chat

    async def action_new_chat(self) -> None:
        self._screen.keep_unsent()
        self._session.start_new()
        await self._screen.show_chat()

    @refusable
    async def open_chat(self, chat_id: int) -> None:
        """Show another chat. A reply that is being written in this one goes on."""
        self._screen.keep_unsent()
        self._session.open(chat_id)
        await self._screen.show_chat()

    def action_history(self, words: str = "") -> None:
        from app.tui.screens.history import HistoryScreen

        self._screen.keep_unsent()
        chat = self._session.chat
        current = chat.id if chat is not None else None
        chats = HistoryScreen(self._session.store, current, words, deleted=self._session.deleted_chats)
        self.choosing = True
        self._screen.app.push_screen(chats, lambda chat_id: self._chosen(chat_id, chats.hit))

    async def _chosen(self, chat_id: int | None, hit: int | None) -> None:
        """Back from the chat list, where the chat that is open may have been renamed or deleted. `hit` is the message that
        was found in the chosen one."""
        from app.tui.screens.history import NEW

        self.choosing = False
        if chat_id is not None and chat_id != NEW:
            await self.open_chat(chat_id)
            if hit is not None:
                await self._screen.transcript.go_to(hit)
            return
        try:
            if chat_id == NEW:
                raise NotFound("a new one is wanted")
            self._session.refresh()
        except NotFound:
            self._session.start_new()
            await self._screen.show_chat()
        self._screen.show_title()

    def action_details(self) -> None:
        from app.tui.screens.details import DetailsScreen

        if self._session.chat is None:
            self.tell("this chat has nothing in it yet")
        else:
            self._screen.app.push_screen(DetailsScreen(self._session.store, self._session.chat.id))

    @refusable
    async def action_delete(self) -> None:
        """Delete the chat that is open."""
        if self._session.chat is not None and self._screen.idle():
            self._host.forget_chats([self._session.chat.id])
            self._session.delete_chat()
            await self._screen.show_chat()
            self.tell("the chat is deleted; /undo brings it back")

    # ---- its name and settings

    def action_rename(self, title: str = "") -> None:
        from app.tui.screens.ask_line import AskLine

        def rename(given: str | None) -> None:
            if given is not None and given.strip():
                self._session.rename(" ".join(given.split()))
                self._screen.show_title()

        if title:
            rename(title)
        else:
            self._screen.app.push_screen(AskLine("Title of this chat:", self._session.chat.title if self._session.chat else ""), rename)

    def action_make_title(self) -> None:
        job = self._session.title_job(again=True)
        if job is None:
            self.tell("there is nothing yet to name it after")
        else:
            self._host.title(job)

    async def action_system(self, text: str = "") -> None:
        if text:
            self._session.set_settings(self._session.settings.model_copy(update={"system": text, "preset": None}))
            self.tell("this chat has a new system prompt")
        else:
            await self._screen.app.run_action("settings")

    @refusable
    async def action_preset(self, name: str = "") -> None:
        """Take a preset by its name, or choose one."""
        if name:
            self._take_preset(name)
            return
        from app.tui.screens.presets import PresetsScreen

        def take(chosen: ChatSettings | None) -> None:
            if chosen is not None:
                self._session.set_settings(chosen)
                self.tell(f"this chat uses the preset {self._session.settings.preset}")

        self._screen.app.push_screen(PresetsScreen(self._screen.paths, self._session.settings), take)

    def _take_preset(self, name: str) -> None:
        from app.settings import load_presets

        presets = {preset.name.lower(): preset for preset in load_presets(self._screen.paths)}
        if (preset := presets.get(name.lower())) is None:
            raise AppError(f"there is no preset {name!r}; /preset lists them")
        self._session.set_settings(preset.applied())
        self.tell(f"this chat uses the preset {preset.name}")

    # ---- files

    @refusable
    async def action_export(self, file: str = "") -> None:
        """Save the chat into a file, or into the present folder under its title."""
        from app.transfer import save_export

        if self._session.chat is None:
            self.tell("this chat has nothing in it yet")
            return
        self.tell(f"saved as {save_export(self._session.store, [self._session.chat.id], typed_path(file or '.'))}")

    @refusable
    async def action_import(self, file: str) -> None:
        """Read a file of chats."""
        from app.transfer import import_file

        imported = await asyncio.to_thread(import_file, self._session.store, typed_path(file))
        self.tell(f"read {imported.summary}")
        if len(imported.chat_ids) == 1:
            await self.open_chat(imported.chat_ids[0])
