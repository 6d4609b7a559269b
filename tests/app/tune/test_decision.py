"""When a difference in time counts: never by chance more often than claimed, and found when it is there."""

from __future__ import annotations

import numpy as np
import pytest

from app.tune.decision import Gain, gain_of, pairs_needed


def test_the_interval_is_made_of_ranks() -> None:
    now = [1.0] * 12
    tried = [0.80 + 0.01 * i for i in range(12)]
    gain = gain_of(now, tried, 0.99)
    assert gain is not None
    assert (gain.low, gain.high, gain.pairs) == (pytest.approx(0.81), pytest.approx(0.90), 12)  # 2 P(Bin(12) < 2) = 0.63 %
    assert gain.ratio == pytest.approx(0.855)
    assert gain.beats_the_noise
    assert gain.in_words() == "-14.5 % (-19.0 to -10.0)"


def test_too_few_pairs_prove_nothing() -> None:
    assert pairs_needed(0.99) == 8
    assert gain_of([1.0] * 7, [0.5] * 7, 0.99) is None
    assert gain_of([1.0] * 8, [0.5] * 8, 0.99) is not None


@pytest.mark.parametrize(("tried", "beats"), [(0.985, True), (0.995, False), (1.2, False)])
def test_a_gain_must_be_worth_having(tried: float, beats: bool) -> None:
    gain = gain_of([1.0] * 12, [tried] * 12, 0.99)
    assert gain is not None
    assert gain.beats_the_noise is beats


def test_an_interval_that_reaches_the_present_way_is_no_gain() -> None:
    assert not Gain(0.8, 0.7, 1.0, 0.99, 12).beats_the_noise


def test_noise_alone_is_seldom_taken_for_a_gain_and_a_real_gain_is_found() -> None:
    """Heavy tails: now and then another program takes the cores."""
    rng = np.random.default_rng(0)

    def times(mean: float) -> list[float]:
        return [float(t) for t in mean * rng.lognormal(0, 0.05, 20) * (1 + 0.5 * (rng.random(20) < 0.05))]

    false = sum(bool((g := gain_of(times(1.0), times(1.0), 0.99)) and g.beats_the_noise) for _ in range(2000))
    found = sum(bool((g := gain_of(times(1.0), times(0.88), 0.99)) and g.beats_the_noise) for _ in range(300))
    assert false / 2000 <= 0.008
    assert found / 300 >= 0.9
