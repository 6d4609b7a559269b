"""How the list of chats and the details look, at three sizes and in two themes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

from app.chat.conversation import Chat, Message
from app.settings import ChatSettings
from app.store import ChatStore
from app.tui.screens.details import DetailsScreen
from app.tui.screens.history import HistoryScreen
from app.tui.themes import apply_theme
from app.tui.widgets.chat_list import ChatList

THEN = 1_700_000_000.0
SIZES = ((80, 24), (40, 12), (120, 40))
THEMES = ("dark", "light")
TITLES = (
    "Reading a log file line by line", "天気予報の読み方", "[b]not bold[/b] and a title that is much too long for any terminal of eighty columns",
    "مرحبا بالعالم", "", "Party \N{PARTY POPPER} plans", "Regular expressions",
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def store() -> ChatStore:
    made = ChatStore.in_memory()
    blank = Chat(0, "", THEN, THEN, False, (), ChatSettings(), "", 2)
    for day, title in enumerate(TITLES):
        messages = (
            Message(1, 0, None, "user", f"How do I read {title or 'it'}?", THEN),
            Message(2, 0, 1, "assistant", "Open it and go through it line by line; that takes the least memory.", THEN),
        )
        made.insert_chat(replace(blank, title=title, updated=THEN + 86400 * day, pinned=day == 1, tags=("work",) if day % 3 == 0 else ()), messages)
    return made


class Shell(App[None]):
    def __init__(self, theme: str) -> None:
        super().__init__()
        self._wanted = theme

    def on_mount(self) -> None:
        apply_theme(self, self._wanted, {})


def at(size: tuple[int, int]) -> str:
    return f"{size[0]}x{size[1]}"


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES, ids=at)
def test_history(snap_compare: Any, store: ChatStore, size: tuple[int, int], theme: str) -> None:
    async def look(pilot: Pilot[None]) -> None:
        screen = HistoryScreen(store, 3, "line")
        await pilot.app.push_screen(screen)
        screen.query_one(Input).cursor_blink = False
        await until(pilot, lambda: screen.query_one(ChatList).shown)
        await pilot.press("tab", "home", "down", "space")

    assert snap_compare(Shell(theme), terminal_size=size, run_before=look)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("size", SIZES, ids=at)
def test_details(snap_compare: Any, store: ChatStore, size: tuple[int, int], theme: str) -> None:
    report = {
        "usage": {"prompt_tokens": 1200, "cached_tokens": 1000, "completion_tokens": 301},
        "timings": {"ttft_ms": 500.0, "decode_seconds": 75.0, "decode_tps": 4.0},
        "speculation": {
            "rounds": 100, "drafted": 300, "accepted": 200,
            "by_drafter": {"model": {"drafted": 200, "accepted": 120}, "ngram": {"drafted": 100, "accepted": 80}},
            "drafted_by_position": [100, 90, 70, 40], "accepted_by_position": [90, 60, 40, 10],
        },
    }
    store.finish_reply(2, "An answer.", (), "complete", report)
    store.set_settings(1, ChatSettings(system="Answer in short sentences.", temperature=0.7, seed=3))
    with store._db.writing() as db:  # finishing a reply is news
        db.execute("UPDATE chats SET updated = ?", (THEN,))

    async def look(pilot: Pilot[None]) -> None:
        await pilot.app.push_screen(DetailsScreen(store, 1))
        await pilot.pause()

    assert snap_compare(Shell(theme), terminal_size=size, run_before=look)


async def until(pilot: Pilot[None], true: Callable[[], object]) -> None:
    for _ in range(500):
        await pilot.pause(0.01)
        if true():
            return
    raise AssertionError("it did not come to that")
