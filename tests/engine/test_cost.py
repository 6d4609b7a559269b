"""Measured costs: jagged curves are kept, readings move them slowly, and a slower machine moves all of them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.cost import CONTEXT_EDGES, CostModel, RowCosts

JAGGED = {1: 0.036, 2: 0.056, 4: 0.094, 7: 0.196, 8: 0.281, 12: 0.342, 16: 0.327, 64: 0.853}
"""A 1.5B Q4_K_M target on two CPU cores: 16 rows cost less than 12."""


def curve(figures: dict[int, float] = JAGGED, context: int = 0) -> RowCosts:
    costs = RowCosts()
    for rows, seconds in figures.items():
        costs.set(rows, context, seconds)
    return costs


def test_nothing_is_known_before_the_first_figure() -> None:
    costs = RowCosts()
    assert not costs.known()
    costs.observe(1, 0, 0.03)
    assert costs.known()
    assert costs.seconds(1, 0) == 0.03


def test_measured_row_counts_keep_their_own_figure_and_others_lie_between() -> None:
    costs = curve()
    assert {n: costs.seconds(n, 0) for n in JAGGED} == JAGGED
    assert costs.seconds(3, 0) == pytest.approx((0.056 + 0.094) / 2)
    assert costs.seconds(14, 0) == pytest.approx((0.342 + 0.327) / 2)
    assert costs.seconds(65, 0) >= costs.seconds(64, 0)


def test_two_neighbours_known_to_a_few_percent_do_not_foretell_a_long_reading() -> None:
    """A draft that has read 61 and 64 tokens is asked what a prompt of 1,200 takes: their difference is noise."""
    costs = curve({1: 0.018, 8: 0.084, 61: 0.39, 64: 0.377})
    assert costs.seconds(1200, 0) == pytest.approx(0.377 * 1200 / 64, rel=0.2)


def test_readings_longer_than_a_block_share_a_figure_with_others_of_about_their_length() -> None:
    costs = curve({1: 0.018, 8: 0.084, 64: 0.377})
    for rows in range(400, 600, 7):
        costs.observe(rows, 0, 0.005 * rows)
    assert costs.seconds(1000, 0) == pytest.approx(5.0, rel=0.2)
    assert len(costs.to_json()[0]) == 4


@given(st.dictionaries(st.integers(1, 64), st.floats(1e-5, 10), min_size=1, max_size=8), st.integers(1, 600), st.integers(0, 200_000))
def test_every_expectation_is_a_positive_time(figures: dict[int, float], rows: int, context: int) -> None:
    assert 0 < curve(figures).seconds(rows, context) < 1e4


def test_one_stall_decides_nothing() -> None:
    costs = curve()
    before = {n: costs.seconds(n, 0) for n in range(1, 65)}
    costs.observe(4, 0, 60.0)
    for rows in range(1, 65):
        assert before[rows] * 0.99 <= costs.seconds(rows, 0) <= before[rows] * 1.15


@pytest.mark.parametrize("factor", [0.3, 3.0])
def test_a_lasting_change_is_learned(factor: float) -> None:
    costs = curve()
    for _ in range(200):
        costs.observe(4, 0, JAGGED[4] * factor)
    assert costs.seconds(4, 0) == pytest.approx(JAGGED[4] * factor, rel=0.05)


def test_a_machine_that_slows_down_takes_all_row_counts_along() -> None:
    """Most of the way; otherwise those that are never tried would begin to look good."""
    costs = curve()
    for _ in range(300):
        costs.observe(1, 0, 2 * JAGGED[1])
    for rows in (4, 16, 64):
        assert costs.seconds(rows, 0) > 1.5 * JAGGED[rows]


def test_noise_around_the_truth_leaves_the_truth() -> None:
    costs = curve()
    for i in range(300):
        costs.observe(1, 0, JAGGED[1] * (1.1 if i % 2 else 0.9))
    for rows in JAGGED:
        assert costs.seconds(rows, 0) == pytest.approx(JAGGED[rows], rel=0.1)


def test_a_longer_context_borrows_the_shape_and_keeps_its_own_level() -> None:
    costs = curve()
    far = CONTEXT_EDGES[2] + 1
    assert costs.seconds(16, far) == JAGGED[16]
    for _ in range(200):
        costs.observe(1, far, 2 * JAGGED[1])
    assert costs.seconds(1, far) == pytest.approx(2 * JAGGED[1], rel=0.05)
    assert costs.seconds(16, far) > 1.4 * costs.seconds(16, 0)


def test_costs_come_back_from_json_and_nonsense_stays_out() -> None:
    model = CostModel()
    for rows, seconds in JAGGED.items():
        model.target.set(rows, 3000, seconds)
        model.draft.set(rows, 0, seconds / 2)
    again = CostModel.from_json(json.loads(json.dumps(model.to_json())))
    assert again.to_json() == model.to_json() == model.copy().to_json()
    assert again.verify(4, 3000) == pytest.approx(model.verify(4, 3000), abs=1e-6)
    assert again.draft_step(0) == pytest.approx(JAGGED[1] / 2, abs=1e-6)
    assert again.catch_up(0, 0) == 0
    assert again.catch_up(64, 0) == pytest.approx(JAGGED[64] / 2, abs=1e-6)
    assert not CostModel.from_json({"target": [{"1": 0}, {"2": -1.0}], "draft": []}).target.known()
    for broken in ({}, {"target": 3, "draft": []}, {"target": [3], "draft": []}, {"target": [{"x": 1}], "draft": []}):
        with pytest.raises((KeyError, TypeError, ValueError, AttributeError)):
            CostModel.from_json(broken)


def test_a_copy_is_its_own() -> None:
    model = CostModel()
    model.target.set(1, 0, 0.03)
    copy = model.copy()
    copy.target.set(1, 0, 0.5)
    assert model.verify(1, 0) == 0.03


def test_a_streak_is_learned_in_a_few_readings_and_takes_the_other_blocks_along() -> None:
    """Another program takes a core: blocks of every length cost twice as much, one row does not."""
    costs = curve()
    for _ in range(6):
        costs.observe(4, 0, 2 * JAGGED[4])
    assert costs.seconds(4, 0) == pytest.approx(2 * JAGGED[4], rel=0.1)
    assert costs.seconds(16, 0) > 1.5 * JAGGED[16]
    assert costs.seconds(1, 0) == JAGGED[1]


def test_single_rows_as_expected_do_not_hide_that_blocks_cost_more() -> None:
    """Where drafting grows rare because it no longer pays, blocks of ever other lengths come one by one."""
    costs = curve()
    for rows in (4, 8, 12, 6, 16, 7):
        costs.observe(rows, 0, 4 * JAGGED.get(rows, curve().seconds(rows, 0)))
        costs.observe(1, 0, JAGGED[1])
    for rows in (4, 8, 16):
        assert costs.seconds(rows, 0) > 3 * JAGGED[rows]
    assert costs.seconds(1, 0) == pytest.approx(JAGGED[1])


def test_a_machine_that_slows_down_is_known_from_whatever_is_decoded() -> None:
    costs = curve()
    for rows in (4, 1, 8, 1, 16, 1):
        costs.observe(rows, 0, 2 * JAGGED[rows])
    assert costs.streak >= 3
    assert costs.seconds(1, 0) > 1.5 * JAGGED[1]
    assert costs.seconds(16, 0) > 1.5 * JAGGED[16]


def test_a_stall_is_none_the_worse_for_blocks_that_were_slow_long_ago() -> None:
    costs = curve()
    for _ in range(2):
        costs.observe(8, 0, 2 * JAGGED[8])
    for _ in range(10):
        for _ in range(40):
            costs.observe(1, 0, JAGGED[1])
        costs.observe(1, 0, 5 * JAGGED[1])
        assert costs.streak == 1
    assert costs.seconds(1, 0) < 1.05 * JAGGED[1]


def test_one_stall_does_not_make_plain_decoding_look_slow() -> None:
    costs = curve()
    costs.observe(1, 0, 30 * JAGGED[1])
    assert costs.seconds(1, 0) < 1.03 * JAGGED[1]
