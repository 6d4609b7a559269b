"""The n-gram drafter against a brute-force search, over several turns, and past the end of its history."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.drafters.ngram import NgramDrafter
from engine.drafters.ngram_index import NgramIndex
from engine.values import Draft

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


small_alphabet = st.integers(1, 4).flatmap(lambda v: st.lists(st.integers(0, v - 1), max_size=60))


@settings(max_examples=300, deadline=None)
@given(small_alphabet, st.integers(1, 3), st.integers(3, 20), st.integers(0, 60))
def test_the_index_equals_a_brute_force_search_at_every_token(
    tokens: list[int], shortest: int, longest: int, prompt: int
) -> None:
    index = NgramIndex(shortest, longest, candidates=EVERY)
    index.append(tokens[:prompt])
    assert index.longest_match() == best_match(tokens[:prompt], shortest, longest)
    for end in range(prompt, len(tokens)):
        index.append(tokens[end : end + 1])
        assert index.longest_match() == best_match(tokens[: end + 1], shortest, longest)


@settings(max_examples=200, deadline=None)
@given(st.lists(small_alphabet, min_size=2, max_size=4), st.lists(st.integers(0, 60), min_size=3, max_size=3))
def test_tokens_that_extend_cut_or_leave_the_old_ones(turns: list[list[int]], kept: list[int]) -> None:
    """An index led through several prompts knows what a fresh one given the last prompt knows."""
    index = NgramIndex(2, 64, candidates=EVERY)
    history = turns[0]
    index.replace(history)
    for turn, keep in zip(turns[1:], kept, strict=False):
        history = history[:keep] + turn
        index.replace(history)
        assert index.tokens == history
        assert index.longest_match() == best_match(history, 2, 64)
        index.append(turn[:5])
        history = history + turn[:5]
        assert index.longest_match() == best_match(history, 2, 64)


@given(small_alphabet, st.integers(1, 5))
def test_few_candidates_still_give_a_true_match(tokens: list[int], candidates: int) -> None:
    index = NgramIndex(2, 64, candidates)
    index.append(tokens)
    match, best = index.longest_match(), best_match(tokens, 2, 64)
    assert (match is None) == (best is None)
    if match is not None and best is not None:
        place, length = match
        assert 2 <= length <= best[1]
        assert tokens[place - length : place] == tokens[-length:]


@given(small_alphabet, st.integers(1, 70))
def test_a_prompts_match_is_copied_past_its_own_end(tokens: list[int], limit: int) -> None:
    drafter = NgramDrafter(candidates=EVERY)
    drafter.begin(tokens)
    draft, match = drafter.propose(limit), best_match(tokens, 2, 64)
    assert draft.origin == "ngram"
    if match is None:
        assert (draft.tokens, drafter.peek()) == ((), None)
    else:
        place, length = match
        assert draft == Draft(
            continuation(tokens, place, limit), (None,) * limit, (0.0,) * limit, "ngram", match_length=length
        )
        assert drafter.peek() == (tokens[place], length)


@settings(max_examples=200, deadline=None)
@given(small_alphabet, st.integers(0, 60))
def test_following_only_ever_improves_on_the_longest_match(tokens: list[int], prompt: int) -> None:
    """At every token: at least as long as the exact match, and from a place that follows the same token."""
    drafter = NgramDrafter(candidates=EVERY)
    drafter.begin(tokens[:prompt])
    for end in range(prompt, len(tokens)):
        drafter.observe(tokens[end : end + 1])
        seen = tokens[: end + 1]
        draft, match = drafter.propose(9), best_match(seen, 2, 64)
        if match is not None:
            assert draft.match_length >= match[1]
        if draft.tokens:
            places = (place for place in range(1, len(seen)) if seen[place - 1] == seen[-1])
            assert any(draft.tokens == continuation(seen, place, 9) for place in places)


def begun_and_observed(prompt: Sequence[int], reply: Sequence[int]) -> NgramDrafter:
    drafter = NgramDrafter()
    drafter.begin(prompt)
    drafter.observe(reply)
    return drafter


PASSAGE = list(range(100, 140))


@pytest.mark.parametrize(
    ("edit", "agreed"),
    [
        ([7], [111, 112]),  # one token for 110
        ([7, 8, 9], [113, 114]),  # three tokens for three
        ([], [115, 116]),  # five tokens left out
        ([7, 8, 9, 7, 8, 9], [110, 111]),  # six put in
        ([7, 8], [111, 112]),  # two for one
    ],
)
def test_a_copy_that_departs_from_its_source_is_resumed(edit: list[int], agreed: list[int]) -> None:
    copied = PASSAGE[:10]
    drafter = begun_and_observed([*PASSAGE, 0], copied + edit + agreed)
    next_token = agreed[-1] + 1
    assert drafter.propose(3).tokens == (next_token, next_token + 1, next_token + 2)
    assert drafter.propose(3).match_length >= 5


def test_one_token_is_enough_to_resume_where_nothing_moved() -> None:
    drafter = begun_and_observed([*PASSAGE, 0], [*PASSAGE[:10], 7])
    assert drafter.peek() is None
    drafter.observe([111])
    assert drafter.peek() == (112, 6)


def test_the_resumed_passage_beats_a_short_match_elsewhere() -> None:
    """After a rename the only exact match is an earlier renamed place; the edit goes on with the passage."""
    drafter = begun_and_observed([*PASSAGE, 0, 7, 111, 55, 0], [*PASSAGE[:10], 7, 111])
    assert drafter.peek() == (112, 6)


def test_two_tokens_are_needed_where_the_text_moved() -> None:
    drafter = begun_and_observed([*PASSAGE, 0], [*PASSAGE[:10], 7, 113])
    assert drafter.peek() is None
    drafter.observe([114])
    assert drafter.peek() == (115, 7)


def test_the_nearest_place_to_resume_wins() -> None:
    source = [*PASSAGE[:10], 1, 2, 60, 50, 51, 52, 1, 2, 70]
    drafter = begun_and_observed([*source, 0], [*PASSAGE[:10], 7, 8, 9, 6, 1, 2])
    assert drafter.peek() == (70, 7)


def test_every_break_halves_again() -> None:
    drafter = begun_and_observed([*PASSAGE, 0], [*PASSAGE[:10], 7, 111, 8, 113])
    assert drafter.peek() == (114, 4)


def test_a_lesser_match_that_breaks_does_not_replace_the_passage() -> None:
    drafter = begun_and_observed([*PASSAGE, 0, 7, 8, 9, 6, 55, 0], [*PASSAGE[:10], 7, 8, 9, 6])
    assert drafter.peek() == (55, 4)
    drafter.observe([114])
    assert drafter.peek() == (115, 6)


@pytest.mark.parametrize(("away", "match_length"), [(15, 7), (16, 2)])
def test_a_break_is_forgotten_after_a_while(away: int, match_length: int) -> None:
    drafter = begun_and_observed([*PASSAGE, 0], [*PASSAGE[:10], *range(500, 500 + away - 1), 112, 113])
    assert drafter.peek() == (114, match_length)


def test_a_new_prompt_forgets_the_break() -> None:
    drafter = begun_and_observed([*PASSAGE, 0], [*PASSAGE[:10], 7])
    drafter.begin([*PASSAGE, 0, *PASSAGE[:10], 7])
    drafter.observe([111])
    assert drafter.peek() is None


def test_proposals_do_not_depend_on_when_they_were_asked_for() -> None:
    rng = random.Random(1)
    tokens = [rng.randrange(3) for _ in range(400)]
    asked = begun_and_observed(tokens[:50], [])
    for i in range(50, 400):
        asked.propose(1 + i % 9)
        asked.observe(tokens[i : i + 1])
    assert asked.propose(31) == begun_and_observed(tokens[:50], tokens[50:]).propose(31)


def test_stale_tokens_are_never_proposed() -> None:
    drafter = NgramDrafter()
    drafter.begin([1, 2, 3, 4, 1, 2])
    assert drafter.propose(2).tokens == (3, 4)
    drafter.begin([1, 2, 9, 1, 2])
    assert drafter.propose(2).tokens == (9, 1)
    drafter.begin([5, 1, 2])
    assert drafter.propose(2).tokens == ()


def test_what_was_indexed_is_reused(monkeypatch: pytest.MonkeyPatch) -> None:
    index = NgramIndex(2, 64, 32)
    index.append(range(1000))
    appended: list[list[int]] = []
    monkeypatch.setattr(index, "append", appended.append)
    index.replace([*range(1000), 7, 8])
    index.replace([*range(900), 3])
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


@pytest.mark.parametrize("limit", [0, -1])
def test_no_room_means_no_draft(limit: int) -> None:
    drafter = NgramDrafter()
    drafter.begin([7, 7, 7])
    assert drafter.propose(limit).tokens == ()


def test_settings_that_make_no_sense_are_refused() -> None:
    for bad in ({"shortest": 0}, {"shortest": 5, "longest": 4}, {"candidates": 0}):
        with pytest.raises(ValueError, match="are needed"):
            NgramDrafter(**bad)
