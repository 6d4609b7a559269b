"""What the chat screen opens over itself, and what its commands do with whole chats: the chat list, details, presets,
files. Each dialog dismisses with a value; here it takes effect.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from textual.screen import Screen

from app.chat.engine_host import EngineHost
from app.chat.session import ChatSession
from app.errors import AppError
from app.paths import Paths
from app.settings import ChatSettings
from app.store.errors import NotFound
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.transcript import Transcript

Result = TypeVar("Result")
Method = TypeVar("Method", bound=Callable[..., Awaitable[None]])


def refusable(method: Method) -> Method:
    """What the store or a file refuses (a chat deleted in another window, say) becomes one line; the chat goes on."""

    @wraps(method)
    async def guarded(self: ChatDialogs, *args: Any) -> None:
        try:
            await method(self, *args)
        except AppError as error:
            self.tell(str(error), failed=True)

    return cast("Method", guarded)


class ChatDialogs(Screen[None]):
    """The part of the chat screen that deals with whole chats."""

    session: ChatSession
    host: EngineHost
    paths: Paths
    prompt: Prompt
    transcript: Transcript

    async def show_chat(self) -> None:
        """Show the session's chat; see ChatScreen."""
        raise NotImplementedError

    def keep_unsent(self) -> None:
        """Store what stands in the prompt."""
        raise NotImplementedError

    def show_title(self) -> None:
        raise NotImplementedError

    # ---- which chat

    async def action_new_chat(self) -> None:
        self.keep_unsent()
        self.session.start_new()
        await self.show_chat()

    @refusable
    async def open_chat(self, chat_id: int) -> None:
        """Show another chat. A reply that is being written in this one goes on."""
        self.keep_unsent()
        self.session.open(chat_id)
        await self.show_chat()

    def idle(self) -> bool:
        """Whether no reply is being written; the user is told if one is."""
        if self.session.replying:
            self.tell("a reply is being written; Esc stops it")
        return not self.session.replying

    def action_history(self, words: str = "") -> None:
        from app.tui.screens.history import HistoryScreen

        self.keep_unsent()
        chat = self.session.chat
        chats = HistoryScreen(self.session.store, chat.id if chat is not None else None, words)
        self.app.push_screen(chats, lambda chat_id: self._chosen(chat_id, chats.hit))

    async def _chosen(self, chat_id: int | None, hit: int | None) -> None:
        """Back from the chat list, where the chat that is open may have been renamed or deleted. `hit` is the message that
        was found in the chosen one."""
        from app.tui.screens.history import NEW

        if chat_id is not None and chat_id != NEW:
            await self.open_chat(chat_id)
            if hit is not None:
                await self.transcript.go_to(hit)
            return
        try:
            if chat_id == NEW:
                raise NotFound("a new one is wanted")
            self.session.refresh()
        except NotFound:
            self.session.start_new()
            await self.show_chat()
        self.show_title()

    def action_details(self) -> None:
        from app.tui.screens.details import DetailsScreen

        if self.session.chat is None:
            self.tell("this chat has nothing in it yet")
        else:
            self.app.push_screen(DetailsScreen(self.session.store, self.session.chat.id))

    @refusable
    async def action_delete(self) -> None:
        """Delete the chat that is open."""
        if self.session.chat is not None and self.idle():
            self.host.forget_chats([self.session.chat.id])
            self.session.delete_chat()
            await self.show_chat()
            self.tell("the chat is deleted; /undo brings it back")

    # ---- its name and settings

    def action_rename(self, title: str = "") -> None:
        from app.tui.screens.ask_line import AskLine

        def rename(given: str | None) -> None:
            if given is not None and given.strip():
                self.session.rename(" ".join(given.split()))
                self.show_title()

        if title:
            rename(title)
        else:
            self.app.push_screen(AskLine("Title of this chat:", self.session.chat.title if self.session.chat else ""), rename)

    def action_make_title(self) -> None:
        job = self.session.title_job(again=True)
        if job is None:
            self.tell("there is nothing yet to name it after")
        else:
            self.host.title(job)

    async def action_system(self, text: str = "") -> None:
        if text:
            self.session.set_settings(self.session.settings.model_copy(update={"system": text, "preset": None}))
            self.tell("this chat has a new system prompt")
        else:
            await self.app.run_action("settings")

    def action_preset(self, name: str = "") -> None:
        """Take a preset by its name, or choose one."""
        if name:
            self._attempt(lambda: self._take_preset(name))
            return
        from app.tui.screens.presets import PresetsScreen

        def take(chosen: ChatSettings | None) -> None:
            if chosen is not None:
                self.session.set_settings(chosen)
                self.tell(f"this chat uses the preset {self.session.settings.preset}")

        self.app.push_screen(PresetsScreen(self.paths, self.session.settings), take)

    def _take_preset(self, name: str) -> None:
        from app.settings import load_presets

        presets = {preset.name.lower(): preset for preset in load_presets(self.paths)}
        if (preset := presets.get(name.lower())) is None:
            raise AppError(f"there is no preset {name!r}; /preset lists them")
        self.session.set_settings(preset.applied())
        self.tell(f"this chat uses the preset {preset.name}")

    # ---- files

    def action_export(self, file: str = "") -> None:
        """Save the chat into a file, or into the present folder under its title."""
        from app.transfer import save_export

        if self.session.chat is None:
            self.tell("this chat has nothing in it yet")
            return
        chat_id = self.session.chat.id
        self._attempt(lambda: self.tell(f"saved as {save_export(self.session.store, [chat_id], Path(file or '.'))}"))

    async def action_import(self, file: str) -> None:
        """Read a file of chats."""
        from app.transfer import import_file

        try:
            imported = await asyncio.to_thread(import_file, self.session.store, Path(file).expanduser())
        except AppError as error:
            self.tell(str(error), failed=True)
            return
        self.tell(f"read {imported.summary}")
        if len(imported.chat_ids) == 1:
            await self.open_chat(imported.chat_ids[0])

    # ---- saying so

    def tell(self, line: str, *, failed: bool = False) -> None:
        """One line that passes."""
        self.notify(line, severity="error" if failed else "information", markup=False)

    def _attempt(self, call: Callable[[], Result]) -> None:
        try:
            call()
        except AppError as error:
            self.tell(str(error), failed=True)

