"""The pace meter: its numbers by hand on made-up rounds, and what a saved reply gives back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from app.chat.pace import HELD_ROUNDS, LOG_LINES, RECENT_LENGTHS, PaceMeter, PaceSnapshot
from engine import RoundDone
from engine.values import Origin, Round

PLAIN = Round(
    origin="target", candidates=(), confidence=(), judged=0, accepted=0, emitted=(7,), context=100, match_length=0,
    parked=False, draft_seconds=0.0, target_seconds=0.1, sampling_seconds=0.0, total_seconds=0.1, expected_seconds=None,
    reason="", plain_seconds=0.1,
)


def drafted(length: int, accepted: int, seconds: tuple[float, float, float], origin: Origin = "model") -> Round:
    draft, check, total = seconds
    return replace(
        PLAIN, origin=origin, candidates=(1,) * length, judged=length, accepted=accepted, emitted=(1,) * (accepted + 1),
        draft_seconds=draft, target_seconds=check, total_seconds=total,
    )


def measured(*rounds: Round, first: Round = PLAIN, state: str = "s") -> PaceSnapshot:
    meter = PaceMeter(4096)
    for round_ in (first, *rounds):
        meter.add(RoundDone(round_, state))
    return meter.snapshot(memory_bytes=5)


def test_a_plain_reply_runs_at_one_times_plain() -> None:
    pace = measured(*[PLAIN] * 10)
    assert pace.tokens == 11
    assert pace.tokens_per_second == pytest.approx(10)
    assert pace.ratio_to_plain == pytest.approx(1)
    assert (pace.acceptance_by_position, pace.lengths) == ((), (0,) * 10)
    assert (pace.context_used, pace.context_size, pace.memory_bytes) == (101, 4096, 5)


def test_the_first_round_belongs_to_the_prompt() -> None:
    slow = replace(PLAIN, total_seconds=100.0, target_seconds=100.0)
    assert measured(*[PLAIN] * 10, first=slow).reply_tokens_per_second == pytest.approx(10)
    assert measured(first=slow) == PaceSnapshot(
        tokens=1, by_origin={"target": 1, "model": 0, "ngram": 0}, context_used=101, context_size=4096, memory_bytes=5, state="s",
    )


def test_blocks_by_position_origin_and_time() -> None:
    pace = measured(
        drafted(4, 4, (0.1, 0.2, 0.4)), drafted(4, 1, (0.1, 0.2, 0.3)), drafted(2, 0, (0.1, 0.1, 0.2)),
        drafted(3, 3, (0.0, 0.2, 0.2), "ngram"),
    )
    assert pace.acceptance_by_position == pytest.approx((3 / 4, 2 / 4, 2 / 3, 1 / 2))
    assert pace.lengths == (4, 4, 2, 3)
    assert pace.by_origin == {"target": 5, "model": 5, "ngram": 3}
    assert (pace.draft_seconds, pace.check_seconds, pace.other_seconds) == pytest.approx((0.3, 0.7, 0.1))
    assert pace.decode_seconds == pytest.approx(1.1)


def test_the_ratio_is_plain_seconds_over_real_ones() -> None:
    """Five tokens in 0.25 s that take 0.1 s each plainly."""
    assert measured(drafted(4, 4, (0.05, 0.2, 0.25))).ratio_to_plain == pytest.approx(2)


def test_what_a_plain_token_takes_besides_decoding_counts_for_it_too() -> None:
    besides = replace(PLAIN, total_seconds=0.15)
    assert measured(*[besides] * 5).ratio_to_plain == pytest.approx(1)
    assert measured(besides, drafted(4, 4, (0.1, 0.25, 0.35))).ratio_to_plain == pytest.approx(6 * 0.15 / 0.5)


def test_without_measured_costs_there_is_no_ratio() -> None:
    unknown = replace(PLAIN, plain_seconds=None)
    assert measured(unknown, unknown).ratio_to_plain is None
    mixed = measured(unknown, replace(PLAIN, plain_seconds=0.2))
    assert mixed.ratio_to_plain == pytest.approx(2), "of the rounds that know it"


def test_tokens_a_second_are_those_of_the_last_seconds() -> None:
    slow, quick = replace(PLAIN, total_seconds=1.0), replace(PLAIN, total_seconds=0.1)
    pace = measured(*[slow] * 10, *[quick] * 25)
    assert pace.tokens_per_second == pytest.approx(10, rel=0.2)
    assert pace.reply_tokens_per_second == pytest.approx(35 / 12.5)
    assert measured(*[slow] * 10).tokens_per_second == pytest.approx(1)
    assert measured(replace(PLAIN, total_seconds=9.0)).tokens_per_second == pytest.approx(1 / 9), "one long round is enough"


def test_the_token_that_ends_the_reply_is_part_of_the_speed() -> None:
    end = replace(PLAIN, emitted=(), ended=True)
    for pace in (measured(*[PLAIN] * 3, end), measured(end)):
        assert pace.tokens_per_second == pace.reply_tokens_per_second == pytest.approx(10)
        assert pace.ratio_to_plain == pytest.approx(measured(PLAIN).ratio_to_plain)
    assert measured(*[PLAIN] * 3, end).tokens == measured(*[PLAIN] * 3).tokens


def test_a_reply_that_ends_inside_a_block_counts_what_it_kept() -> None:
    ended = replace(drafted(5, 3, (0.1, 0.1, 0.2)), emitted=(1, 1), judged=2)
    pace = measured(ended)
    assert pace.by_origin == {"target": 1, "model": 2, "ngram": 0}
    assert pace.acceptance_by_position == (1.0, 1.0)


def test_only_recent_lengths_are_kept() -> None:
    assert len(measured(*[PLAIN] * (RECENT_LENGTHS + 9)).lengths) == RECENT_LENGTHS


def test_states_that_last_are_logged_once_whatever_their_numbers() -> None:
    meter = PaceMeter(4096)
    for i in range(20):
        meter.add(RoundDone(PLAIN, f"drafting off: next probe in {20 - i} rounds"))
    meter.add(RoundDone(PLAIN, "copying 3 tokens"))
    for _ in range(HELD_ROUNDS):
        meter.add(RoundDone(PLAIN, "drafting up to 4"))
    pace = meter.snapshot()
    assert pace.log == ("token 4: drafting off: next probe in 17 rounds", "token 25: drafting up to 4")
    assert pace.state == "drafting up to 4"


def test_the_log_does_not_grow_for_ever() -> None:
    meter = PaceMeter(4096)
    for letter in "abcdefghijklmn":
        for _ in range(HELD_ROUNDS):
            meter.add(RoundDone(PLAIN, letter))
    assert [line[-1] for line in meter.snapshot().log] == list("abcdefghijklmn")[-LOG_LINES:]


def test_a_saved_reply_gives_its_numbers_back() -> None:
    pace = measured(drafted(4, 3, (0.05, 0.2, 0.25)), *[PLAIN] * 9, state="drafting")
    report = json.loads(json.dumps({"pace": pace.as_json(), "usage": {}}))
    again = PaceSnapshot.from_report(report)
    assert again is not None
    assert again.tokens_per_second == pytest.approx(pace.tokens_per_second, abs=1e-3)
    exact = ("tokens", "lengths", "acceptance_by_position", "by_origin", "context_used", "context_size", "memory_bytes", "state", "log")
    assert all(getattr(again, name) == getattr(pace, name) for name in exact)
    assert again.ratio_to_plain == pytest.approx(pace.ratio_to_plain, abs=1e-3)


@pytest.mark.parametrize(
    "report",
    [
        None, {}, {"usage": {}}, {"pace": None}, {"pace": 3}, {"pace": {"lengths": 3}}, {"pace": {"lengths": ["x"]}},
        {"pace": {"by_origin": [1]}}, {"pace": {"tokens_per_second": "fast"}}, {"pace": {"context_size": None}},
        {"pace": {"ratio_to_plain": "x"}}, {"pace": {"state": 3}}, {"pace": {"memory_bytes": "x"}},
        {"pace": {"acceptance_by_position": [7.0]}}, {"pace": {"draft_seconds": -1}}, {"pace": {"lengths": [-3]}},
    ],
)
def test_a_report_without_readable_numbers_gives_none(report: object) -> None:
    assert PaceSnapshot.from_report(report) is None  # type: ignore[arg-type]


def test_numbers_of_a_later_version_are_read_as_far_as_they_are_known() -> None:
    pace = PaceSnapshot.from_report({"pace": {"tokens": 3, "colour": "blue"}})
    assert pace == PaceSnapshot(tokens=3)
