"""A real engine host on a real store, and what it told, for tests."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from app.chat.conversation import Message
from app.chat.engine_host import EngineHost, ReplyJob
from app.chat.events import HostEvent, ModelFailed, ModelMissing, ModelReady, ReplyEnded
from app.options import LoadChoices
from app.paths import Paths
from app.settings import ChatSettings
from app.store import ChatStore, StoreError
from engine import ChatMessage

Event = TypeVar("Event")

PATIENCE = 60.0
"""Seconds a test waits for an event before it fails: much longer than any takes."""
GREEDY = {"temperature": 0.0}


class Heard:
    """All events, in order; can be waited for."""

    def __init__(self) -> None:
        self.events: list[HostEvent] = []
        self._changed = threading.Condition()
        self._act: Callable[[HostEvent], None] = lambda _: None

    def __call__(self, event: HostEvent) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()
        self._act(event)

    def each(self, act: Callable[[HostEvent], None]) -> None:
        """Do something with every event, on the thread that tells it."""
        self._act = act

    def first(self, kind: type[HostEvent], act: Callable[[], object]) -> None:
        """Do something at the next event of that kind, on the thread that tells it."""

        def once(event: HostEvent) -> None:
            if isinstance(event, kind):
                self._act = lambda _: None
                act()

        self._act = once

    def all(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.events if isinstance(event, kind)]

    def wait(self, kind: type[Event] | tuple[type[Event], ...], meant: Callable[[Any], bool] = lambda _: True, since: int = 0) -> Event:
        """The first event of that kind from number `since` on, waiting for it."""

        def found() -> Event | None:
            return next((e for e in self.events[since:] if isinstance(e, kind) and meant(e)), None)

        with self._changed:
            event = self._changed.wait_for(found, PATIENCE)
        assert event is not None, f"no {kind} in {[type(e).__name__ for e in self.events[since:]]}"
        return event


class Hosting:
    """A host, its store and what it told."""

    def __init__(self, home: Path, **settings: Any) -> None:
        self.paths = Paths.find({"PACELINE_HOME": str(home)})
        self.store = ChatStore.open(self.paths.chat_store)
        self.chat_for_filling = self.store.new_chat(ChatSettings()).id
        self.heard = Heard()
        self.host = EngineHost(self.heard, lambda: self.store, self.paths, **settings)

    def close(self) -> None:
        self.host.close()
        self.store.close()

    def load(self, target: Path | str, draft: Path | str | None = None, ctx: int = 1024) -> ModelReady | ModelFailed | ModelMissing:
        """Load, and wait for what comes of it."""
        since = len(self.heard.events)
        self.host.load(LoadChoices(target=str(target), draft=str(draft or "none"), ctx=ctx, threads=1))
        return self.heard.wait((ModelReady, ModelFailed, ModelMissing), since=since)

    def chat(self, **settings: Any) -> int:
        return self.store.new_chat(ChatSettings(**{**GREEDY, "max_tokens": 24, **settings})).id

    def ask(self, chat_id: int, text: str, overflow: Any = "drop") -> Message:
        """Store a message, ask for the reply; the reply's row."""
        path = self.store.path(chat_id)
        asked = self.store.add_message(chat_id, path[-1].id if path else None, "user", text)
        reply = self.store.start_reply(chat_id, asked.id)
        settings = self.store.chat(chat_id).settings
        shown = [m for m in self.store.path(chat_id) if m.id != reply.id]
        first = max((i for i, m in enumerate(shown) if m.kind == "summary"), default=0)
        head = (ChatMessage("system", settings.system),) if settings.system else ()
        messages = (*head, *(ChatMessage(m.role, m.text) for m in shown[first:]))
        self.host.reply(ReplyJob(chat_id, reply.id, messages, settings, overflow))
        return reply

    def ended(self, reply: Message) -> ReplyEnded:
        return self.heard.wait(ReplyEnded, lambda e: e.message_id == reply.id)

    def fill_store(self) -> None:
        """The store takes nothing more, as on a full disk."""
        with self.store._db._lock:
            connection = self.store._db._connection
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages}")
        chat = self.chat_for_filling
        with contextlib.suppress(StoreError):
            while True:
                self.store.add_message(chat, None, "user", "x" * 500)

    def answer(self, chat_id: int, text: str, overflow: Any = "drop") -> ReplyEnded:
        return self.ended(self.ask(chat_id, text, overflow))
