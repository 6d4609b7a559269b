"""What of a growing text is painted anew: all that has changed, and not the screen."""

from __future__ import annotations

import random

import pytest
from textual.content import Content
from textual.geometry import Region

from app.tui.markdown import Flow, GrowingMarkdown, Prose, parts_of
from app.tui.widgets.prose import STEP, ProseView, changed_rows
from app.tui.widgets.reply import Reply
from tests.app.tui.markdown.test_growing import DOCUMENT
from tests.app.tui.test_reply import Shown


def rows(flow: Flow, width: int) -> list[tuple[str, list[object]]]:
    """Each row as it is drawn: its text with the prefix, and its styles."""
    drawn: list[tuple[str, list[object]]] = []
    for block in flow.blocks:
        drawn += [("", [])] * block.gap
        for at, line in enumerate(block.content.wrap(width - len(block.rest))):
            drawn.append(((block.rest if at else block.first) + line.plain, [*line.spans]))
    return drawn


@pytest.mark.parametrize("width", [24, 40, 79])
def test_the_rows_before_the_changed_ones_are_the_same(width: int) -> None:
    draw, markdown, old, spared = random.Random(width), GrowingMarkdown(), None, 0
    at, text = 0, DOCUMENT.replace("```", "") * 2
    while at < len(text):
        size = draw.randint(1, 12)
        markdown.append(text[at : at + size])
        at += size
        for part, _ in parts_of(markdown.blocks):
            if isinstance(part, Flow):
                if old is not None:
                    first, end = changed_rows(old, part, width)
                    before, after = rows(old, width), rows(part, width)
                    assert before[:first] == after[:first]
                    assert before[end:] == after[end:]
                    spared += first
                old = part
    assert spared > 0


def test_a_heading_that_was_a_paragraph_is_drawn_anew() -> None:
    old, new = Flow((Prose(Content("Title")),)), Flow((Prose(Content.styled("Title", "bold")),))
    assert changed_rows(old, new, 40) == (0, 1)
    longer = Flow((Prose(Content("word " * 20)), Prose(Content("the end of it"))))
    shorter = Flow((Prose(Content("word " * 20)), Prose(Content("the end"))))
    assert changed_rows(longer, shorter, 50) == (2, 3)


async def test_a_growing_text_lays_the_screen_out_once_for_several_rows() -> None:
    reply, layouts, heights = Reply(growing=True), 0, set()

    def count(_: object) -> None:
        nonlocal layouts
        layouts += 1

    async with Shown(reply).run_test(size=(40, 30)) as pilot:
        reply.grow("word ", ())
        await pilot.pause()
        pilot.app.screen.screen_layout_refresh_signal.subscribe(reply, count, immediate=True)
        for _ in range(2 * STEP * 40 // 5):
            reply.grow("word ", ())
            reply._draw()
            await pilot.pause()
            heights.add(reply.query_one(ProseView).size.height)
        assert heights == {STEP, 2 * STEP, 3 * STEP}
        assert layouts == 2
        reply.finish(reply.text, ())
        await pilot.pause()
        assert reply.query_one(ProseView).size.height == 2 * STEP + 1


async def test_rows_are_kept_until_they_change() -> None:
    reply = Reply("first\n\nsecond")
    async with Shown(reply).run_test(size=(40, 30)) as pilot:
        await pilot.pause()
        view = reply.query_one(ProseView)
        whole = Region(0, 0, *view.size)
        kept = view.render_lines(whole)
        assert view.render_lines(whole) is kept
        view.show(Flow((view.flow.blocks[0], Prose(Content("third"), gap=True))))
        assert [strip.text.rstrip() for strip in view.render_lines(whole)] == ["first", "", "third"]
        view.styles.background = "red"
        await pilot.pause()
        assert view.render_lines(whole)[0]._segments[0].style.bgcolor.name == "#ff0000"  # type: ignore[union-attr]
