"""The list of chats on a real store, by keys and mouse."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input, Static

from app.settings import ChatSettings
from app.store import ChatStore
from app.tui.screens.ask_line import AskLine
from app.tui.screens.details import DetailsScreen
from app.tui.screens.history import NEW, PAGE, HistoryScreen
from app.tui.themes import apply_theme
from app.tui.widgets.chat_list import ChatList
from app.tui.widgets.chat_row import when

ISSUED = object()


class Shell(App[None]):
    """Nothing but the screen under test, and what it dismissed with."""

    result: object = ISSUED

    def on_mount(self) -> None:
        apply_theme(self, "dark", {})


class Running:
    def __init__(self, app: Shell, pilot: Pilot[None], store: ChatStore) -> None:
        self.app, self.pilot, self.store = app, pilot, store

    @property
    def list(self) -> ChatList:
        return self.app.screen.query_one(ChatList)

    @property
    def rows(self) -> list[str]:
        return [str(option.prompt) for option in self.list.options]

    @property
    def titles(self) -> list[str]:
        return [self.store.chat(chat_id).title for chat_id in self.list.shown]

    @property
    def said(self) -> list[str]:
        return [notification.message for notification in self.app._notifications]

    async def until(self, true: Callable[[], object]) -> None:
        for _ in range(500):
            await self.pilot.pause(0.01)
            if true():
                return
        raise AssertionError("it did not come to that")

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)
        await self.pilot.pause()

    async def answer(self, line: str) -> None:
        """Type the line that is asked for."""
        await self.until(lambda: isinstance(self.app.screen, AskLine))
        self.app.screen.query_one(Input).value = line
        await self.press("enter")
        await self.until(lambda: isinstance(self.app.screen, HistoryScreen))


@pytest.fixture
def store() -> ChatStore:
    made = ChatStore.in_memory()
    for number in range(1, 4):
        chat = made.new_chat(ChatSettings(), f"Chat {number} [b]")
        question = made.add_message(chat.id, None, "user", f"question {number} about {'cats' if number == 2 else 'dogs'} \x1b[31m[/b]")
        made.add_message(chat.id, question.id, "assistant", f"answer {number}")
    return made


@asynccontextmanager
async def history(store: ChatStore, *, current: int | None = None, query: str = "", size: tuple[int, int] = (80, 24)) -> AsyncIterator[Running]:
    app = Shell()
    async with app.run_test(size=size) as pilot:
        running = Running(app, pilot, store)

        def keep(result: int | None) -> None:
            app.result = result

        await app.push_screen(HistoryScreen(store, current, query), keep)
        await running.until(lambda: running.list.shown or app.screen.has_class("-none"))
        yield running


async def test_the_open_chat_is_highlighted_and_enter_opens(store: ChatStore) -> None:
    async with history(store, current=2) as running:
        assert running.titles == ["Chat 3 [b]", "Chat 2 [b]", "Chat 1 [b]"]
        assert running.rows[1].startswith("› Chat 2 [b]")
        await running.press("down", "enter")
        assert running.app.result == 1


async def test_enter_that_is_quicker_than_the_search_opens_what_it_finds(store: ChatStore) -> None:
    async with history(store, current=3) as running:
        running.app.screen.query_one(Input).value = "cats"
        await running.pilot.press("enter")
        await running.until(lambda: running.app.result is not ISSUED)
        assert running.app.result == 2


async def test_escape_goes_back(store: ChatStore) -> None:
    async with history(store, current=2) as running:
        await running.press("escape")
        assert running.app.result is None


async def test_typing_searches_all_chats_and_marks_the_words(store: ChatStore) -> None:
    async with history(store) as running:
        await running.press(*"cats")
        await running.until(lambda: running.list.shown == [2])
        (row,) = running.list.options
        assert "1 found · question 2 about cats [/b]" in str(row.prompt)
        assert "\x1b" not in str(row.prompt)
        hits = [span for span in row.prompt.spans if "underline" in str(span.style)]  # type: ignore[union-attr]
        assert [str(row.prompt)[span.start : span.end] for span in hits] == ["cats"]
        await running.press(*"xyz")
        await running.until(lambda: running.app.screen.has_class("-none"))
        await running.press("ctrl+u", "enter")
        await running.until(lambda: len(running.list.shown) == 3)


async def test_opening_a_hit_shows_the_branch_it_is_on(store: ChatStore) -> None:
    question = store.path(2)[0]
    store.add_message(2, question.id, "assistant", "another answer")
    async with history(store, query="answer 2") as running:
        await running.until(lambda: running.list.shown == [2])
        await running.press("enter")
        assert running.app.result == 2
    assert [message.text for message in store.path(2)][1] == "answer 2"


async def test_a_tag_filters(store: ChatStore) -> None:
    store.set_tags(3, ["work"])
    async with history(store, query="#work") as running:
        await running.until(lambda: running.list.shown == [3])
        assert "#work" in running.rows[0]


async def test_rename_pin_and_tag(store: ChatStore) -> None:
    async with history(store) as running:
        await running.press("tab", "end", "r")
        await running.answer("First")
        await running.until(lambda: "First" in running.titles)
        assert store.chat(1).title == "First"
        await running.press("p")
        await running.until(lambda: running.list.shown[0] == 1)
        assert "★ First" in running.rows[0]
        await running.press("t")
        await running.answer("#work, home ,")
        assert store.chat(1).tags == ("home", "work")
        await running.press("p")
        await running.until(lambda: running.list.shown[-1] == 1)


async def test_several_chats_get_tags_besides_their_own(store: ChatStore) -> None:
    store.set_tags(3, ["work"])
    async with history(store) as running:
        await running.press("tab", "space", "space", "t")
        await running.answer("home")
        assert [store.chat(i).tags for i in (1, 2, 3)] == [(), ("home",), ("home", "work")]


async def test_what_is_typed_highlights_the_first_chat_found(store: ChatStore) -> None:
    async with history(store, current=1) as running:
        await running.press(*"about")
        await running.until(lambda: "found" in running.rows[0])
        await running.press("enter")
        assert running.app.result == 3


async def test_going_back_from_a_question_changes_nothing(store: ChatStore) -> None:
    async with history(store) as running:
        await running.press("tab", "r")
        await running.until(lambda: isinstance(running.app.screen, AskLine))
        await running.press("escape")
        assert isinstance(running.app.screen, HistoryScreen)
        assert store.chat(3).title == "Chat 3 [b]"


async def test_deleting_many_with_marks_and_undo(store: ChatStore) -> None:
    async with history(store) as running:
        await running.press("tab", "space", "space")
        assert running.rows[0].startswith("✓")
        assert str(running.app.screen.query_one("#history-state", Static).render()) == "2 marked"
        await running.press("d")
        await running.until(lambda: running.list.shown == [1])
        assert running.said[-1] == "2 chats deleted; u brings them back"
        await running.press("d")
        await running.until(lambda: running.list.shown == [])
        await running.press("u")
        await running.until(lambda: running.list.shown == [1])
        await running.press("u")
        await running.until(lambda: running.list.shown == [3, 2, 1])
        assert running.list.marks == set()
        await running.press("u")
        assert running.said[-1] == "nothing was deleted"


async def test_marks_stay_while_the_search_changes(store: ChatStore) -> None:
    async with history(store) as running:
        await running.press("tab", "space", "slash", *"cats")
        await running.until(lambda: running.list.shown == [2])
        await running.press("tab", "space", "p")
        await running.until(lambda: not running.list.marks)
        assert [store.chat(i).pinned for i in (1, 2, 3)] == [False, True, True]
        await running.press("slash", "ctrl+u")
        await running.until(lambda: len(running.list.shown) == 3)
        await running.press("tab", "home", "space", "slash", *"cats")
        await running.until(lambda: running.list.shown == [2])
        await running.press("tab", "space", "d")
        await running.until(lambda: [chat.id for chat in store.chats()] == [1])


async def test_export_and_import(store: ChatStore, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    async with history(store) as running:
        await running.press("tab", "space", "space", "e")
        await running.answer(str(target))
        await running.until(lambda: running.said)
        assert running.said == [f"written to {target}"]
        assert [chat["title"] for chat in json.loads(target.read_text(encoding="utf-8"))["chats"]] == ["Chat 2 [b]", "Chat 3 [b]"]
        await running.press("i")
        await running.answer(str(target))
        await running.until(lambda: len(running.list.shown) == 5)
        assert running.said[-1] == "2 chats with 4 messages"
        await running.press("i")
        await running.answer(str(tmp_path / "none.json"))
        await running.until(lambda: len(running.said) == 3)
        assert "cannot be read" in running.said[-1]


async def test_a_new_chat_is_asked_for(store: ChatStore) -> None:
    async with history(store) as running:
        await running.press("tab", "n")
        assert running.app.result == NEW


async def test_the_mouse_opens_and_at_the_left_marks(store: ChatStore) -> None:
    async with history(store) as running:
        await running.pilot.click(ChatList, offset=(0, 2))
        await running.pilot.pause()
        assert running.list.marks == {2}
        await running.pilot.click(ChatList, offset=(10, 0))
        await running.pilot.pause()
        assert running.app.result == 3


async def test_more_chats_come_at_the_end_of_the_list(store: ChatStore) -> None:
    for number in range(2 * PAGE):
        store.add_message(store.new_chat(ChatSettings(), f"more {number}").id, None, "user", "x")
    async with history(store) as running:
        assert len(running.list.shown) == PAGE
        assert str(running.app.screen.query_one("#history-state", Static).render()) == f"{PAGE}+ chats"
        await running.press("tab", "end")
        await running.until(lambda: len(running.list.shown) == 2 * PAGE)
        assert running.list.here is not None
        assert running.list.here.chat.id == running.list.shown[PAGE - 1]


async def test_no_chats_yet() -> None:
    async with history(ChatStore.in_memory()) as running:
        assert str(running.app.screen.query_one("#history-none", Static).render()) == "No chats yet."
        await running.press("enter", "tab", "r", "p", "t", "d", "e", "space")
        assert isinstance(running.app.screen, HistoryScreen)


async def test_a_chat_that_another_window_erased_is_told(store: ChatStore) -> None:
    async with history(store) as running:
        store.erase_chats([3])
        await running.press("enter")
        assert "may have been deleted in another window" in running.said[-1]
        await running.press("tab", "p")
        assert isinstance(running.app.screen, HistoryScreen)


async def test_details_show_totals_and_settings(store: ChatStore) -> None:
    store.set_settings(1, ChatSettings(system="Be [brief].\nAlways.", temperature=0.5, stop=("END",)))
    store.set_tags(1, ["work"])
    report = {
        "usage": {"prompt_tokens": 1200, "cached_tokens": 1000, "completion_tokens": 301},
        "timings": {"ttft_ms": 500.0, "decode_seconds": 75.0, "decode_tps": 4.0},
        "speculation": {
            "rounds": 100, "drafted": 300, "accepted": 200, "by_drafter": {"model": {"rounds": 80, "drafted": 300, "accepted": 200}},
            "drafted_by_position": [100, 100, 100], "accepted_by_position": [90, 70, 40],
        },
    }
    reply = store.start_reply(1, store.path(1)[0].id)
    store.finish_reply(reply.id, "text", (), "complete", report)
    async with history(store) as running:
        await running.press("tab", "home", "f8")
        await running.until(lambda: isinstance(running.app.screen, DetailsScreen))
        text = str(running.app.screen.query_one("#details-text", Static).render())
        for line in (
            "  messages        3 on 2 branches", "  tags            #work", "  written         301 tokens in 1 min 15 s, 4.0 a second",
            "  read            200 tokens in 0.5 s; 1,000 more were known from before",
            "  all drafts      200 of 300 tokens kept (67%)", "  draft model     200 of 300 tokens kept (67%)",
            "   2              ██████████████░░░░░░  70%", "  temperature     0.5", "  stop            'END'", "  system prompt   Be [brief].",
        ):
            assert line in text, line
        await running.press("escape")
        assert isinstance(running.app.screen, HistoryScreen)


async def test_a_narrow_and_a_wide_terminal(store: ChatStore) -> None:
    for size in ((40, 12), (200, 50)):
        async with history(store, size=size) as running:
            assert running.list.size.width == size[0]
            assert running.list.virtual_size.height == 6  # two lines each, however narrow


def test_moments_are_short() -> None:
    noon = 1_700_000_000.0
    assert [when(noon - ago, noon) for ago in (-5, 5, 120)] == ["just now", "just now", "2 min ago"]
    assert when(noon - 400 * 86400, noon) == "2022-10-10"
