"""The terminal app: a thin shell around its screens. Themes, keys, and the way from the engine host to the chat screen."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events
from textual.app import App
from textual.binding import BindingType
from textual.filter import LineFilter

from app.chat.engine_host import EngineHost
from app.chat.events import HostEvent, ModelMissing
from app.chat.model_choice import nothing_here
from app.chat.session import ChatSession
from app.options import LoadChoices
from app.paths import Paths
from app.settings import Settings, SettingsError, save_settings
from app.store import ChatStore, StoreError
from app.tui.commands import CommandProvider
from app.tui.keys import apply_keys, bind
from app.tui.messages import HostSaid
from app.tui.screens.chat import ChatScreen
from app.tui.terminal_driver import terminal_driver
from app.tui.themes import apply_theme, line_filters

if TYPE_CHECKING:
    from app.tui.screens.history import HistoryScreen
    from app.tui.screens.settings import SettingsResult

PURGE_SECONDS = 20.0
"""After the start, and again while something goes on."""
IN_MEMORY = "chats in memory only"
ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Start:
    """What the app starts with."""

    paths: Paths
    settings: Settings
    store: ChatStore
    choices: LoadChoices
    remarks: tuple[str, ...] = ()
    """What the user should read first, one line each."""


class PacelineApp(App[int]):
    """Runs until the user leaves or a signal ends it. Whoever runs it calls `close` afterwards."""

    CSS_PATH = "app.tcss"
    TITLE = "Paceline"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[Any] = {CommandProvider}
    BINDINGS: ClassVar[list[BindingType]] = [
        bind("quit", "quit", priority=True),
        bind("help", "help"),
        bind("palette", "command_palette"),
        bind("settings", "settings"),
        bind("models", "models"),
    ]

    def __init__(self, start: Start) -> None:
        super().__init__(driver_class=terminal_driver())
        # The helper of child processes is started with standard error passed on, which Textual replaces by something
        # that is no file. So it has to run before.
        resource_tracker.ensure_running()
        self.paths = start.paths
        self.settings = start.settings
        self.choices = start.choices
        self._remarks = start.remarks
        self.session = ChatSession(start.store, start.settings.chat, self._went_to_memory)
        self.host = EngineHost(
            self._pass_on, lambda: self.session.store, start.paths,
            state_budget_bytes=start.settings.kv_state_budget_mb << 20,
        )
        self.host.shadow_rate = start.settings.shadow_rate
        self.chat_screen = ChatScreen(self.session, self.host, self.paths, lambda: self.settings, self.load_models)

    def on_load(self) -> None:
        problem = apply_theme(self, self.settings.theme, os.environ)
        problems = apply_keys(self, self.settings.keys)
        self._remarks += (*((problem,) if problem else ()), *problems)

    async def on_mount(self) -> None:
        loop = asyncio.get_running_loop()
        for number in ENDING_SIGNALS:
            loop.add_signal_handler(number, self._end_by, number)
        await self.push_screen(self.chat_screen)
        if not self.session.store.persistent:
            self.chat_screen.status.store = IN_MEMORY
        for remark in self._remarks:
            self.notify(remark, severity="warning", markup=False, timeout=10)
        self.set_timer(PURGE_SECONDS, self._purge_when_idle)
        self.call_after_refresh(_collect_less)

    def get_line_filters(self) -> Sequence[LineFilter]:
        return line_filters(self, super().get_line_filters())

    def load_models(self) -> None:
        """Load the chosen models, in the place of what is loaded; where there are none at all, ask which."""
        if nothing_here(self.paths, self.choices):
            self.action_models()
        else:
            self.host.load(self.choices)

    async def on_event(self, event: events.Event) -> None:
        if isinstance(event, events.Key | events.Paste) and self.screen_stack and self.screen is self.chat_screen:
            self.chat_screen.takes_typing(event)  # here, so that the next key already finds the prompt
        await super().on_event(event)

    def _pass_on(self, event: HostEvent) -> None:
        """From the host's thread to ours."""
        self.post_message(HostSaid(event))

    async def on_host_said(self, message: HostSaid) -> None:
        await self.chat_screen.hear(message.event)
        if isinstance(message.event, ModelMissing):
            self.action_models(self.choices.target or "")

    def close(self) -> None:
        """After the run: let the engine keep what it read, and end it. Takes seconds at most."""
        self.host.close()
        self.session.store.close()

    def action_help(self) -> None:
        from app.tui.screens.help import HelpScreen

        self.push_screen(HelpScreen(self.settings.keys))

    def action_models(self, name: str = "") -> None:
        """Choose the models, get what is missing of them, and load them."""
        from app.tui.model_switch import choose_models

        choose_models(self, name)

    def action_settings(self) -> None:
        from app.tui.screens.settings import SettingsScreen

        self.push_screen(SettingsScreen(self.settings, self.session.settings), self._take_settings)

    def _take_settings(self, result: SettingsResult | None) -> None:
        """What was saved in the settings screen takes effect."""
        if result is None:
            return
        if result.chat is not None:
            self.session.set_settings(result.chat)
        try:
            save_settings(self.paths, result.settings, self.settings)
        except SettingsError as error:
            self.notify(f"{error}; the settings hold until you leave", severity="error", markup=False)
        self.settings = result.settings
        self.session.defaults = result.settings.chat
        self.host.keep_states_within(result.settings.kv_state_budget_mb << 20)
        self.host.shadow_rate = result.settings.shadow_rate
        self.chat_screen.apply_settings()

    def on_history_screen_deleted(self, event: HistoryScreen.Deleted) -> None:
        """Chats were deleted in the list: what is written in one ends, and what was read of them goes."""
        if self.session.sent is not None and self.session.sent.reply.chat_id in event.chat_ids:
            self.host.cancel_reply()
        self.host.forget_chats(event.chat_ids)

    def _purge_when_idle(self) -> None:
        """Erase what was deleted long ago, once, when nothing else goes on."""
        if self.host.state in ("loading", "replying"):
            self.set_timer(PURGE_SECONDS, self._purge_when_idle)
        else:
            self.run_worker(self._purge())

    async def _purge(self) -> None:
        with suppress(StoreError):  # housekeeping: the next start tries again
            self.host.forget_chats(await asyncio.to_thread(self.session.store.purge))

    async def action_quit(self) -> None:
        self.chat_screen.keep_unsent()
        self.exit(0)

    def _end_by(self, number: int) -> None:
        """A signal asks for the end: leave as by the quit key, so that the terminal is as it was."""
        self.chat_screen.keep_unsent()
        self.exit(128 + number)

    def _went_to_memory(self, why: str) -> None:
        self.chat_screen.status.store = IN_MEMORY
        self.notify(f"{why}. This session's chats are kept in memory only.", severity="error", timeout=20, markup=False)


def _collect_less() -> None:
    """Where a command switched the collector off for the start: what is there by now stays to the end and need not be gone
    through, which would hold up a key for 50 ms now and then."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
