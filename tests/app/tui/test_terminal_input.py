from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tui.terminal_input import ESCAPE, QUIET, Input, Pasted, Pressed, TerminalInput, Typed

CHUNKS = Sequence[tuple[str, float]]
"""What is read, and how many seconds after the read before it."""


def play(chunks: CHUNKS) -> list[Input]:
    """What comes out, with the clock ticking as finely as it has to."""
    terminal, found, now = TerminalInput(), [], 0.0
    for data, gap in [*chunks, ("", 10.0)]:
        end = now + gap
        while (due := terminal.due(now)) is not None and now + due < end:
            now += due
            found += terminal.tick(now)
        now = end
        found += terminal.feed(data, now) if data else terminal.tick(now)
    return merged(found)


def merged(found: Sequence[Input]) -> list[Input]:
    """Neighbouring typed pieces as one: how they are cut does not matter."""
    out: list[Input] = []
    for item in found:
        if isinstance(item, Typed) and out and isinstance(out[-1], Typed):
            out[-1] = Typed(out[-1].data + item.data)
        else:
            out.append(item)
    return out


def by_character(text: str, gap: float) -> CHUNKS:
    return [(character, gap) for character in text]


def marked(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


@pytest.mark.parametrize("gap", [0.02, 0.15, 1.0])
def test_typing_stays_typing(gap: float) -> None:
    assert play(by_character("hi you\r", gap)) == [Typed("hi you\r")]


def test_a_marked_paste_is_one_text_and_its_lines_end_as_ours() -> None:
    assert play([(marked("one\r\ntwo\rthree\n"), 1)]) == [Pasted("one\ntwo\nthree\n")]


@given(st.lists(st.integers(0, 40), max_size=6))
def test_a_marked_paste_is_one_text_wherever_it_is_cut(cuts: list[int]) -> None:
    data = "a" + marked("x\ny \x1b[2 \x1b[201 z") + "b"
    places = sorted({0, *cuts, len(data)})
    chunks = [(data[a:b], 0.005) for a, b in pairwise(places)]
    found = play([(chunk, gap if index else 1.0) for index, (chunk, gap) in enumerate(chunks) if chunk])
    assert found == [Typed("a"), Pasted("x\ny \x1b[2 \x1b[201 z"), Typed("b")]


def test_a_marked_paste_without_an_end_is_not_lost() -> None:
    assert play([("\x1b[200~some text", 1)]) == [Pasted("some text")]


@pytest.mark.parametrize("chunks", [
    [("one line\rand two\rand three\r", 1)],
    by_character("one line\rand two\rand three\r", 0.001),
    [("one line\rand", 1), (" two\rand three\r", 0.02)],
])
def test_an_unmarked_paste_is_one_text_and_sends_nothing(chunks: CHUNKS) -> None:
    first, *rest = play(chunks)
    pasted = (first.data if isinstance(first, Typed) else "") + "".join(item.text for item in rest if isinstance(item, Pasted))
    text = pasted if rest else first.text  # type: ignore[union-attr]
    assert text == "one line\nand two\nand three\n"


@pytest.mark.parametrize("pause", [0.01, 0.05, 0.2])
def test_an_unmarked_paste_in_packets_sends_nothing_wherever_it_is_cut(pause: float) -> None:
    text = "the first line\rsecond\rthird\r"
    for cut in range(1, len(text)):
        if cut != 15:  # right after the first line the rest may come too late: it looks like a line typed by a script
            found = play([(text[:cut], 1), (text[cut:], pause)])
            assert not any(isinstance(item, Typed) and "\r" in item.data for item in found), cut
            whole = "".join(item.data if isinstance(item, Typed) else item.text for item in found if not isinstance(item, Pressed))
            assert whole == text.replace("\r", "\n"), cut


def test_a_paste_that_begins_with_a_line_end_sends_nothing_that_was_typed() -> None:
    assert play([("x", 1), ("\rmore of it\r", 1)]) == [Typed("x"), Pasted("\nmore of it\n")]


def test_a_line_typed_by_a_script_is_sent_also_when_its_enter_comes_later() -> None:
    assert play([("hello there, you\r", 1)]) == [Pasted("hello there, you"), Typed("\r")]
    assert play([("hello there, you", 1), ("\r", 0.06)]) == [Pasted("hello there, you"), Typed("\r")]
    assert play([("/help\r", 1)]) == [Typed("/help\r")]


def test_enter_after_an_unmarked_paste_sends() -> None:
    assert play([("one\rtwo and more", 1), ("\r", 0.5)]) == [Pasted("one\ntwo and more"), Typed("\r")]


def test_a_key_that_is_no_text_ends_what_a_paste_before_it_began() -> None:
    paste = Pasted("one\ntwo and more")
    found = play([("one\rtwo and more", 1), ("\x0e", 1), *by_character("hello", 0.001), ("\r", 0.1)])
    assert found == [paste, Typed("\x0ehello\r")]


def test_keys_that_a_slow_line_brings_together_stay_keys() -> None:
    assert play([("jjjjjjjjjjjjjjjjjjjj", 1)]) == [Typed("j" * 20)]
    assert play([("abc", 1)]) == [Typed("abc")]


@pytest.mark.parametrize("text", ["👩‍👩‍👧", "你好", "e\u0301"])
def test_what_an_input_method_puts_in_is_one_text(text: str) -> None:
    assert play([(text, 1), ("\r", 0.5)]) == [Pasted(text), Typed("\r")]


def test_escape_is_a_key_when_nothing_follows() -> None:
    assert play([("\x1b", 1)]) == [Pressed("escape")]
    assert play([("\x1b", 1), ("[A", ESCAPE / 2)]) == [Typed("\x1b[A")]
    assert play([("\x1b", 1), ("x", ESCAPE * 2)]) == [Pressed("escape"), Typed("x")]


def test_escape_is_told_in_time() -> None:
    terminal = TerminalInput()
    assert list(terminal.feed("\x1b", 1.0)) == []
    assert terminal.due(1.0) == pytest.approx(ESCAPE)
    assert list(terminal.tick(1.0 + ESCAPE + 1e-6)) == [Pressed("escape")]
    assert terminal.due(2.0) is None


@pytest.mark.parametrize("chunks", [[("\x1b\r", 1)], [("\x1b", 1), ("\r", 0.01)]])
def test_alt_enter_is_a_key_of_its_own(chunks: CHUNKS) -> None:
    assert play([("a", 1), *chunks, ("b", 1)]) == [Typed("a"), Pressed("alt+enter"), Typed("b")]


def test_sequences_pass_and_end_a_burst_without_sending() -> None:
    assert play([("one and two\rand three", 1), ("\r", 0.01), ("\x1b[A", 0.01)]) == [
        Pasted("one and two\nand three\n"), Typed("\x1b[A"),
    ]


def test_a_long_unmarked_paste_is_one_text() -> None:
    text = "0123456789 abcdefghi\r" * 20_000
    chunks = [(text[at : at + 4096], 0.001) for at in range(0, len(text), 4096)]
    assert play([("", 1), *chunks]) == [Pasted(text.replace("\r", "\n"))]
    assert QUIET > 0.001
