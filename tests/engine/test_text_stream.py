"""TextStream against a one-shot reference: the text never depends on where tokens and blocks end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import BadRequest
from engine.text_stream import TextStream


def one_shot(data: bytes, stops: Sequence[str]) -> tuple[str, str | None]:
    """The rule, written as plainly as can be: look at ever longer texts until one ends with a stop string."""
    text = data.decode("utf-8", "replace")
    for end in range(1, len(text) + 1):
        ending = [s for s in stops if text[:end].endswith(s)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


def stream(pieces: Sequence[bytes], stops: Sequence[str] = ()) -> tuple[str, TextStream]:
    s = TextStream(stops)
    return "".join(s.push([p]) for p in pieces) + s.finish(), s


def cut(data: bytes, places: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(p % (len(data) + 1) for p in places), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


# Few letters, so that stop strings occur, overlap and nearly occur; some multi-byte characters; some broken bytes.
DATA = st.one_of(
    st.text("ab\n😀é", max_size=30).map(str.encode),
    st.binary(max_size=30),
    st.lists(st.sampled_from([b"a", b"b", b"\xf0\x9f", b"\x98\x80", b"\xc3", b"\xa9", b"\xff", b"ab"]), max_size=20).map(b"".join),
)
STOPS = st.lists(st.text("ab\n😀é\ufffd", min_size=1, max_size=5), max_size=4)
PLACES = st.lists(st.integers(0, 60), max_size=40)


@given(DATA, STOPS, PLACES, PLACES)
def test_same_text_for_any_tokens_and_blocks(
    data: bytes, stops: list[str], token_ends: list[int], block_ends: list[int]
) -> None:
    expected, stop = one_shot(data, stops)
    tokens = cut(data, token_ends)
    edges = [0, *sorted(p % (len(tokens) + 1) for p in block_ends), len(tokens)]
    s = TextStream(stops)
    given_out = ""
    for a, b in pairwise(edges):
        given_out += s.push(tokens[a:b])
        assert expected.startswith(given_out), "text was given out that had to wait"
    assert given_out + s.finish() == expected
    assert s.stopped is (stop is not None)
    assert s.finish() == ""


@given(DATA, STOPS, PLACES)
def test_names_the_token_that_completed_the_stop(data: bytes, stops: list[str], token_ends: list[int]) -> None:
    tokens = cut(data, token_ends)
    s = TextStream(stops)
    s.push(tokens)
    if s.stopped:
        assert one_shot(b"".join(tokens[: s.tokens]), stops)[1] is not None
        # one token less completes nothing, whatever an unfinished character would become
        before = TextStream(stops)
        before.push(tokens[: s.tokens - 1])
        assert not before.stopped
    else:
        assert s.tokens == len(tokens)


@given(DATA, STOPS)
def test_nothing_waits_longer_than_it_must(data: bytes, stops: list[str]) -> None:
    s = TextStream(stops)
    given_out = ""
    for i in range(len(data)):
        given_out += s.push([data[i : i + 1]])
        if s.stopped:
            break
        rest = one_shot(data[: i + 1], [])[0][len(given_out) :]
        starts = {stop[:n] for stop in stops for n in range(1, len(stop) + 1)}
        unfinished = rest.endswith("\ufffd")  # perhaps a character whose bytes are still to come
        assert rest == "" or rest in starts or (unfinished and (rest[:-1] in starts | {""}))


def test_emoji_split_over_four_tokens_and_a_block_edge() -> None:
    s = TextStream()
    assert s.push([b"hi ", b"\xf0", b"\x9f"]) == "hi "
    assert s.push([b"\x98"]) == ""
    assert s.push([b"\x80", b"!"]) == "😀!"


@pytest.mark.parametrize("data", [b"\xf0\x9f\x98", b"a\xffb", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x9fab", b"\xe2\x82"])
def test_broken_bytes_become_what_one_shot_decoding_makes_of_them(data: bytes) -> None:
    assert stream([bytes([b]) for b in data])[0] == data.decode("utf-8", "replace")


def test_stop_whose_halves_come_in_one_block_with_more_behind() -> None:
    s = TextStream(["\n\n"])
    assert s.push([b"one", b".\n", b"\nTwo", b" three"]) == "one."
    assert (s.stopped, s.tokens) == (True, 3)
    assert s.push([b"more"]) == ""
    assert s.tokens == 3


def test_partial_stop_is_released_when_it_fails_and_at_the_end() -> None:
    s = TextStream(["</answer>"])
    assert s.push([b"x </ans"]) == "x "
    assert s.push([b"were"]) == "</answere"
    assert s.push([b" </answer"]) == " "
    assert s.finish() == "</answer"


def test_first_to_complete_wins_and_the_longer_of_two_that_end_together() -> None:
    assert stream([b"abcdef"], ["abcdef", "cd"])[0] == "ab"
    assert stream([b"xabcd"], ["cd", "abcd", "bcd"])[0] == "x"


def test_overlapping_near_matches() -> None:
    assert stream([b"a", b"a", b"a", b"b"], ["aab"])[0] == "a"
    assert stream([b"aab"[i : i + 1] for i in range(3)], ["aac", "ab"])[0] == "a"


def test_empty_stop_string_is_refused() -> None:
    with pytest.raises(BadRequest, match="empty"):
        TextStream(["ok", ""])


def test_cost_does_not_grow_with_the_reply() -> None:
    """The state is bounded by the longest stop string, however long the reply and however near the misses."""
    s = TextStream(["a" * 50 + "b"])
    s.push([b"a"] * 20_000)
    assert len(s._waiting) == 50
    assert s.finish() == "a" * 50
