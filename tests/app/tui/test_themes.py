from __future__ import annotations

import pytest
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.content import Content
from textual.filter import LineFilter
from textual.widgets import OptionList, Static

from app.tui.themes import NO_COLOUR, THEMES, apply_theme, line_filters, wanted_theme
from app.tui.widgets.prompt import Prompt


@pytest.mark.parametrize(
    ("environ", "theme"),
    [({}, "light"), ({"NO_COLOR": "1"}, NO_COLOUR), ({"NO_COLOR": ""}, "light"), ({"TERM": "dumb"}, NO_COLOUR), ({"TERM": "xterm"}, "light")],
)
def test_the_environment_can_ask_for_no_colour(environ: dict[str, str], theme: str) -> None:
    assert wanted_theme("light", environ) == theme


class Themed(App[None]):
    def __init__(self, theme_name: str) -> None:
        super().__init__()
        self.theme_name = theme_name
        self.problem: str | None = None

    def compose(self) -> ComposeResult:
        yield Static("[b]bold[/b] [red]red[/red] [on blue]blue[/on blue]")
        yield OptionList("one", "two")
        yield Prompt(lambda most: [])

    def on_mount(self) -> None:
        self.problem = apply_theme(self, self.theme_name, {})

    def get_line_filters(self) -> list[LineFilter]:
        return list(line_filters(self, super().get_line_filters()))

    def drawn(self) -> list[Segment]:
        """Everything on the screen, as it goes to the terminal."""
        filters = self.get_line_filters()
        segments: list[Segment] = []
        for strip in self.screen._compositor.render_strips(self.size):
            line = list(strip)
            for wanted in filters:
                line = wanted.apply(line, self.screen.background_colors[1])
            segments += line
        return segments


@pytest.mark.parametrize("theme", sorted(THEMES))
async def test_every_theme_can_be_drawn(theme: str) -> None:
    app = Themed(theme)
    async with app.run_test(size=(60, 16)) as pilot:
        await pilot.press("/")
        await pilot.pause()
        assert app.problem is None
        assert app.theme == theme
        assert any("one" in segment.text for segment in app.drawn())


async def test_without_colour_not_one_colour_is_drawn_and_the_cursor_stands_out() -> None:
    app = Themed(NO_COLOUR)
    async with app.run_test(size=(60, 16)) as pilot:
        app.query_one(OptionList).focus()
        await pilot.pause()
        styles = [(segment.text, segment.style) for segment in app.drawn() if segment.style]
    assert all(style.color is None and style.bgcolor is None for _, style in styles)
    assert any("one" in text and style.reverse for text, style in styles)
    assert any("bold" in text and style.bold for text, style in styles)


@pytest.mark.parametrize("theme", ["dark", NO_COLOUR])
async def test_no_control_character_is_drawn_whoever_forgot_to_strip_it(theme: str) -> None:
    app = Themed(theme)
    async with app.run_test(size=(60, 16)) as pilot:
        app.query_one(Static).update(Content("a\x1b]52;c;aGk=\x07b \x9b2J c\u202ed\u2066e שלום"))
        await pilot.pause()
        drawn = "".join(segment.text for segment in app.drawn())
    assert "a]52;c;aGk=b 2J cde שלום" in drawn
    assert not set("\x1b\x07\x9b\u202e\u2066") & set(drawn)


async def test_textuals_own_themes_have_the_colours_of_the_origins() -> None:
    app = Themed("nord")
    async with app.run_test():
        assert app.theme == "nord"
        assert {"origin-target", "origin-model", "origin-ngram"} <= set(app.get_css_variables())


async def test_a_theme_that_is_not_there_is_told() -> None:
    app = Themed("solarised-pink")
    async with app.run_test():
        assert app.problem is not None
        assert "'solarised-pink'" in app.problem
        assert app.theme == "dark"
