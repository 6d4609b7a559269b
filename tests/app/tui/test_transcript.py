"""The windowed transcript: a long chat, the place where the user is, the message cursor."""

from __future__ import annotations

import asyncio
import re

import pytest
from textual.widget import Widget

from app.store import ChatStore
from app.tui.widgets.message import MessageView
from app.tui.widgets.reply import Reply
from app.tui.widgets.transcript import FIRST, MOST, Transcript
from tests.app.tui.conftest import RunApp, Running, fill


def top(transcript: Transcript) -> tuple[int, int]:
    """The message at the top of the view, and how many of its lines are above."""
    for view in transcript._views:
        region = transcript._regions[view]
        if region.bottom > transcript.scroll_y:
            return view.message.id, round(transcript.scroll_y) - region.y
    raise AssertionError("nothing is in view")


async def settled(running: Running) -> None:
    """Wait until the window has grown as far as it wants to, and the load that fails has taken its line."""
    await running.until(lambda: "F5 loads" in running.screen.activity.text)
    transcript, before, still = running.transcript, None, 0
    while still < 5:
        await running.pilot.pause(0.02)
        now = (transcript.scroll_y, transcript.max_scroll_y, transcript._views, transcript._window.locked())
        still = still + 1 if now == before else 0
        before = (*now[:2], list(now[2]), now[3])


async def growing(running: Running) -> MessageView:
    """The empty reply to one more message, at the end of the transcript."""
    running.session.send("more")
    await running.screen.show_path()
    await running.transcript.follow()
    await settled(running)
    reply = running.transcript.view(running.path[-1].id)
    assert reply is not None
    return reply


async def test_a_long_chat_opens_with_a_few_messages_at_its_end(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 5000)
    async with run_app(chat=chat) as running:
        await settled(running)
        transcript = running.transcript
        assert len(running.path) == 5000
        assert FIRST <= len(transcript._views) <= MOST
        assert transcript._views[-1].message.text == "message 4999"
        assert transcript.following
        assert transcript.scroll_y == transcript.max_scroll_y


async def test_scrolling_up_mounts_more_without_moving_what_is_read(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 400, lambda i: f"message {i}\n\n" + "words " * (i % 7 * 12))
    async with run_app(chat=chat) as running:
        transcript = running.transcript
        seen: list[int] = []
        await settled(running)
        for _ in range(60):
            before = transcript.scroll_y
            transcript.scroll_to(y=max(0, before - 9), animate=False, immediate=True)
            place = top(transcript)
            await settled(running)
            assert top(transcript) == place
            seen.append(place[0])
            assert len(transcript._views) <= MOST
        assert seen == sorted(seen, reverse=True)
        assert transcript.later > 0
        await running.pilot.press("ctrl+end")
        await settled(running)
        assert transcript.following
        assert transcript.later == 0
        assert transcript.scroll_y == transcript.max_scroll_y


async def test_every_message_passes_by_on_the_way_up_and_down(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 130)
    async with run_app(chat=chat) as running:
        transcript = running.transcript
        ids = [message.id for message in running.path]
        transcript.focus()
        seen = set()
        for _ in range(200):
            transcript.scroll_page_up(animate=False)
            await settled(running)
            seen |= {view.message.id for view in transcript._views}
            if transcript.earlier == 0 and transcript.scroll_y == 0:
                break
        assert seen == set(ids)
        for _ in range(200):
            transcript.scroll_page_down(animate=False)
            await settled(running)
            if transcript.following:
                break
        assert transcript._views[-1].message.id == ids[-1]


@pytest.mark.parametrize("count", [3, 90])
async def test_who_asks_while_the_window_changes_finds_it_whole(run_app: RunApp, store: ChatStore, count: int) -> None:
    chat = fill(store, count)
    async with run_app(chat=chat) as running:
        await settled(running)
        path, transcript = running.path, running.transcript
        for asked in (
            [transcript.show(path, {}, fresh=True), transcript.show(path, {})],
            [transcript.show(path, {}, fresh=True), transcript.show(path[:-1], {}), transcript.show(path, {})],
            [transcript.go_to(path[0].id), transcript.show(path, {}, fresh=True), transcript.follow()],
            [transcript.follow(), transcript.go_to(path[0].id), transcript.go_to(path[-1].id), transcript.show(path, {}, fresh=True)],
        ):
            await asyncio.gather(*asked)
            await settled(running)
            shown = [view.message.id for view in transcript.query(MessageView)]
            assert shown == [view.message.id for view in transcript._views]
            assert shown == [message.id for message in path[transcript.earlier :]]


async def test_text_that_comes_does_not_move_a_reader_and_is_followed_at_the_end(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 30)
    async with run_app(chat=chat) as running:
        transcript, reply = running.transcript, await growing(running)

        async def drawn() -> None:
            await running.until(lambda: reply.query_one(Reply)._timer is None, "the text is not drawn")
            await settled(running)

        for _ in range(5):
            reply.grow("A line of the reply.\n\n", ())
            await drawn()
            assert transcript.scroll_y == transcript.max_scroll_y
        transcript.scroll_up(animate=False, immediate=True)
        transcript.scroll_up(animate=False, immediate=True)
        await settled(running)
        place = top(transcript)
        assert not transcript.following
        end = transcript.max_scroll_y
        for _ in range(5):
            reply.grow("Another line of the reply.\n\n", ())
            await drawn()
        assert transcript.max_scroll_y > end
        assert top(transcript) == place
        transcript.scroll_end(animate=False)
        await settled(running)
        assert transcript.following
        reply.grow("The last line.\n\n", ())
        await drawn()
        assert transcript.scroll_y == transcript.max_scroll_y


async def test_a_picked_message_is_not_carried_off_by_text_that_comes(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 6)
    async with run_app(chat=chat) as running:
        transcript, reply = running.transcript, await growing(running)
        assert transcript.following
        picked = running.path[-4]
        await transcript.go_to(picked.id)
        await settled(running)
        assert not transcript.following
        for _ in range(4):
            reply.grow("A line of the reply.\n\n" * 10, ())
            await running.until(lambda: reply.query_one(Reply)._timer is None, "the text is not drawn")
            await settled(running)
        view = transcript.view(picked.id)
        assert view is not None
        assert transcript.region.contains_region(view.region)
        transcript.scroll_end(animate=False)
        await settled(running)
        assert transcript.following


async def test_who_lets_go_of_a_message_at_the_end_follows_again(run_app: RunApp, store: ChatStore) -> None:
    async with run_app(chat=fill(store, 2)) as running:
        await settled(running)
        transcript = running.transcript
        await transcript.go_to(running.path[0].id)
        await settled(running)
        assert not transcript.following
        transcript.cursor = None
        assert transcript.following


def first_number(running: Running) -> int:
    """The number at the beginning of the row at the top."""
    region = running.transcript.content_region
    for strip in running.app.screen._compositor.render_strips(running.app.size)[region.y :]:
        if found := re.search(r"\bw(\d+)", strip.text):
            return int(found[1])
    raise AssertionError("no number is in view")


def numbered(count: int) -> str:
    """Prose, a list and code, with a number in every few cells of it."""
    prose = "\n\n".join(" ".join(f"w{i}" for i in range(at, min(at + 150, count))) for at in range(0, count, 150))
    code = "\n".join(f"x = w{i}" for i in range(count, 2 * count))
    return f"{prose}\n\n```\n{code}\n```\n\n" + " ".join(f"w{i}" for i in range(2 * count, 3 * count))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.6, 0.95])
async def test_a_resize_keeps_the_place_within_one_huge_message(run_app: RunApp, store: ChatStore, share: float) -> None:
    chat = fill(store, 2, lambda i: numbered(1500) if i else "question")
    async with run_app(chat=chat, size=(160, 45)) as running:
        await settled(running)
        running.transcript.scroll_to(y=round(running.transcript.max_scroll_y * share), animate=False, immediate=True)
        await settled(running)
        before = first_number(running)
        for size in ((80, 24), (40, 12), (80, 24), (160, 45)):
            await running.pilot.resize_terminal(*size)
            await settled(running)
            assert abs(first_number(running) - before) <= 25  # what a row of 160 columns holds
        assert first_number(running) == before


async def test_the_place_within_a_reply_stays_while_it_grows(run_app: RunApp, store: ChatStore) -> None:
    async with run_app(chat=fill(store, 2)) as running:
        transcript, reply = running.transcript, await growing(running)

        async def grow(start: int, end: int) -> None:
            reply.grow("".join(f"w{i} " for i in range(start, end)), ())
            await running.until(lambda: reply.query_one(Reply)._timer is None, "the text is not drawn")
            await settled(running)

        await grow(0, 600)
        transcript.scroll_to(y=transcript.max_scroll_y - 12, animate=False, immediate=True)
        await settled(running)
        before = first_number(running)
        await grow(600, 1200)
        assert first_number(running) == before
        await running.pilot.resize_terminal(60, 20)
        await settled(running)
        narrow = first_number(running)
        assert abs(narrow - before) <= 16
        await grow(1200, 1800)
        assert first_number(running) == narrow
        await running.pilot.resize_terminal(80, 24)
        await settled(running)
        assert first_number(running) == before


async def test_a_resize_keeps_the_message_at_the_top(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 60, lambda i: f"message {i} " + "long words here " * 30)
    async with run_app(chat=chat, size=(100, 30)) as running:
        running.transcript.scroll_to(y=running.transcript.max_scroll_y - 40, animate=False, immediate=True)
        await settled(running)
        before = top(running.transcript)[0]
        for size in ((60, 20), (140, 40), (100, 30)):
            await running.pilot.resize_terminal(*size)
            await settled(running)
            assert top(running.transcript)[0] == before


async def test_the_cursor_walks_over_messages_and_leaves_by_escape(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 200)
    async with run_app(chat=chat) as running:
        ids = [message.id for message in running.path]
        await running.pilot.press("escape")
        await settled(running)
        assert running.transcript.cursor == ids[-1]
        for _ in range(60):
            await running.pilot.press("up")
        await settled(running)
        assert running.transcript.cursor == ids[-61]
        selected = running.transcript.view(ids[-61])
        assert selected is not None
        assert selected.has_class("-cursor")
        region = running.transcript._regions[selected]
        assert running.transcript.scroll_y <= region.y < running.transcript.scroll_y + running.transcript.size.height
        await running.pilot.press("escape")
        assert running.transcript.cursor is None
        assert running.app.focused is running.screen.prompt.input


async def test_delete_and_undo(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 6)
    async with run_app(chat=chat) as running:
        await running.pilot.press("escape", "up", "delete")
        await running.until(lambda: len(running.path) == 4)
        assert len(running.transcript._views) == 4
        assert len(store.path(chat)) == 4
        await running.pilot.press("ctrl+z")
        await running.until(lambda: len(running.path) == 6)
        assert [view.message.text for view in running.transcript._views] == [f"message {i}" for i in range(6)]


async def test_search_goes_from_hit_to_hit_in_a_long_chat(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 900, lambda i: f"message {i}" + (" needle" if i in (20, 400, 890) else ""))
    async with run_app(chat=chat) as running:
        ids = [message.id for message in running.path]
        await running.pilot.press("ctrl+f", *"needle")
        for at in (890, 20, 400, 890):
            await running.until(lambda at=at: running.transcript.cursor == ids[at])  # type: ignore[misc]
            await settled(running)
            view = running.transcript.view(ids[at])
            assert view is not None
            region = running.transcript._regions[view]
            assert running.transcript.scroll_y <= region.y < running.transcript.scroll_y + running.transcript.size.height
            await running.pilot.press("enter")
        await running.pilot.press("escape")
        assert not running.screen._find.is_open


async def test_a_long_text_of_the_user_is_folded_and_unfolded(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 1, lambda _: "line of a big file\n" * 50_000)
    async with run_app(chat=chat) as running:
        view = running.transcript._views[0]
        assert len(view.query("ProseView")) < 20
        await running.pilot.press("escape", "enter", "enter")
        await settled(running)
        assert len(view.query("ProseView")) > 300
        await running.pilot.press("enter", "f")
        await settled(running)
        assert len(view.query("ProseView")) < 20


async def test_messages_that_are_let_go_keep_no_drawing(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 60)
    async with run_app(chat=chat) as running:
        await settled(running)
        gone = [widget for view in running.transcript._views for widget in view.walk_children(Widget, with_self=True)]
        assert any(widget._styles_cache._cache for widget in gone)
        await running.transcript.go_to(running.path[0].id)
        gone = [widget for widget in gone if not widget.is_attached]
        assert gone
        assert not any(widget._styles_cache._cache for widget in gone)


async def test_a_wider_terminal_shows_what_is_below_the_window_too(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 100, lambda i: "words " * 300)
    async with run_app(chat=chat, size=(40, 24)) as running:
        transcript = running.transcript
        await settled(running)
        await transcript.go_to(running.path[50].id)
        await settled(running)
        transcript.scroll_to(y=transcript.max_scroll_y - transcript.size.height, animate=False, immediate=True)
        await settled(running)
        await running.pilot.resize_terminal(200, 60)
        await settled(running)
        assert not transcript.later or transcript.scroll_y <= transcript.max_scroll_y - transcript.size.height
