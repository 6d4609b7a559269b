"""The pace panel in a small app: what it says at every size, in colour and without, live and of a saved reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.content import Content
from textual.filter import LineFilter

from app.chat.pace import PaceSnapshot
from app.tui.themes import HIGH_CONTRAST, THEMES, apply_theme, line_filters
from app.tui.widgets.pace import NOTHING, PacePanel, column, strip
from app.tui.widgets.pace_text import Share, apart, bar, flow, sparkline, stacked, wrapped

FULL = PaceSnapshot(
    tokens=412, tokens_per_second=47.31, reply_tokens_per_second=38.2, ratio_to_plain=1.42,
    acceptance_by_position=(0.93, 0.81, 0.66, 0.52, 0.41, 0.3, 0.22, 0.15),
    lengths=(0, 0, 4, 4, 5, 6, 8, 8, 7, 6, 4, 0, 15, 31, 12, 8, 6, 5, 4), draft_seconds=2.9, check_seconds=5.6,
    other_seconds=0.8, by_origin={"target": 151, "model": 198, "ngram": 63}, context_used=1204, context_size=4096,
    memory_bytes=2_140_000_000, state="drafting up to 4 tokens: about 72% are kept, checking 4 costs 94 ms",
    log=("token 12: plain decoding", "token 122: drafting up to 4 tokens", "token 300: copying up to 31 tokens"),
)


class Demo(App[None]):
    """The panel alone."""

    def __init__(self, theme: str = "dark") -> None:
        super().__init__()
        self.wanted = theme
        self.panel = PacePanel()

    def on_load(self) -> None:
        apply_theme(self, self.wanted, {})

    def get_line_filters(self) -> Sequence[LineFilter]:
        return line_filters(self, super().get_line_filters())

    def compose(self) -> ComposeResult:
        yield self.panel


async def shown(pace: PaceSnapshot | None, size: tuple[int, int], theme: str = "dark", **how: object) -> list[str]:
    """The panel's lines on a screen of that size."""
    app = Demo(theme)
    async with app.run_test(size=size) as pilot:
        app.panel.show(pace, **how)  # type: ignore[arg-type]
        await pilot.pause()
        strips = [app.panel.render_line(y) for y in range(size[1])]
        return [strip.text.rstrip() for strip in strips]


async def test_the_column_tells_everything() -> None:
    text = "\n".join(await shown(FULL, (34, 44)))
    for words in (
        "47.3 tokens/s", "1.42x plain", "38.2 over this reply", "93%", "6-8", "Drafted each round", "Time", "9.3 s",
        "draft 31%", "check 60%", "other 9%", "draft 198", "n-gram 63", "target 151", "1,204 of 4,096", "2.1 GB",
        "drafting up to 4 tokens", "token 300: copying",
    ):
        assert words in text, words


async def test_the_strip_tells_it_in_five_lines_at_80_by_24() -> None:
    lines = await shown(FULL, (80, 5))
    assert len([line for line in lines if line]) <= 5
    text = "\n".join(lines)
    for words in (
        "47.3 tokens/s", "1.42x plain", "kept", "length", "draft 31%", "check 60%", "draft 198", "n-gram 63", "2.1 GB",
        "context 1,204/4,096", "drafting up to 4 tokens",
    ):
        assert words in text, words


async def test_what_is_least_telling_leaves_first() -> None:
    least_first = ["token 300", "Context", "Tokens by", "Drafted each round", "Time", "drafting up to 4", "Kept by position"]
    seen = []
    for height in range(44, 11, -1):
        text = "\n".join(await shown(FULL, (34, height))) if height in (44, 30, 26, 20, 16, 12) else None
        if text is not None:
            seen.append([words in text for words in least_first])
            assert "47.3 tokens/s" in text
    assert seen[0] == [True] * 7
    for row in seen:
        assert row == sorted(row), "none is missing while a lighter one is there"
    assert not seen[-1][2]


async def test_a_finished_reply_is_told_by_its_own_speed() -> None:
    text = "\n".join(await shown(FULL, (34, 40), heading="This reply", live=False))
    assert "This reply" in text
    assert "38.2 tokens/s" in text
    assert "47.3" not in text
    again = PaceSnapshot.from_report({"pace": FULL.as_json()})
    assert "\n".join(await shown(again, (34, 40), heading="This reply", live=False)) == text


async def test_without_numbers_it_says_so() -> None:
    assert NOTHING.split()[0] in "\n".join(await shown(None, (34, 30)))
    assert NOTHING in "\n".join(await shown(None, (80, 5)))


async def test_the_first_moments_of_a_reply_are_no_fault() -> None:
    first = PaceSnapshot(tokens=1, by_origin={"target": 1}, context_used=30, context_size=4096, state="starting")
    for size in ((34, 40), (80, 5), (20, 3)):
        text = "\n".join(await shown(first, size))
        assert "0.0 tokens/s" in text
        assert "plain" not in text, "there is no ratio yet"


async def test_it_follows_what_it_is_shown() -> None:
    app = Demo()
    async with app.run_test(size=(34, 40)) as pilot:
        for speed in (10.0, 20.0):
            app.panel.show(replace(FULL, tokens_per_second=speed))
            await pilot.pause()
            assert f"{speed:.1f} tokens/s" in "".join(app.panel.render_line(y).text for y in range(6))
        await pilot.resize_terminal(80, 5)
        await pilot.pause()
        assert "context 1,204/4,096" in app.panel.render_line(1).text


@pytest.mark.parametrize("theme", [name for name in THEMES if name in ("dark", "light", HIGH_CONTRAST)])
async def test_it_reads_the_same_in_every_theme(theme: str) -> None:
    assert await shown(FULL, (34, 40), theme) == await shown(FULL, (34, 40))


async def test_words_of_the_engine_are_never_markup() -> None:
    text = "\n".join(await shown(replace(FULL, state="[b]bold[/b] [/] [TODO", log=("token 1: [x]",)), (40, 44)))
    assert "[b]bold[/b] [/] [TODO" in text
    assert "token 1: [x]" in text


SHARES = st.lists(st.floats(0, 1), max_size=40).map(tuple)
PACES = st.builds(
    PaceSnapshot, tokens=st.integers(0, 10**6), tokens_per_second=st.floats(0, 1e4), reply_tokens_per_second=st.floats(0, 1e4),
    ratio_to_plain=st.none() | st.floats(0, 50), acceptance_by_position=SHARES, lengths=st.lists(st.integers(0, 63), max_size=64).map(tuple),
    draft_seconds=st.floats(0, 1e4), check_seconds=st.floats(0, 1e4), other_seconds=st.floats(0, 1e4),
    by_origin=st.dictionaries(st.sampled_from(["target", "model", "ngram"]), st.integers(0, 10**6)),
    context_used=st.integers(0, 10**6), context_size=st.integers(0, 10**6), memory_bytes=st.none() | st.integers(0, 1 << 40),
    state=st.text(max_size=200), log=st.lists(st.text(max_size=60), max_size=8).map(tuple),
)


@settings(max_examples=100, deadline=None)
@given(pace=PACES, width=st.integers(8, 120), height=st.integers(1, 50), live=st.booleans())
def test_no_numbers_break_the_layout(pace: PaceSnapshot, width: int, height: int, live: bool) -> None:
    pace = replace(pace, state=pace.state.replace("\n", " "), log=tuple(line.replace("\n", " ") for line in pace.log))
    if width >= 24:
        assert all(line.cell_length <= width for line in column(pace, width, height, live=live) if line.plain.isascii())
    assert len(strip(pace, width, height, live=live)) <= height


@given(fraction=st.floats(-1, 2), width=st.integers(1, 80))
def test_a_bar_has_its_width(fraction: float, width: int) -> None:
    drawn = bar(fraction, width, "bold").plain
    assert len(drawn) == width
    assert (drawn == "·" * width) == (fraction <= 0)


def test_a_bar_shows_eighths() -> None:
    assert bar(0.5, 4, "").plain == "██··"
    assert bar(0.53125, 4, "").plain == "██▏·"
    assert bar(1e-9, 4, "").plain == "▏···"


@given(amounts=st.lists(st.floats(0, 1e6), min_size=1, max_size=3), width=st.integers(4, 80))
def test_a_stacked_bar_has_its_width_and_every_part(amounts: list[float], width: int) -> None:
    shares = [Share(name, amount, fill, "") for name, amount, fill in zip("abc", amounts, "█▓░", strict=False)]
    drawn = stacked(shares, width).plain
    assert len(drawn) == width
    if sum(amounts) > 0:
        assert all((share.fill in drawn) == (share.amount > 0) for share in shares)


def test_the_sparkline_shows_the_latest_and_plain_rounds_as_dots() -> None:
    assert sparkline((1, 0, 2, 8), 3).plain == "·▄█"
    assert sparkline((), 10).plain == ""
    assert sparkline((1, 32), 2).plain == "▂█"


def test_texts_are_cut_and_set_apart() -> None:
    assert [line.plain for line in wrapped("one two three four", 9, 2)] == ["one two", "three…"]
    assert apart(Content("left"), Content("right"), 12).plain == "left   right"
    assert apart(Content("a long text"), Content("right"), 12).plain == "a lon… right"
    assert [line.plain for line in flow([Content("ab"), Content("cd"), Content("ef")], 7)] == ["ab  cd", "ef"]
