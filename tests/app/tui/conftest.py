"""The real app on a real store, driven by keys; with or without a tiny real model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import pytest
from textual.pilot import Pilot

from app.chat.conversation import Message
from app.options import LoadChoices
from app.paths import Paths
from app.settings import ChatSettings, Settings
from app.store import ChatStore

if TYPE_CHECKING:
    from app.tui.app import PacelineApp

PATIENCE = 60.0
"""Seconds a test waits for something before it fails: much longer than anything takes."""
SIZE = (80, 24)

GREEDY = ChatSettings(temperature=0.0, max_tokens=40)


class Running:
    """The app, its pilot and its store."""

    def __init__(self, app: PacelineApp, pilot: Pilot[int]) -> None:
        self.app = app
        self.pilot = pilot
        self.screen = app.chat_screen
        self.transcript = app.chat_screen.transcript
        self.session = app.session

    @property
    def store(self) -> ChatStore:
        return self.app.session.store

    async def until(self, true: Callable[[], object], what: str = "") -> None:
        """Wait until something is so."""
        end = monotonic() + PATIENCE
        while not true():
            assert monotonic() < end, what or "it did not come to that"
            await asyncio.sleep(0.005)

    async def ready(self) -> None:
        """Wait for the model."""
        await self.until(lambda: self.app.host.state == "ready", "no model was loaded")
        await self.until(lambda: self.screen.status.model not in ("no model", "loading…"))

    async def ask(self, text: str, *, wait: bool = True) -> None:
        """Type a message and send it; wait for the end of the reply."""
        self.screen.prompt.load(text)
        self.screen.prompt.focus()
        await self.pilot.pause()
        self.app.simulate_key("enter")  # the pilot would wait until the screen is at rest: a reply can be over by then
        await self.until(lambda: self.session.path and any(m.text == text for m in self.session.path))
        if wait:
            await self.until(lambda: not self.session.replying)
            await self.pilot.pause()

    def shown(self, message_id: int) -> str:
        """All text that the widgets of a message show."""
        view = self.transcript.view(message_id)
        assert view is not None
        return "\n".join(str(widget.render()) for widget in view.query("Static")) + "\n" + view.text

    @property
    def path(self) -> list[Message]:
        return self.session.path


RunApp = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture(scope="session")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What decoding costs, measured by the first test that loads a model."""
    return tmp_path_factory.mktemp("profiles")


@pytest.fixture
def paths(tmp_path: Path, profiles: Path) -> Paths:
    return replace(Paths.find({"PACELINE_HOME": str(tmp_path / "home")}), profiles=profiles)


@pytest.fixture
def store(paths: Paths) -> ChatStore:
    """The store the app will run on; the app closes it."""
    return ChatStore.open(paths.chat_store)


@pytest.fixture
def run_app(paths: Paths, store: ChatStore, monkeypatch: pytest.MonkeyPatch) -> RunApp:
    """`async with run_app(model=..., draft=..., chat=...) as running`. Without a model there is none to be found."""
    monkeypatch.delenv("NO_COLOR", raising=False)

    @asynccontextmanager
    async def run(
        *, model: Path | None = None, draft: Path | None = None, chat: int | None = None, size: tuple[int, int] = SIZE, ctx: int = 2048,
        settings: ChatSettings = GREEDY, **more: object,
    ) -> AsyncIterator[Running]:
        from app.tui.app import PacelineApp, Start

        choices = LoadChoices(target=str(model or paths.models / "none.gguf"), draft=str(draft or "none"), ctx=ctx, threads=1)
        wanted = Settings(chat=settings, **{"auto_title": False, **more})
        app = PacelineApp(Start(paths, wanted, store, choices))
        if chat is not None:
            app.session.open(chat)
        try:
            async with app.run_test(size=size) as pilot:
                running = Running(app, pilot)
                if model is not None:
                    await running.ready()
                else:  # until it is plain that there is none
                    await running.until(lambda: "F5 loads" in running.screen.activity.text)
                yield running
        finally:
            app.close()

    return run


def fill(store: ChatStore, count: int, text: Callable[[int], str] = lambda i: f"message {i}") -> int:
    """A chat of `count` messages, from the user and the assistant in turn; its id."""
    chat = store.new_chat(GREEDY)
    messages = [
        Message(i + 1, chat.id, i or None, "user" if i % 2 == 0 else "assistant", text(i), 1_700_000_000.0 + i) for i in range(count)
    ]
    made = store.insert_chat(replace(chat, leaf_id=count or None), messages)
    store.delete_chats([chat.id])
    return made
