"""The prompt driven by keys, in an app that only listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from textual import events
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets import Static

from app.chat.conversation import Attachment
from app.tui.keys import bind
from app.tui.widgets.completion import Completion
from app.tui.widgets.prompt import Prompt
from app.tui.widgets.prompt_chips import Chips
from app.tui.widgets.prompt_input import FOLD_LINES


class Listening(App[None]):
    CSS = "#chat { height: 1fr; }"
    BINDINGS = [bind("cancel", "cancel")]  # noqa: RUF012

    def __init__(self, cwd: Path) -> None:
        super().__init__()
        self.cwd = cwd
        self.sent: list[tuple[str, tuple[Attachment, ...]]] = []
        self.commands: list[str] = []
        self.unsent: list[str] = []
        self.told: list[str] = []
        self.counts = True
        self.cancelled = 0

    def compose(self) -> ComposeResult:
        yield Static("chat", id="chat")
        yield Prompt(lambda most: ["newest", "two\nlines", "oldest"], self.cwd)

    def on_mount(self) -> None:
        self.prompt.focus()

    @property
    def prompt(self) -> Prompt:
        return self.query_one(Prompt)

    def notify(self, message: str, **more: object) -> None:  # type: ignore[override]
        self.told.append(message)

    def action_cancel(self) -> None:
        self.cancelled += 1

    def on_prompt_submitted(self, event: Prompt.Submitted) -> None:
        self.sent.append((event.text, event.attachments))

    def on_prompt_command_given(self, event: Prompt.CommandGiven) -> None:
        self.commands.append(f"{event.given.command.name}:{event.given.argument}")

    def on_prompt_changed(self, event: Prompt.Changed) -> None:
        self.unsent.append(event.unsent)

    def on_prompt_count_tokens(self, event: Prompt.CountTokens) -> None:
        if self.counts:
            self.prompt.tokens_counted(event.tag, len(event.text))


class Driven:
    """The app with its pilot."""

    def __init__(self, app: Listening, pilot: Pilot[None]) -> None:
        self.app = app
        self.prompt = app.prompt
        self.pilot = pilot
        self.press = pilot.press

    async def paste(self, text: str) -> None:
        self.app.post_message(events.Paste(text))
        await self.pilot.pause()
        await self.pilot.pause()

    async def until(self, true: Callable[[], object]) -> None:
        end = monotonic() + 30
        while not true():
            assert monotonic() < end
            await asyncio.sleep(0.01)
        await self.pilot.pause()

    @property
    def offered(self) -> list[str]:
        completion = self.app.query_one(Completion)
        return [str(completion.get_option_at_index(i).prompt).split("  ")[0].strip() for i in range(completion.option_count)] if completion.display else []

    @property
    def chips(self) -> str:
        chips = self.app.query_one(Chips)
        return str(chips.render()) if chips.display else ""


@pytest.fixture
def app(tmp_path: Path) -> Listening:
    (tmp_path / "notes.txt").write_text("12345")
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\0")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("x")
    return Listening(tmp_path)


async def test_enter_sends_and_empties(app: Listening) -> None:
    async with app.run_test() as pilot:
        await pilot.press(*"hi", "enter")
        await pilot.pause()
        assert app.sent == [("hi", ())]
        assert app.prompt.text == ""
        await pilot.press("enter", "space", "enter")
        assert len(app.sent) == 1


@pytest.mark.parametrize("key", ["ctrl+j", "alt+enter", "shift+enter"])
async def test_every_newline_key_makes_a_line(app: Listening, key: str) -> None:
    async with app.run_test() as pilot:
        await pilot.press("a", key, "b", "enter")
        await pilot.pause()
        assert app.sent == [("a\nb", ())]


async def test_a_backslash_before_enter_makes_a_line(app: Listening) -> None:
    async with app.run_test() as pilot:
        await pilot.press("a", "backslash", "enter", "b", "enter")
        await pilot.pause()
        assert app.sent == [("a\nb", ())]


async def test_it_grows_with_its_text_up_to_ten_lines(app: Listening) -> None:
    async with app.run_test(size=(60, 30)) as pilot:
        heights = []
        for _ in range(13):
            heights.append(app.prompt.input.content_size.height)
            await pilot.press("ctrl+j")
            await pilot.pause()
        assert heights == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 10, 10]


async def test_a_long_line_wraps_and_grows_too(app: Listening) -> None:
    async with app.run_test(size=(40, 20)) as pilot:
        app.prompt.load("word " * 20)
        await pilot.pause()
        assert app.prompt.input.content_size.height == 3


async def test_thirty_pasted_lines_are_one_text_to_edit(app: Listening) -> None:
    text = "".join(f"line {i}\tx\r\n" for i in range(30))
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        await driven.paste(text)
        assert app.prompt.text == text.replace("\r\n", "\n")
        await pilot.press("enter")
        await pilot.pause()
        assert app.sent == [(text.replace("\r\n", "\n"), ())]


async def test_a_megabyte_is_shown_folded_and_sent_whole(app: Listening) -> None:
    text = ("0123456789abcde\n" * 65536)[:-1]
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        await pilot.press(*"see")
        await driven.paste(text)
        await pilot.press("o", "k")
        await pilot.pause()
        assert app.prompt.text == "see [Pasted text 1, 65,536 lines] ok"
        await driven.until(lambda: "65,536 lines" in driven.chips)
        await pilot.press("enter")
        await pilot.pause()
        assert app.sent == [("see [Pasted text 1, 65,536 lines] ok", (Attachment("Pasted text 1, 65,536 lines", text, len(text)),))]


async def test_a_folded_paste_is_deleted_by_one_key_and_comes_back_by_undo(app: Listening) -> None:
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        await driven.paste("x\n" * (FOLD_LINES + 2))
        await driven.until(lambda: driven.chips)
        await pilot.press("backspace", "backspace")
        await driven.until(lambda: not driven.chips)
        assert app.prompt.text == ""
        await pilot.press("ctrl+z")
        await driven.until(lambda: driven.chips)


async def test_a_file_that_is_not_there_is_said_and_the_message_goes_all_the_same(app: Listening) -> None:
    async with app.run_test(size=(80, 20)) as pilot:
        driven = Driven(app, pilot)
        await driven.paste("look at @nothing.txt, @somebody ")
        await driven.until(lambda: "no file nothing.txt" in driven.chips)
        assert "somebody" not in driven.chips
        await pilot.press("enter")
        await driven.until(lambda: app.sent)
        assert app.sent[0][1] == ()
        await driven.until(lambda: not driven.chips)


async def test_controls_in_a_paste_are_stripped(app: Listening) -> None:
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        await driven.paste("a\x1b[31mb\x07c\x9b2Jd")
        assert app.prompt.text == "abcd"


async def test_wide_characters_keep_the_cursor_in_its_place(app: Listening) -> None:
    async with app.run_test(size=(40, 12)) as pilot:
        driven = Driven(app, pilot)
        await driven.paste("你好 👩‍👩‍👧 e\u0301x")
        editor = app.prompt.input
        end = editor.cursor_screen_offset.x - editor.content_region.x
        await pilot.press("home")
        assert editor.cursor_screen_offset.x == editor.content_region.x
        await pilot.press("right", "right")
        assert editor.cursor_screen_offset.x - editor.content_region.x == 4
        assert end <= 12
        await pilot.press("end", "!")
        assert app.prompt.text == "你好 👩‍👩‍👧 e\u0301x!"
        region = app.screen.find_widget(editor).region
        strips = [strip.cell_length for strip in editor.render_lines(region.reset_offset)]
        assert set(strips) == {region.width}


async def test_up_and_down_walk_through_earlier_prompts(app: Listening) -> None:
    async with app.run_test() as pilot:
        await pilot.press(*"draft", "up")
        await pilot.pause()
        assert app.prompt.text == "newest"
        await pilot.press("up")
        await pilot.pause()
        assert app.prompt.text == "two\nlines"
        await pilot.press("up")  # from the second line to the first, not to the history
        await pilot.pause()
        assert app.prompt.text == "two\nlines"
        await pilot.press("up")
        await pilot.pause()
        assert app.prompt.text == "oldest"
        await pilot.press("down", "down")
        await pilot.pause()
        await pilot.press("down")
        await pilot.pause()
        assert app.prompt.text == "draft"


async def test_commands_are_completed_while_typing(app: Listening) -> None:
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        await pilot.press(*"/re")
        await pilot.pause()
        assert driven.offered == ["/rename [title]", "/reload", "/regenerate", "/preset [name]"]
        await pilot.press("down", "down", "tab")
        await pilot.pause()
        assert app.prompt.text == "/regenerate"
        assert driven.offered == []
        await pilot.press("enter")
        await pilot.pause()
        assert app.commands == ["regenerate:"]


async def test_enter_takes_a_command_and_runs_it_unless_more_is_to_be_typed(app: Listening) -> None:
    async with app.run_test() as pilot:
        await pilot.press(*"/rel", "enter")
        await pilot.pause()
        assert app.commands == ["reload:"]
        await pilot.press(*"/imp", "enter", *"a.json", "enter")
        await pilot.pause()
        await pilot.press(*"/ren", "tab", *"Plan", "enter")
        await pilot.pause()
        assert app.commands == ["reload:", "import:a.json", "rename:Plan"]


async def test_esc_closes_the_list_first_and_only_then_cancels(app: Listening) -> None:
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        await pilot.press("/", "escape")
        await pilot.pause()
        assert (driven.offered, app.cancelled) == ([], 0)
        await pilot.press("n")
        await pilot.pause()
        assert driven.offered == []
        await pilot.press("escape")
        await pilot.pause()
        assert app.cancelled == 1


async def test_an_unknown_command_is_told_and_stays(app: Listening) -> None:
    async with app.run_test() as pilot:
        await pilot.press(*"/xyz", "enter")
        await pilot.pause()
        assert app.prompt.text == "/xyz"
        assert "no command /xyz" in app.told[0]
        app.prompt.load("//xyz")
        await pilot.press("enter")
        await pilot.pause()
        assert app.sent == [("/xyz", ())]


async def test_paths_are_completed_and_attached_with_their_tokens(app: Listening) -> None:
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        await pilot.press(*"see @s")
        await driven.until(lambda: driven.offered)
        assert driven.offered[0] == "src/"
        await pilot.press("tab")
        await driven.until(lambda: driven.offered == ["src/main.py"])
        await pilot.press("enter")
        await driven.until(lambda: "src/main.py  1 tokens" in driven.chips)
        await pilot.press(*"ok", "enter")
        await driven.until(lambda: app.sent)
        assert app.sent == [("see @src/main.py ok", (Attachment("src/main.py", "x", 1),))]


async def test_a_click_takes_a_completion(app: Listening) -> None:
    async with app.run_test() as pilot:
        await pilot.press(*"/re")
        await pilot.pause()
        await pilot.click(Completion, offset=(4, 2))
        await pilot.pause()
        assert app.prompt.text == "/reload"
        assert app.prompt.input.has_focus


async def test_what_is_no_text_is_refused_and_nothing_is_sent(app: Listening) -> None:
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        app.prompt.load("what is @photo.png?")
        await driven.until(lambda: "photo.png is binary, not text" in driven.chips)
        await pilot.press("enter")
        await driven.until(lambda: app.told)
        assert "photo.png is binary, not text" in app.told[0]
        assert (app.sent, app.prompt.text) == ([], "what is @photo.png?")
        await pilot.press("f6")
        await pilot.press("enter")
        await driven.until(lambda: app.sent)
        assert app.sent == [("what is @photo.png?", ())]


async def test_what_does_not_fit_is_refused_with_numbers(app: Listening) -> None:
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        app.prompt.context = 4
        app.prompt.load("@notes.txt")
        await pilot.press("enter")
        await driven.until(lambda: app.told)
        assert app.told == ["notes.txt has 5 tokens; the model reads 4 at once"]
        assert app.sent == []
        app.prompt.context = 5
        await pilot.press("enter")
        await driven.until(lambda: app.sent)


async def test_a_count_that_does_not_come_holds_nothing_up(app: Listening) -> None:
    app.counts = False
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        app.prompt.context = 100
        app.prompt.load("@notes.txt")
        await pilot.press("enter")
        await driven.until(lambda: app.sent)
        assert app.sent == [("@notes.txt", (Attachment("notes.txt", "12345"),))]


async def test_a_file_that_changed_is_sent_as_it_is_now(app: Listening) -> None:
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        app.prompt.load("@notes.txt")
        await driven.until(lambda: "notes.txt" in driven.chips)
        (app.cwd / "notes.txt").write_text("changed")
        await pilot.press("enter")
        await driven.until(lambda: app.sent)
        assert app.sent[0][1][0].text == "changed"


async def test_while_a_reply_is_written_messages_stay_and_commands_run(app: Listening) -> None:
    async with app.run_test() as pilot:
        app.prompt.busy = True
        await pilot.press(*"hi", "enter")
        await pilot.pause()
        assert (app.sent, app.prompt.text) == ([], "hi")
        app.prompt.load("/new")
        await pilot.press("enter")
        await pilot.pause()
        assert app.commands == ["new:"]


async def test_attach_as_a_command(app: Listening) -> None:
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        app.prompt.load("/attach notes.txt")
        await pilot.press("enter")
        await driven.until(lambda: "notes.txt" in driven.chips)
        assert app.prompt.text == "@notes.txt "


async def test_what_is_not_sent_is_handed_out_and_comes_back(app: Listening) -> None:
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        await pilot.press(*"see")
        await driven.paste("x\n" * 100)
        await driven.until(lambda: app.unsent)
        kept = app.unsent[-1]
        app.prompt.clear()
        app.prompt.load_unsent(kept)
        await driven.until(lambda: driven.chips)
        assert app.prompt.text == "see [Pasted text 1, 100 lines] "
        await pilot.press("enter")
        await pilot.pause()
        assert app.sent[0][1][0].text == "x\n" * 100


async def test_a_message_to_edit_comes_with_its_attachments(app: Listening) -> None:
    old = Attachment("gone.txt", "old text", 2)
    async with app.run_test() as pilot:
        driven = Driven(app, pilot)
        app.prompt.load("why @gone.txt?", [old])
        await driven.until(lambda: "gone.txt  2 tokens" in driven.chips)
        await pilot.press("enter")
        await driven.until(lambda: app.sent)
        assert app.sent == [("why @gone.txt?", (old,))]


async def test_a_very_long_old_message_is_shown_folded(app: Listening) -> None:
    text = "word " * 20_000
    async with app.run_test() as pilot:
        app.prompt.load(text)
        await pilot.press("enter")
        await pilot.pause()
        assert app.sent[0][1][0].text == text
