"""The prompt's editor alone."""

from __future__ import annotations

import pytest
from textual.app import App, ComposeResult

from app.tui.widgets.prompt import Prompt
from app.tui.widgets.prompt_input import PromptInput


@pytest.mark.parametrize("cols", [1, 4, 5])
async def test_a_terminal_without_room_for_a_letter_is_no_fault(cols: int) -> None:
    class Shell(App[None]):
        def compose(self) -> ComposeResult:
            yield Prompt(lambda most: [])

    async with Shell().run_test(size=(80, 6)) as pilot:
        await pilot.resize_terminal(cols, 6)
        await pilot.pause()
        assert pilot.app.query_one(PromptInput).content_size.width <= 1
