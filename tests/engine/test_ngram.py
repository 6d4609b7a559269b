"""The n-gram drafter against a brute-force search, over several turns, and past the end of its history."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafters.ngram import NgramDrafter

EVERY = 10**9


def best_match(tokens: Sequence[int], shortest: int, longest: int) -> tuple[int, int] | None:
    """(place, length) of the longest earlier occurrence of the trailing tokens; the most recent of equals."""
    end, best = len(tokens), None
    for place in range(1, end):
        length = 0
        while length < min(place, longest) and tokens[place - 1 - length] == tokens[end - 1 - length]:
            length += 1
        if length >= shortest and (best is None or length >= best[1]):
            best = place, length
    return best


def continuation(tokens: Sequence[int], place: int, limit: int) -> tuple[int, ...]:
    """Token by token, each written where the copy can read it."""
    text = list(tokens)
    for i in range(limit):
        text.append(text[place + i])
    return tuple(text[len(tokens) :])


def check(drafter: NgramDrafter, tokens: Sequence[int], shortest: int, longest: int, limit: int = 7) -> None:
    match = best_match(tokens, shortest, longest)
    draft, peeked = drafter.propose(limit), drafter.peek()
    assert draft.origin == "ngram"
    assert len(draft.probs) == len(draft.confidence) == len(draft)
    assert not any(draft.probs)
    if match is None:
        assert draft.tokens == ()
        assert peeked is None
    else:
        place, length = match
        assert draft.tokens == continuation(tokens, place, limit)
        assert draft.match_length == length
        assert peeked == (tokens[place], length)


small_alphabet = st.integers(1, 4).flatmap(lambda v: st.lists(st.integers(0, v - 1), max_size=60))


@settings(max_examples=300, deadline=None)
@given(small_alphabet, st.integers(1, 3), st.integers(3, 20), st.integers(0, 60))
def test_equals_a_brute_force_search_at_every_token(
    tokens: list[int], shortest: int, longest: int, prompt: int
) -> None:
    drafter = NgramDrafter(shortest, longest, candidates=EVERY)
    drafter.begin(tokens[:prompt])
    check(drafter, tokens[:prompt], shortest, longest)
    for end in range(prompt, len(tokens)):
        drafter.observe(tokens[end : end + 1])
        check(drafter, tokens[: end + 1], shortest, longest)


@settings(max_examples=200, deadline=None)
@given(st.lists(small_alphabet, min_size=2, max_size=4), st.lists(st.integers(0, 60), min_size=3, max_size=3))
def test_new_prompts_that_extend_cut_or_leave_the_old_tokens(turns: list[list[int]], kept: list[int]) -> None:
    """A drafter led through several prompts knows what a fresh one given the last prompt knows."""
    drafter = NgramDrafter(candidates=EVERY)
    history = turns[0]
    drafter.begin(history)
    for turn, keep in zip(turns[1:], kept, strict=False):
        history = history[:keep] + turn
        drafter.begin(history)
        check(drafter, history, 2, 64)
        reply = turn[:5]
        for i in range(len(reply)):
            drafter.observe(reply[i : i + 1])
        history = history + reply
        check(drafter, history, 2, 64)


def test_stale_tokens_are_never_proposed() -> None:
    drafter = NgramDrafter()
    drafter.begin([1, 2, 3, 4, 1, 2])
    assert drafter.propose(2).tokens == (3, 4)
    drafter.begin([1, 2, 9, 1, 2])
    assert drafter.propose(2).tokens == (9, 1)
    drafter.begin([5, 1, 2])
    assert drafter.propose(2).tokens == ()


def test_what_was_indexed_is_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    drafter = NgramDrafter()
    drafter.begin(range(1000))
    appended: list[list[int]] = []
    monkeypatch.setattr(drafter, "observe", appended.append)
    drafter.begin([*range(1000), 7, 8])
    drafter.begin([*range(900), 3])
    assert appended == [[7, 8], [3]]


def test_longest_match_wins_over_the_most_recent() -> None:
    tokens = [1, 2, 3, 50, 9, 2, 3, 60, 1, 2, 3]
    drafter = NgramDrafter()
    drafter.begin(tokens)
    assert drafter.peek() == (50, 3)


def test_most_recent_wins_among_equals() -> None:
    drafter = NgramDrafter()
    drafter.begin([2, 3, 50, 2, 3, 60, 2, 3])
    assert drafter.peek() == (60, 2)


def test_a_sequence_that_repeats_is_continued_to_the_limit() -> None:
    drafter = NgramDrafter()
    drafter.begin([9, 1, 2, 3, 1, 2, 3, 1, 2])
    draft = drafter.propose(8)
    assert draft.tokens == (3, 1, 2, 3, 1, 2, 3, 1)
    assert draft.match_length == 5
    drafter.begin([7, 7, 7])
    assert drafter.propose(4).tokens == (7, 7, 7, 7)


def test_a_long_match_is_found_behind_many_short_ones() -> None:
    """Ten thousand newer places end in the same two tokens, yet the ten-token match far back is found."""
    passage = list(range(100, 112))
    noise = [x for i in range(10_000) for x in (1000 + i, 108, 109)]
    drafter = NgramDrafter(candidates=4)
    drafter.begin(passage + noise + passage[:10])
    assert drafter.propose(2).tokens == (110, 111)
    assert drafter.propose(2).match_length == 10


@given(small_alphabet, st.integers(1, 5))
def test_few_candidates_still_give_a_true_match(tokens: list[int], candidates: int) -> None:
    drafter = NgramDrafter(candidates=candidates)
    drafter.begin(tokens)
    draft = drafter.propose(5)
    best = best_match(tokens, 2, 64)
    assert (len(draft) > 0) == (best is not None)
    if best is not None:
        assert 2 <= draft.match_length <= best[1]
        assert any(
            draft.tokens == continuation(tokens, place, 5)
            and tokens[place - draft.match_length : place] == tokens[-draft.match_length :]
            for place in range(2, len(tokens))
        )


def test_proposals_do_not_depend_on_when_they_were_asked_for() -> None:
    rng = random.Random(1)
    tokens = [rng.randrange(3) for _ in range(400)]
    asked, silent = NgramDrafter(), NgramDrafter()
    asked.begin(tokens[:50])
    silent.begin(tokens[:50])
    for i in range(50, 400):
        asked.peek()
        asked.observe(tokens[i : i + 1])
    silent.observe(tokens[50:])
    assert asked.propose(31) == silent.propose(31)


@pytest.mark.parametrize("limit", [0, -1])
def test_no_room_means_no_draft(limit: int) -> None:
    drafter = NgramDrafter()
    drafter.begin([7, 7, 7])
    assert drafter.propose(limit).tokens == ()


def test_settings_that_make_no_sense_are_refused() -> None:
    for bad in ({"shortest": 0}, {"shortest": 5, "longest": 4}, {"candidates": 0}):
        with pytest.raises(ValueError, match="are needed"):
            NgramDrafter(**bad)
