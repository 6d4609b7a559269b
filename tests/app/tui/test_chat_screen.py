"""The chat screen without a model: copying, markers, commands, other windows, layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from textual.widgets import OptionList

from app.chat.conversation import OriginSpan
from app.chat.events import HostNotice, PromptRead
from app.settings import ChatSettings
from app.store import ChatStore
from app.tui.commands import COMMANDS
from app.tui.screens.help import help_lines
from app.tui.widgets.chat_list import ChatList
from app.tui.widgets.message import speed
from tests.app.tui.conftest import RunApp, Running, fill

CODE = "Two:\n\n```python\nfirst = 1\n```\n\nand\n\n```sh\nsecond\n```\n"


@pytest.fixture(autouse=True)
def _no_clipboard_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "somewhere")
    monkeypatch.delenv("TMUX", raising=False)


async def copied(running: Running) -> str:
    path = running.app.paths.chats / "copied.txt"
    await running.until(path.exists)
    await running.pilot.pause(0.05)
    text = path.read_text()
    path.unlink()
    return text


async def test_copy_a_message_and_its_code_block_by_block(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 2, lambda i: "a question" if i == 0 else f"<think>hm</think>{CODE}")
    async with run_app(chat=chat) as running:
        await running.pilot.press("escape", "enter", "c")
        assert await copied(running) == CODE
        await running.pilot.press("enter", "y")
        assert await copied(running) == "second"
        await running.pilot.press("enter", "y")
        assert await copied(running) == "first = 1"
        await running.pilot.press("up", "enter", "c")
        assert await copied(running) == "a question"
        await running.pilot.press("escape", "f12")
        assert await copied(running) == CODE
        assert running.app.clipboard == CODE


async def test_a_line_says_where_the_model_stopped_reading(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 6)
    async with run_app(chat=chat) as running:
        sent = running.session.send("seventh")
        await running.screen.show_path()
        await running.screen.hear(HostNotice(sent.reply.id, "the 2 oldest messages are left out", dropped=2))
        await running.pilot.pause()
        view = running.transcript.view(running.path[2].id)
        assert view is not None
        assert "no longer reads" in running.shown(view.message.id)
        assert len(running.screen.query(".message-marker")) == 1
        assert "left out" in running.screen.activity.text


async def test_reading_a_long_prompt_shows_how_far_it_is(run_app: RunApp, store: ChatStore) -> None:
    async with run_app(chat=fill(store, 2)) as running:
        sent = running.session.send("more")
        await running.screen.show_path()
        await running.screen.hear(PromptRead(sent.reply.id, 1000, 4000, 0))
        assert "25%" in running.screen.activity.text
        assert "1,000 of 4,000 tokens" in running.screen.activity.text


async def test_commands_rename_export_and_delete(run_app: RunApp, store: ChatStore, tmp_path: Path) -> None:
    chat = fill(store, 4)
    async with run_app(chat=chat) as running:
        async def command(text: str) -> None:
            running.screen.prompt.load(text)
            running.screen.prompt.focus()
            await running.pilot.press("enter")
            await running.pilot.pause()

        await command("/rename My [b]title[/b]")
        assert store.chat(chat).title == "My [b]title[/b]"
        assert "My [b]title[/b]" in str(running.screen.query_one("#title").render())
        await command(f"/export {tmp_path / 'out.md'}")
        assert "message 3" in (tmp_path / "out.md").read_text()
        await command("/export /nowhere/at/all.md")
        assert running.app.is_running
        await command("/system Be terse.")
        assert store.chat(chat).settings.system == "Be terse."
        await command("/delete")
        assert running.session.chat is None
        assert store.chats() == []
        await command("/undo")
        assert running.session.chat is not None
        assert len(running.path) == 4


async def test_branching_makes_a_chat_of_its_own(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 6)
    async with run_app(chat=chat) as running:
        await running.pilot.press("escape", "up", "up", "enter", "b")
        await running.until(lambda: running.session.chat and running.session.chat.id != chat)
        assert [m.text for m in running.path] == [f"message {i}" for i in range(4)]
        assert len(store.path(chat)) == 6


async def test_what_was_not_sent_waits_in_its_chat(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 2)
    async with run_app(chat=chat) as running:
        running.screen.prompt.load("half a thought")
        await running.pilot.press("ctrl+n")
        await running.until(lambda: running.session.chat is None)
        assert running.screen.prompt.text == ""
        await running.screen.dialogs.open_chat(chat)
        assert running.screen.prompt.text == "half a thought"


async def test_on_a_low_terminal_the_numbers_leave_room_for_the_messages(run_app: RunApp, store: ChatStore) -> None:
    async with run_app(chat=fill(store, 6), size=(40, 14)) as running:
        running.screen.activity.clear()
        running.screen.remove_class("-no-pace")
        await running.pilot.pause()
        assert running.screen.query_one("#pace").region.height == 1
        assert running.transcript.region.height >= 7
        await running.pilot.resize_terminal(80, 24)
        await running.pilot.pause()
        assert running.screen.query_one("#pace").region.height == 4


async def test_the_help_has_every_command_of_the_chat(run_app: RunApp, store: ChatStore) -> None:
    async with run_app() as running:
        pressed = [line.press for line in help_lines(running.app, running.screen, {})]
    assert [command.usage for command in COMMANDS if command.usage not in pressed] == []


async def test_the_menu_of_a_message_offers_what_there_is_to_do(run_app: RunApp, store: ChatStore) -> None:
    async with run_app(chat=fill(store, 4)) as running:
        await running.pilot.press("escape", "enter")
        lines = running.app.screen.query_one(OptionList)
        words = [str(lines.get_option_at_index(i).prompt) for i in range(lines.option_count)]
        assert words[0].split() == ["c", "Copy", "the", "message"]
        assert not any("code" in line or "Undo" in line or "Unfold" in line for line in words)
        await running.pilot.press("escape", "delete")
        await running.until(lambda: len(running.path) == 3)
        await running.pilot.press("enter", "u")
        await running.until(lambda: len(running.path) == 4)
        await running.pilot.press("enter", "d")
        await running.until(lambda: len(running.path) == 3)
        await running.pilot.press("ctrl+z")
        await running.until(lambda: len(running.path) == 4)


async def test_what_was_being_written_is_had_back_after_an_edit(run_app: RunApp, store: ChatStore) -> None:
    async with run_app(chat=fill(store, 4)) as running:
        running.screen.prompt.load("half a thought")
        await running.pilot.press("escape", "up", "enter", "e")
        await running.until(lambda: running.screen.prompt.text == "message 2")
        assert "brings back what you were writing" in running.screen.activity.text
        await running.pilot.press("ctrl+up")
        assert running.screen.prompt.text == "half a thought"


async def test_what_another_window_does_in_the_chat_is_shown(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 2)
    async with run_app(chat=chat) as running:
        other = ChatStore.open(running.app.paths.chat_store)
        asked = other.add_message(chat, running.path[-1].id, "user", "asked there")
        reply = other.start_reply(chat, asked.id)
        other.grow_reply(reply.id, "it **grows**", (OriginSpan("model", 12),))
        await running.screen._look_again()
        assert [m.text for m in running.path][2:] == ["asked there", "it **grows**"]
        running.screen.activity.clear()
        await running.screen._look_again()
        assert "another window is writing" in running.screen.activity.text
        await running.screen.send("meanwhile", ())
        assert (running.screen.prompt.text, len(running.path)) == ("meanwhile", 4)
        other.grow_reply(reply.id, "it **grows** on", (OriginSpan("model", 15),))
        await running.screen._look_again()
        view = running.transcript.view(reply.id)
        assert view is not None
        assert view.text == "it **grows** on"
        other.finish_reply(reply.id, "it **grows** on.", (), "complete", None)
        other.rename(chat, "Growth")
        await running.screen._look_again()
        await running.pilot.pause()
        assert "it **grows** on." in running.shown(reply.id)
        assert "another window" not in running.screen.activity.text
        assert str(running.screen.query_one("#title").render()) == "Growth"
        other.delete_chats([chat])
        await running.screen._look_again()
        assert "deleted in another window" in running.screen.activity.text
        other.erase_chats([chat])
        await running.screen.send("too late", ())
        assert running.screen.prompt.text == "too late"
        await running.pilot.press("x")
        await running.pilot.pause(1.0)  # what is not sent is kept, if it can be
        other.close()
        assert running.app.is_running


async def test_a_chat_deleted_in_another_window_is_one_line(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 4)
    async with run_app(chat=chat) as running:
        other = ChatStore.open(running.app.paths.chat_store)
        other.delete_message(running.path[1].id)
        other.close()
        await running.pilot.press("escape", "delete")
        await running.pilot.pause()
        assert running.app.is_running


@pytest.mark.parametrize("size", [(80, 24), (110, 30), (250, 60), (40, 12)])
async def test_everything_has_its_place_at_any_size(run_app: RunApp, store: ChatStore, size: tuple[int, int]) -> None:
    chat = fill(store, 30, lambda i: f"你好世界 👨‍👩‍👧 שלום {i} " + "wide 漢字 words " * 12)
    async with run_app(chat=chat, size=size) as running:
        await running.until(lambda: "F5 loads" in running.screen.activity.text)
        await running.pilot.pause()
        width, height = size
        pace, prompt, transcript = (running.screen.query_one(name).region for name in ("#pace", "#prompt", "#transcript"))
        assert transcript.height >= 2
        assert prompt.right <= width
        assert running.screen.query_one("#status").region.bottom == height
        if width >= 110:
            assert pace.x >= prompt.right
        else:
            assert pace.y >= prompt.bottom
        await running.pilot.press("ctrl+g")
        await running.pilot.pause()
        assert not running.screen.query_one("#pace").display


async def test_settings_of_the_program_are_kept(run_app: RunApp, store: ChatStore) -> None:
    async with run_app(chat=fill(store, 2), settings=ChatSettings()) as running:
        await running.pilot.press("f10")
        await running.pilot.pause()
        assert type(running.app.screen).__name__ == "SettingsScreen"
        running.app.screen.action_save()  # type: ignore[attr-defined]
        await running.pilot.pause()
        assert (running.app.paths.config / "settings.toml").exists()


async def test_the_mouse_copies_code_opens_thinking_and_selects(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 2, lambda i: "a question" if i == 0 else f"<think>hm</think>{CODE}")
    async with run_app(chat=chat, size=(100, 40)) as running:
        await running.pilot.pause()
        await running.pilot.click(".code-head", offset=(len("python  c"), 0))
        assert await copied(running) == "first = 1"
        await running.pilot.click("Thinking _Head")
        assert running.screen.query_one("Thinking PlainText").display
        await running.pilot.click("MessageView.-user")
        await running.until(lambda: running.transcript.cursor == running.path[0].id)


async def test_a_selected_reply_shows_its_own_numbers(run_app: RunApp, store: ChatStore) -> None:
    from app.chat.pace import PaceSnapshot

    chat = fill(store, 4)
    for message, rate in zip(store.path(chat)[1::2], (12.5, 30.0), strict=True):
        pace = {**PaceSnapshot().as_json(), "tokens": 5, "reply_tokens_per_second": rate}
        store.finish_reply(message.id, "text", (), "complete", {"pace": pace})
    async with run_app(chat=chat, size=(120, 40)) as running:
        panel = running.screen._pace
        assert panel.snapshot is not None
        assert (panel.heading, panel.snapshot.reply_tokens_per_second) == ("Pace", 30.0)
        await running.pilot.press("escape", "up", "up")
        await running.until(lambda: panel.heading == "This reply")
        assert panel.snapshot.reply_tokens_per_second == 12.5


async def test_a_chat_that_was_searched_for_opens_at_what_was_found(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 60, lambda i: "the needle" if i == 10 else f"message {i}")
    async with run_app() as running:
        await running.pilot.press("ctrl+o", *"needle", "enter")
        await running.until(lambda: running.session.chat is not None and running.session.chat.id == chat)
        await running.until(lambda: running.transcript.cursor == running.path[10].id)
        view = running.transcript.view(running.path[10].id)
        assert view is not None
        await running.until(lambda: running.transcript.region.contains_region(view.region))


def test_a_reply_of_a_few_tokens_has_no_ratio() -> None:
    assert speed({"pace": {"tokens": 1, "reply_tokens_per_second": 0.0, "ratio_to_plain": 0.0}}) == "1 token"
    assert speed({"pace": {"tokens": 200, "reply_tokens_per_second": 33.21, "ratio_to_plain": 1.4}}) == "200 tokens · 33.2/s · 1.40× plain"


async def test_chats_deleted_in_the_list_come_back_after_it_was_closed(
    run_app: RunApp, store: ChatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.tui.screens.chat.LOOK_SECONDS", 0.01)
    chats = [fill(store, 2) for _ in range(3)]
    async with run_app(chat=chats[-1]) as running:
        await running.pilot.press("ctrl+o", "tab")
        await running.until(lambda: running.app.screen.query_one(ChatList).shown)
        await running.pilot.press("space", "down", "space", "d")
        await running.until(lambda: len(running.store.chats()) == 1)
        await running.pilot.press("escape")
        await running.until(lambda: running.session.chat is None)
        await running.pilot.pause(0.1)
        assert "another window" not in running.screen.activity.text
        running.screen.prompt.load("/undo")
        await running.pilot.press("enter")
        await running.until(lambda: running.session.chat is not None)
        assert {chat.id for chat in running.store.chats()} == set(chats)
        await running.until(lambda: any("2 chats are back" in note.message for note in running.app._notifications))
        await running.pilot.press("ctrl+o", "tab", "u")
        await running.pilot.pause()
        assert len(running.store.chats()) == 3


@pytest.mark.parametrize("key", ["f1", "f10", "ctrl+p", "ctrl+o"])
async def test_the_keys_are_named_again_when_a_dialog_is_closed(run_app: RunApp, key: str) -> None:
    async with run_app() as running:
        hints = running.screen.status.hints
        assert hints
        await running.pilot.press(key)
        await running.until(lambda: running.app.screen is not running.screen)
        running.screen.update_hints()  # as when a reply ends meanwhile
        await running.pilot.press("escape")
        await running.until(lambda: running.app.screen is running.screen)
        await running.pilot.pause()
        assert running.screen.status.hints == hints


async def test_when_the_first_message_is_deleted_the_prompt_has_the_keys(run_app: RunApp, store: ChatStore) -> None:
    async with run_app(chat=fill(store, 2)) as running:
        await running.pilot.press("escape", "ctrl+home", "delete")
        await running.until(lambda: not running.path)
        await running.pilot.pause()
        await running.pilot.press(*"/undo", "enter")
        await running.until(lambda: len(running.path) == 2)
