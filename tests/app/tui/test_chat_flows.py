"""The chat's flows with a real engine: keys in, texts on the screen and in the store out."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from app.settings import ChatSettings
from app.store import ChatStore
from tests.app.tui.conftest import RunApp, fill

LONG = ChatSettings(temperature=0.0, max_tokens=2000, mode="plain")


async def test_a_reply_streams_and_is_stored_to_its_last_character(run_app: RunApp, target: Path, draft: Path) -> None:
    async with run_app(model=target, draft=draft) as running:
        await running.ask("hello [b]x[/b] [/b] [TODO] plan")
        prompt, reply = running.path
        assert reply.state == "length"
        assert len(reply.text) > 10
        view = running.transcript.view(reply.id)
        assert view is not None
        assert view.reply is not None
        assert view.reply.text == reply.text == running.store.message(reply.id).text
        assert "[b]x[/b] [/b] [TODO] plan" in running.shown(prompt.id)
        assert running.screen._pace.snapshot is not None
        assert running.screen.status.pace == ""  # the panel shows it
        await running.pilot.press("f9")
        assert "tokens" in running.screen.status.pace


async def test_escape_stops_and_keeps_what_there_is(run_app: RunApp, target: Path) -> None:
    async with run_app(model=target, settings=LONG) as running:
        await running.ask("go on", wait=False)
        reply = running.path[-1].id
        await running.until(lambda: (view := running.transcript.view(reply)) and view.reply and view.reply.text)
        await running.pilot.press("escape")
        await running.until(lambda: not running.session.replying)
        assert running.store.message(reply).state == "cancelled"
        assert running.store.message(reply).text
        assert "stopped by you" in running.shown(reply)
        assert running.screen.prompt.text == ""


async def test_stopping_before_anything_was_written_gives_the_prompt_back(run_app: RunApp, target: Path) -> None:
    async with run_app(model=target, settings=LONG) as running:
        os.kill(running.app.host._process.pid, signal.SIGSTOP)  # type: ignore[union-attr,arg-type]
        await running.ask("never mind", wait=False)
        await running.pilot.press("escape")
        os.kill(running.app.host._process.pid, signal.SIGCONT)  # type: ignore[union-attr,arg-type]
        await running.until(lambda: not running.session.replying)
        await running.until(lambda: running.screen.prompt.text == "never mind")
        assert running.path == []
        assert running.store.search("never") == []


async def test_regenerate_and_walk_the_branches(run_app: RunApp, target: Path) -> None:
    async with run_app(model=target, settings=ChatSettings(temperature=1.5, max_tokens=12)) as running:
        await running.ask("hello")
        first = running.path[-1]
        await running.pilot.press("ctrl+r")
        await running.until(lambda: running.path[-1].id != first.id and not running.session.replying)
        second = running.path[-1]
        assert "2/2" in running.shown(second.id)
        await running.pilot.press("escape")
        assert running.transcript.cursor == second.id
        await running.pilot.press("left")
        await running.until(lambda: running.path[-1].id == first.id)
        assert "1/2" in running.shown(first.id)
        await running.pilot.press("right")
        await running.until(lambda: running.path[-1].id == second.id)


async def test_the_model_names_the_chat_when_there_is_nothing_else_to_do(run_app: RunApp, target: Path) -> None:
    async with run_app(model=target, auto_title=True) as running:
        await running.ask("hello")
        await running.until(lambda: running.store.chats()[0].title, "there is no title")
        await running.until(lambda: str(running.screen.query_one("#title").render()) == running.store.chats()[0].title)


async def test_without_titles_by_the_model_a_chat_is_named_by_its_first_words(run_app: RunApp, target: Path) -> None:
    async with run_app(model=target, auto_title=False) as running:
        await running.ask("hello out there")
        await running.until(lambda: running.store.chats()[0].title == "hello out there", "it has no name")
        await running.until(lambda: str(running.screen.query_one("#title").render()) == "hello out there")
        await running.ask("and again")
        assert running.store.chats()[0].title == "hello out there"


async def test_edit_and_send_again(run_app: RunApp, target: Path) -> None:
    async with run_app(model=target) as running:
        await running.ask("first try")
        await running.pilot.press("escape", "up", "enter", "e")
        await running.until(lambda: running.screen.prompt.text == "first try")
        await running.pilot.press("!", "enter")
        await running.until(lambda: running.path[0].text == "first try!" and not running.session.replying)
        assert running.session.branch(running.path[0].id) == (2, 2)
        assert running.path[1].text


async def test_thinking_is_folded_and_opened_by_key(run_app: RunApp, thinking: Path) -> None:
    """The reply's text is put into the store, since a tiny model does not think."""
    async with run_app(model=thinking) as running:
        await running.ask("hello")
        reply = running.path[-1]
        running.store.finish_reply(reply.id, "<think>secret plan</think>The **answer**", (), "complete", None)
        running.session.refresh()
        await running.screen.show_chat()
        await running.pilot.pause()
        fold = running.screen.query_one("Thinking")
        assert running.transcript.view(reply.id).text == "The **answer**"  # type: ignore[union-attr]
        assert not fold.query_one("PlainText").display
        await running.pilot.press("ctrl+t")
        await running.pilot.pause()
        assert fold.query_one("PlainText").display
        assert "secret plan" in fold.query_one("PlainText").text  # type: ignore[attr-defined]


async def test_the_engine_dies_and_comes_back_by_one_key(run_app: RunApp, target: Path) -> None:
    async with run_app(model=target, settings=LONG) as running:
        await running.ask("go on", wait=False)
        reply = running.path[-1].id
        await running.until(lambda: (view := running.transcript.view(reply)) and view.reply and view.reply.text)
        os.kill(running.app.host._process.pid, signal.SIGKILL)  # type: ignore[union-attr,arg-type]
        await running.until(lambda: running.app.host.state == "lost")
        await running.until(lambda: "F5 loads" in running.screen.activity.text)
        assert running.store.message(reply).state == "interrupted"
        assert running.store.message(reply).text
        await running.pilot.press("f5")
        await running.ready()
        await running.ask("and again")
        assert running.path[-1].text


async def test_origins_are_told_apart_with_and_without_colour(run_app: RunApp, target: Path, draft: Path) -> None:
    async with run_app(model=target, draft=draft, settings=ChatSettings(temperature=0.0, max_tokens=120, mode="fixed:3")) as running:
        await running.ask("hello")
        reply = running.path[-1]
        assert {span.origin for span in reply.origins} >= {"target", "model"}
        await running.pilot.press("f11")
        await running.until(lambda: running.screen.query("MessageView PlainText ProseView"))
        view = running.transcript.view(reply.id)
        assert view is not None
        pieces = [prose.flow.blocks[0].content for prose in view.query("ProseView")]  # type: ignore[attr-defined]
        assert "\n".join(piece.plain for piece in pieces) == reply.text
        assert any("underline" in str(span.style) for piece in pieces for span in piece.spans)
        await running.pilot.press("f11")
        await running.until(lambda: not view.query("PlainText"))


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_a_failed_load_is_one_line_and_the_chat_can_still_be_read(run_app: RunApp, size: tuple[int, int]) -> None:
    async with run_app(size=size) as running:
        await running.until(lambda: "F5 loads" in running.screen.activity.text)
        assert "none.gguf" in running.screen.activity.text


async def test_without_a_model_a_message_is_kept_and_answered_once_there_is_one(run_app: RunApp, target: Path) -> None:
    async with run_app() as running:
        await running.until(lambda: "F5 loads" in running.screen.activity.text)
        await running.ask("is anybody there?")
        await running.until(lambda: "F5 loads" in running.screen.activity.text)
        assert running.store.search("anybody")
        assert [m.role for m in running.path] == ["user", "assistant"]
        assert running.path[1].state == "failed"
        running.app.choices = running.app.choices.__class__(target=str(target), draft="none", ctx=2048, threads=1)
        await running.pilot.press("f5")
        await running.ready()
        await running.pilot.press("ctrl+r")
        await running.until(lambda: not running.session.replying and running.path[1].text)


@pytest.mark.parametrize(("wanted", "state"), [("drop", "length"), ("stop", "context")])
async def test_a_full_context_is_told_as_it_was_chosen(
    run_app: RunApp, store: ChatStore, target: Path, wanted: str, state: str
) -> None:
    long = ChatSettings(temperature=0.0, max_tokens=300)
    async with run_app(model=target, settings=long, on_context_full=wanted, ctx=512) as running:
        await running.ask("first " + "word " * 20)
        await running.ask("second")
        reply = running.path[-1]
        assert reply.state == state
        if wanted == "stop":
            assert "takes" in running.shown(reply.id) or "context is full" in running.shown(reply.id)
            assert "F10" in running.screen.activity.text
            return
        assert "F10" in running.screen.activity.text
        marked = running.screen.query_one(".message-marker").parent
        assert marked is running.transcript.view(running.path[2].id)
        running.session.open(reply.chat_id)
        await running.screen.show_chat()  # and again when the chat is opened later
        marked = running.screen.query_one(".message-marker").parent
        assert marked is running.transcript.view(running.path[2].id)


async def test_a_full_context_is_summarised_where_that_was_chosen(run_app: RunApp, store: ChatStore, target: Path) -> None:
    long = ChatSettings(temperature=0.0, max_tokens=300)
    async with run_app(model=target, settings=long, on_context_full="summarise") as running:
        for number in range(5):
            await running.ask(f"{number} " + "word " * 60)
        [summary] = [m for m in running.path if m.kind == "summary"]
        assert "Summary of everything above" in running.shown(summary.id)
        assert running.path[-2].text.startswith("4 ")
        assert running.transcript.view(running.path[-1].id).text == running.path[-1].text  # type: ignore[union-attr]


async def test_that_turns_are_summarised_is_not_said_any_longer_when_that_has_failed(
    run_app: RunApp, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.chat.overflow.INSTRUCTION", "x" * 5000)
    long = ChatSettings(temperature=0.0, max_tokens=300)
    async with run_app(model=target, settings=long, on_context_full="summarise") as running:
        for number in range(5):
            await running.ask(f"{number} " + "word " * 60)
            if running.screen.activity.text:
                break
        assert "could not be summarised" in running.screen.activity.text
        assert "being summarised" not in running.screen.activity.text


async def test_why_a_reply_ended_is_still_said_when_the_chat_is_opened_again(run_app: RunApp, store: ChatStore) -> None:
    chat = fill(store, 2)
    reply = store.path(chat)[-1]
    store.finish_reply(reply.id, "half", (), "length", {"line": "the reply was cut at 7 tokens"})
    async with run_app(chat=chat) as running:
        shown = running.shown(reply.id)
        assert "cut at 7 tokens" in shown
        assert "longest reply allowed" not in shown
