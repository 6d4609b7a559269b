"""What a reply may lose, who may risk it, and when surprises are too many for chance."""

from __future__ import annotations

import math

import numpy as np
import pytest

from engine.guard import CREDIT, MOST, MOST_SHARE, SHARE, STAKE, WON_MOST, Guard, _growth


def started() -> Guard:
    guard = Guard()
    guard.begin()
    return guard


def block(worst: float, chance: float, evidence: float, guard: Guard) -> bool:
    """Whether a block of 16 that loses `worst` at worst may be risked."""
    n = np.arange(1, 17)
    return bool(guard.may(np.linspace(worst / 16, worst, 16), chance**n, evidence)[-1])


def test_a_long_reply_may_lose_more_and_never_the_last_share() -> None:
    guard = started()
    assert guard.balance == STAKE
    guard.settle(1000, None)
    assert guard.balance == pytest.approx(1000 * SHARE)
    assert STAKE < MOST < 0.03 * 200
    assert SHARE < MOST_SHARE < 0.03


def test_what_was_won_may_be_lost_again_but_not_all_of_it() -> None:
    guard = started()
    for _ in range(100):
        guard.settle(5, 3.0)
    assert guard.ahead == WON_MOST


def test_a_dear_block_needs_good_odds_and_evidence_for_them() -> None:
    guard = started()
    assert block(0.2, 0.01, 0, guard), "small change may be risked on anything"
    assert block(5.0, 0.97, 60, guard)
    assert not block(5.0, 0.9, 60, guard), "it keeps 7.3 of 16 on average, and loses all too often"
    assert block(5.0, 0.94, 60, guard)
    assert not block(5.0, 0.94, 0, guard), "nobody has seen it yet"
    assert not block(MOST + 0.1, 0.9999, 1000, guard)


@pytest.mark.parametrize("chance", [0.0, 0.3, 0.9, 1.0])
def test_no_sequence_of_bad_luck_loses_more_than_the_most(chance: float) -> None:
    """Whatever the chances were thought to be: every block that may be risked is lost whole."""
    guard, worst = started(), np.linspace(0.3, 12, 40)
    for _ in range(300):
        allowed = np.flatnonzero(guard.may(worst, chance ** np.arange(1, 41), 1000.0))
        guard.settle(1, -float(worst[allowed[-1]]) if len(allowed) else None)
        assert -guard.ahead <= max(MOST, MOST_SHARE * guard.written)
    assert guard.written == 300


def test_a_draft_that_has_proved_itself_may_read_a_little_more_than_others() -> None:
    worst, survival = np.array([0.8]), np.array([0.95])
    reading = MOST + CREDIT - 0.9
    assert not started().may(worst, survival, 60, reading).any()
    guard = started()
    guard.trust(reading)
    assert guard.may(worst, survival, 60, reading).all()
    assert not guard.may(worst, survival, 60, reading + 0.2).any(), "the bound moves by CREDIT, not by what reading takes"
    guard.settle(1, -MOST)
    guard.begin()
    assert guard.balance == STAKE


def test_kelly_s_rule_weighs_every_way_a_block_may_end() -> None:
    """Against the definition: the mean of log(1 + win / purse) over how many are kept."""
    worst, survival, purse = np.array([0.5, 1.5, 2.5]), np.array([0.8, 0.6, 0.5]), 4.0
    ends = {1: [0.2, 0.8], 2: [0.2, 0.2, 0.6], 3: [0.2, 0.2, 0.1, 0.5]}
    expected = [
        sum(p * math.log(1 + (kept - worst[n - 1]) / purse) for kept, p in enumerate(chances)) for n, chances in ends.items()
    ]
    assert _growth(worst, survival, purse) == pytest.approx(expected)


def test_running_out_is_said_once() -> None:
    guard = started()
    said = []
    for _ in range(4):
        guard.action = None
        guard.settle(1, -2.0)
        said.append(guard.action)
    assert [bool(line) for line in said] == [False, False, True, False]
    assert "parked" in str(said[2])


def test_three_sure_candidates_refused_in_a_row_are_no_chance() -> None:
    guard = started()
    guard.settle(10, 10.0)
    assert [guard.surprised("draft", 0.98, 0.0) for _ in range(3)] == [False, False, True]
    assert guard.ahead == 0.0, "what was won before is no longer there to lose"


@pytest.mark.parametrize("chance", [0.5, 0.8, 0.95])
def test_a_draft_that_is_as_good_as_expected_hardly_ever_raises_the_alarm(chance: float) -> None:
    guard, rng = started(), np.random.default_rng(0)
    alarms = sum(guard.surprised("draft", chance, float(rng.random() < chance)) for _ in range(20_000))
    assert alarms < 60
