from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.tui.widgets.prompt_burst import QUIET, Burst, BurstDetector


def play(keys: Sequence[tuple[str, float]]) -> list[str | Burst]:
    """What a prompt does with keys at these times: characters that are typed at once, and bursts when they are released."""
    detector, done, now = BurstDetector(), [], 0.0
    for character, gap in keys:
        if detector.holding and gap > QUIET:
            done.append(detector.release())
        now += gap
        if not detector.holds(character.replace("\n", "\r"), now):
            done.append(character)
    if detector.holding:
        done.append(detector.release())
    return done


def at(gap: float, text: str, first: float = 1.0) -> list[tuple[str, float]]:
    return [(character, gap if index else first) for index, character in enumerate(text)]


def test_typing_is_not_held_and_enter_sends() -> None:
    assert play(at(0.12, "hi\n")) == ["h", "i", Burst("", sends=True)]


def test_a_fast_typist_is_not_taken_for_a_paste() -> None:
    assert play(at(0.02, "hi\n")) == ["h", "i", Burst("", sends=True)]


def test_a_pasted_block_is_one_text_and_does_not_send() -> None:
    assert play(at(0.0001, "one\ntwo\nthree\n")) == ["o", Burst("ne\ntwo\nthree\n")]


def test_a_line_typed_by_a_script_is_sent() -> None:
    assert play(at(0.0001, "hello there\n")) == ["h", Burst("ello there", sends=True)]


def test_a_script_that_sends_enter_a_moment_later_sends() -> None:
    assert play([*at(0.0001, "hello there"), ("\n", 0.06)]) == ["h", Burst("ello there"), Burst("", sends=True)]


@pytest.mark.parametrize("pause", [0.01, 0.05, 0.2])
def test_a_paste_in_packets_is_not_sent_wherever_it_is_cut(pause: float) -> None:
    text = "first line\nsecond\nthird\n"
    for cut in range(12, len(text)):  # a cut right after the first line looks like a script's line
        done = play([*at(0.0001, text[:cut]), *at(0.0001, text[cut:], first=pause)])
        assert "".join(part if isinstance(part, str) else part.text for part in done) == text
        assert not any(isinstance(part, Burst) and part.sends for part in done)


def test_a_paste_that_begins_with_a_line_end_does_not_send_what_was_typed() -> None:
    assert play([("x", 1.0), *at(0.0001, "\nmore")]) == ["x", Burst("\nmore")]


def test_enter_after_a_paste_sends() -> None:
    assert play([*at(0.0001, "one\ntwo"), ("\n", 0.5)])[-1] == Burst("", sends=True)


def test_another_key_ends_a_burst_without_sending() -> None:
    detector = BurstDetector()
    detector.holds("\r", 1.0)
    assert detector.interrupted() == Burst("\n")
    assert not detector.holding
