from __future__ import annotations

import pytest
from rich.cells import cell_len
from textual.app import App, ComposeResult

from app.tui.widgets.prompt_graphemes import next_boundary, previous_boundary
from app.tui.widgets.prompt_input import PromptInput

FAMILY, FLAGS, ACCENT, RAINBOW, TONE = "👩‍👩‍👧", "🇫🇷🇩🇪", "e\u0301", "🏳️‍🌈", "👍🏽"


@pytest.mark.parametrize("cluster", [FAMILY, ACCENT, RAINBOW, TONE, FLAGS[:2], "x", "好", "ش"])
def test_a_cluster_is_one_step(cluster: str) -> None:
    text = f"a{cluster}b"
    assert next_boundary(text, 1) == previous_boundary(text, len(text)) == 1 + len(cluster)
    assert previous_boundary(text, 1 + len(cluster)) == 1


def test_flags_in_a_row_are_pairs() -> None:
    assert [next_boundary(FLAGS, 0), next_boundary(FLAGS, 2)] == [2, 4]
    assert [previous_boundary(FLAGS, 4), previous_boundary(FLAGS, 2)] == [2, 0]


def test_what_is_cut_in_half_ends_at_the_text() -> None:
    assert next_boundary("a\u200d", 0) == 2
    assert previous_boundary("\u0301", 1) == 0
    assert next_boundary("", 0) == 0


class One(App[None]):
    def compose(self) -> ComposeResult:
        yield PromptInput()


async def test_no_style_ends_inside_a_cluster_wherever_the_cursor_stands() -> None:
    """A terminal would draw the rest of the cluster as another character, and the frame at the right would move."""
    text = f"a{FAMILY}b{ACCENT}{RAINBOW}{TONE}你{FLAGS}c"
    app = One()
    async with app.run_test(size=(40, 10)) as pilot:
        editor = app.query_one(PromptInput)
        editor.paste(text)
        steps = 0
        while editor.cursor_location[1] > 0:
            await pilot.press("left")
            await pilot.pause()
            steps += 1
            for strip in editor.render_lines(editor.region.reset_offset):
                assert sum(cell_len(segment.text) for segment in strip) == editor.region.width
                line, edge = "".join(segment.text for segment in strip), 0
                for segment in strip:
                    edge += len(segment.text)
                    assert next_boundary(line, edge - 1) == edge
        assert steps == 10


async def test_backspace_and_delete_take_a_whole_cluster() -> None:
    app = One()
    async with app.run_test(size=(40, 10)) as pilot:
        editor = app.query_one(PromptInput)
        editor.paste(f"a{FAMILY}{ACCENT}b")
        await pilot.press("left", "backspace")
        assert editor.text == f"a{FAMILY}b"
        await pilot.press("home", "right", "delete")
        assert editor.text == "ab"
