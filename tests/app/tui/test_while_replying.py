"""What can be done while a reply is written or a model is loaded: other chats, the list of chats, typing, Esc."""

from __future__ import annotations

from pathlib import Path

from textual import events

from app.chat.events import ModelFailed, ModelLoading, ReplyEnded
from app.settings import ChatSettings
from app.store import ChatStore
from tests.app.tui.conftest import RunApp, Running, fill

LONG = ChatSettings(temperature=0.0, max_tokens=1900, mode="plain")


async def begin(running: Running) -> int:
    """Have a reply begun; its id."""
    await running.ask("go on", wait=False)
    reply = running.path[-1].id
    await running.until(lambda: (view := running.transcript.view(reply)) and view.reply and view.reply.text)
    return reply


async def test_a_reply_goes_on_while_another_chat_is_read(run_app: RunApp, store: ChatStore, target: Path) -> None:
    other = fill(store, 4)
    async with run_app(model=target, settings=LONG) as running:
        reply = await begin(running)
        chat = running.session.chat
        assert chat is not None
        await running.screen.dialogs.open_chat(other)
        await running.until(lambda: "another chat" in running.screen.activity.text)
        assert running.session.replying
        assert running.transcript.view(reply) is None
        await running.screen.dialogs.open_chat(chat.id)
        view = running.transcript.view(reply)
        assert view is not None
        assert view.reply is not None
        assert view.reply.text == running.screen._replies._grown.text  # what came since the store was written, too
        await running.pilot.press("escape")
        await running.until(lambda: not running.session.replying)
        await running.pilot.pause()
        assert view.reply.text == running.store.message(reply).text
        assert running.screen.activity.text == ""


async def test_a_message_taken_back_from_another_chat_stays_in_its_own(run_app: RunApp, store: ChatStore, target: Path) -> None:
    other = fill(store, 4)
    async with run_app(settings=LONG) as running:
        sent = running.session.send("wait for me")
        await running.screen.dialogs.open_chat(other)
        running.screen.prompt.load("something else")
        await running.screen.hear(ReplyEnded(sent.reply.id, "cancelled", "", (), {}))
        assert running.screen.prompt.text == "something else"
        assert [m.text for m in running.store.path(sent.reply.chat_id)] == ["wait for me"]


async def test_typing_over_the_messages_goes_to_the_prompt(run_app: RunApp, store: ChatStore) -> None:
    async with run_app(chat=fill(store, 4)) as running:
        await running.pilot.press("escape")
        assert running.screen.focused is running.transcript
        await running.pilot.press(*"hello_cde")
        assert running.screen.prompt.text == "hello_cde"
        await running.pilot.press("escape")
        for letter in "abcdefghijklmnopqrstuvwxyzDU/@ 1":  # none of them does anything to a message
            running.screen.prompt.load("")
            running.transcript.focus()
            await running.pilot.press(letter)
            assert (running.screen.prompt.text, running.screen.focused) == (letter, running.screen.prompt.input)
        assert len(running.path) == 4
        assert len(running.store.chats()) == 1
        running.screen.prompt.load("hello_cde")
        running.screen.prompt.input.move_cursor((0, 9))
        running.transcript.focus()
        running.app.post_message(events.Paste("two\nlines"))
        await running.until(lambda: running.screen.prompt.text == "hello_cdetwo\nlines")


async def test_escape_leaves_a_load_alone_and_its_key_stops_it(run_app: RunApp, store: ChatStore, target: Path) -> None:
    async with run_app(model=target, chat=fill(store, 4)) as running:
        await running.screen.hear(ModelLoading("loading the model", 0.5))
        assert "F5 stops" in running.screen.activity.text
        assert running.screen.status.model == "loading…"
        running.app.host._state = "loading"
        await running.pilot.press("escape")
        assert running.screen.focused is running.transcript
        assert "F5 stops" in running.screen.activity.text
        await running.pilot.press("f5")
        assert "stopping" in running.screen.activity.text


async def test_a_load_that_fails_leaves_the_name_of_what_is_still_loaded(run_app: RunApp, target: Path) -> None:
    async with run_app(model=target) as running:
        await running.screen.hear(ModelLoading("looking for the model", 0.0))
        await running.screen.hear(ModelFailed("there is no model named x"))
        assert running.screen.status.model == "target"
        assert "no model named x" in running.screen.activity.text


async def test_the_tags_stand_beside_the_title(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 2)
    store.rename(chat, "Plans")
    store.set_tags(chat, ["work", "q4"])
    async with run_app(chat=chat) as running:
        assert str(running.screen.query_one("#title").render()) == "Plans  #q4  #work"


async def test_deleting_the_chat_that_is_written_in_ends_its_reply(run_app: RunApp, target: Path) -> None:
    async with run_app(model=target, settings=LONG) as running:
        await begin(running)
        forgotten: list[int] = []
        running.app.host.forget_chats = forgotten.extend  # type: ignore[method-assign,assignment]
        await running.pilot.press("ctrl+o")
        await running.pilot.pause()
        await running.pilot.press("tab", "d", "escape")
        await running.until(lambda: not running.session.replying)
        assert len(forgotten) == 1
        assert running.path == []
        assert running.session.chat is None


async def test_old_deletions_are_erased_once_nothing_goes_on(run_app: RunApp, store: ChatStore) -> None:
    gone, kept = fill(store, 2), fill(store, 2)
    with store._db.writing() as db:
        db.execute("UPDATE chats SET deleted = 1 WHERE id = ?", (gone,))
    store.delete_chats([kept])
    async with run_app() as running:
        forgotten: list[int] = []
        running.app.host.forget_chats = forgotten.extend  # type: ignore[method-assign,assignment]
        running.app._purge_when_idle()
        await running.until(lambda: gone in forgotten)
        assert kept not in forgotten


async def test_the_settings_of_the_program_hold_at_once(run_app: RunApp, store: ChatStore) -> None:
    from app.settings import Settings
    from app.tui.screens.settings import SettingsResult

    async with run_app(chat=fill(store, 2)) as running:
        changed = Settings(show_pace=False, colour_origins=True, shadow_rate=0.5, kv_state_budget_mb=1, chat=LONG)
        running.app._take_settings(SettingsResult(changed, None))
        assert not running.screen.query_one("PacePanel").display
        assert running.transcript._coloured
        assert running.app.host.shadow_rate == 0.5
        await running.screen.dialogs.action_new_chat()
        assert running.session.settings == LONG

