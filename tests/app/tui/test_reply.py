"""A growing reply shows the same widgets as a finished one, and never loses its end."""

from __future__ import annotations

import asyncio
import random

import pytest
from textual.app import App, ComposeResult

from app.chat.conversation import OriginSpan
from app.tui.widgets.code_block import PIECE, CodeBlock
from app.tui.widgets.plain_text import PlainText
from app.tui.widgets.prose import ProseView
from app.tui.widgets.reply import Reply
from app.tui.widgets.thinking import Thinking
from tests.app.tui.markdown.test_growing import DOCUMENT


class Shown(App[None]):
    """One reply."""

    def __init__(self, reply: Reply) -> None:
        super().__init__()
        self.reply = reply

    def compose(self) -> ComposeResult:
        yield self.reply

    def get_css_variables(self) -> dict[str, str]:
        return {**super().get_css_variables(), "origin-model": "green", "origin-ngram": "yellow"}


def text_of(reply: Reply) -> list[str]:
    """What each widget shows, in order."""
    shown: list[str] = []
    for child in reply.children:
        if isinstance(child, ProseView):
            shown += [block.first + block.content.plain for block in child.flow.blocks]
        elif isinstance(child, CodeBlock):
            assert "\n".join(piece.flow.blocks[0].content.plain for piece in child._pieces) == child.code.rstrip("\n")  # type: ignore[union-attr]
            shown.append(child.code)
        else:
            shown.append(type(child).__name__)
    return shown


@pytest.mark.parametrize("seed", range(4))
async def test_growing_ends_as_the_finished_reply_looks(seed: int) -> None:
    generator = random.Random(seed)
    whole = Reply(DOCUMENT * 3)
    async with Shown(whole).run_test():
        expected = text_of(whole)
    reply, text, at = Reply(growing=True), DOCUMENT * 3, 0
    async with Shown(reply).run_test() as pilot:
        while at < len(text):
            size = generator.randint(1, 40)
            reply.grow(text[at : at + size], ())
            reply._draw()
            at += size
            if generator.random() < 0.1:
                await pilot.pause()
        await pilot.pause()
        reply.finish(text, ())
        await pilot.pause()
        assert text_of(reply) == expected


@pytest.mark.parametrize("end", ["last words", "**bold**", "`code`", "```", "- item", "| a |", "</think>"])
async def test_what_comes_in_the_last_moment_is_shown(end: str) -> None:
    """K32: the reply ends before what came last was drawn."""
    text = "Some text.\n\n```python\nx = 1\n```\n\n" + end
    reply = Reply(growing=True)
    async with Shown(reply).run_test() as pilot:
        reply.grow(text[:-4], ())
        await asyncio.sleep(0.1)
        reply.grow(text[-4:], ())
        reply.finish(text, ())
        await pilot.pause()
        shown = text_of(reply)
    whole = Reply(text)
    async with Shown(whole).run_test():
        assert shown == text_of(whole)
    assert reply.text == text


async def test_finishing_at_once_shows_everything() -> None:
    reply = Reply(growing=True)
    async with Shown(reply).run_test() as pilot:
        reply.finish("all of it", ())
        await pilot.pause()
        assert text_of(reply) == ["all of it"]


async def test_a_long_block_of_code_is_drawn_piece_by_piece() -> None:
    code = [f"x{i} = '{i}'" for i in range(3 * PIECE + 5)]
    reply = Reply(growing=True)
    async with Shown(reply).run_test() as pilot:
        reply.grow("```python\n", ())
        reply._draw()
        pieces = []
        for line in code:
            reply.grow(line + "\n", ())
            reply._draw()
            block = reply.query_one(CodeBlock)
            pieces.append(list(block._pieces))
        await pilot.pause()
        assert len(block._pieces) == 4
        assert block._pieces[0] is pieces[0][0]
        reply.finish("```python\n" + "\n".join(code) + "\n```", ())
        await pilot.pause()
        assert text_of(reply) == ["\n".join(code)]


async def test_thinking_that_the_template_opened_is_folded_when_it_ends() -> None:
    reply = Reply(growing=True)
    async with Shown(reply).run_test() as pilot:
        reply.grow("let me see", ())
        reply._draw()
        await pilot.pause()
        assert text_of(reply) == ["let me see"]
        reply.grow("\n</think>\n\nYes.", ())
        reply._draw()
        await pilot.pause()
        assert text_of(reply) == ["Thinking", "Yes."]
        reply.finish("let me see\n</think>\n\nYes.", ())
        await pilot.pause()
        assert text_of(reply) == ["Thinking", "Yes."]
        thinking = reply.query_one(Thinking)
        reply.thinking_opened = True
        assert thinking.opened
        assert thinking.query_one(PlainText).text == "let me see"


async def test_colours_can_be_switched_while_it_grows() -> None:
    reply = Reply(growing=True)
    async with Shown(reply).run_test() as pilot:
        reply.grow("**one** ", (OriginSpan("target", 8),))
        reply._draw()
        reply.coloured = True
        await pilot.pause()
        reply.grow("two", (OriginSpan("ngram", 3),))
        reply._draw()
        await pilot.pause()
        content = reply.query_one(ProseView).flow.blocks[0].content
        assert content.plain == "**one** two"
        assert [(span.start, span.end, str(span.style)) for span in content.spans] == [(8, 11, "bold italic $origin-ngram")]
        reply.coloured = False
        await pilot.pause()
        reply.finish("**one** two.", ())
        await pilot.pause()
        assert text_of(reply) == ["one two."]


async def test_a_selection_over_several_blocks_is_their_text() -> None:
    from textual.geometry import Offset
    from textual.selection import Selection

    reply = Reply("First paragraph\nof two lines\n\n- an item\n- another")
    async with Shown(reply).run_test() as pilot:
        await pilot.pause()
        view = reply.query_one(ProseView)
        assert view.get_selection(Selection(Offset(3, 1), Offset(2, 2))) == ("two lines\nan", "\n")
        strip = view.render_line(3)  # the first item, behind a blank line
        offsets = [segment.style.meta["offset"] for segment in strip if segment.style and "offset" in segment.style.meta]
        assert offsets[0] == (0, 2)


@pytest.mark.parametrize("coloured", [False, True])
@pytest.mark.parametrize("ended", [False, True])
async def test_what_comes_while_the_widgets_are_mounted_is_shown(coloured: bool, ended: bool) -> None:
    class Late(Reply):
        def compose(self) -> ComposeResult:
            yield from super().compose()
            if ended:
                self.finish("It begins, and it ends.", ())
            else:
                self.grow(", and it goes on.", ())

    reply = Late("It begins", growing=True, coloured=coloured)
    async with Shown(reply).run_test() as pilot:
        await pilot.pause(0.05)
        shown = reply.query_one(ProseView).flow.blocks[0].content.plain
        assert shown == ("It begins, and it ends." if ended else "It begins, and it goes on.")
