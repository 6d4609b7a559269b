"""The tests and intervals of `verify`: against scipy, and by their own claims on simulated data."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from scipy import stats

from app.verify import statistics
from app.verify.statistics import chi_square, difference, holm, poisson_tail


def drawn(law: dict[str, float], n: int, seed: int) -> Counter[str]:
    rng = np.random.default_rng(seed)
    return Counter(dict(zip(law, rng.multinomial(n, list(law.values())).tolist(), strict=True)))


LAW = {"a": 0.5, "b": 0.2, "c": 0.15, "d": 0.1, "e": 0.03, "f": 0.02}


def test_chi_square_agrees_with_the_asymptotic_test_where_counts_are_large() -> None:
    for seed in range(5):
        counts = drawn(LAW, 5000, seed)
        found = chi_square(counts, LAW)
        expected = stats.chisquare(list(counts.values()), [5000 * p for p in LAW.values()])
        assert found is not None
        assert found.cells == 6
        assert math.isclose(found.statistic, expected.statistic, rel_tol=1e-9)
        assert math.isclose(found.p_value, expected.pvalue, abs_tol=0.02)


def test_small_cells_are_counted_together() -> None:
    found = chi_square(drawn(LAW, 100, 1), LAW)
    assert found is not None
    assert found.cells == 5  # e and f expect 3 and 2: together 5
    found = chi_square(drawn(LAW, 60, 1), LAW)
    assert found is not None
    assert found.cells == 4  # together still too few: they join the smallest


def test_a_law_too_certain_or_samples_too_few_are_no_test() -> None:
    assert chi_square(Counter({"a": 100}), {"a": 1.0}) is None
    assert chi_square(Counter({"a": 3}), LAW) is None


def test_false_alarms_are_as_rare_as_claimed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "SIMULATIONS", 2000)
    monkeypatch.setattr(statistics, "_CHUNK", 2000)
    p_values = [test.p_value for seed in range(200) if (test := chi_square(drawn(LAW, 200, seed), LAW))]
    assert 0.01 <= np.mean(np.array(p_values) < 0.05) <= 0.09


def test_another_law_is_found() -> None:
    other = {"a": 0.3, "b": 0.3, "c": 0.2, "d": 0.1, "e": 0.05, "f": 0.05}
    found = chi_square(drawn(other, 400, 0), LAW)
    assert found is not None
    assert found.p_value < 1e-4


@pytest.mark.parametrize(("count", "mean"), [(0, 0.0), (1, 0.5), (3, 0.5), (10, 12.0), (40, 10.0), (5, 1e-6), (300, 250.0), (900, 800.0), (700, 800.0)])
def test_the_poisson_tail_is_scipy_s(count: int, mean: float) -> None:
    assert math.isclose(poisson_tail(count, mean), stats.poisson.sf(count - 1, mean), rel_tol=1e-6, abs_tol=1e-15)
    assert poisson_tail(1, 0.0) == 0.0


def test_holm_steps_down() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05) == [True, False, False, True]
    assert holm([0.02, 0.01], 0.05) == [True, True]
    assert holm([], 0.05) == []


@pytest.mark.parametrize("pairs", [5, 30])
def test_the_difference_of_means_over_tokens_has_an_interval_that_covers_it(pairs: int) -> None:
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(400):
        tokens = rng.integers(20, 60, size=pairs)
        shared = rng.normal(-1, 0.5, size=pairs)
        ours = [(float((m + 0.1 + e) * n), int(n)) for m, e, n in zip(shared, rng.normal(0, 0.2, pairs), tokens, strict=True)]
        theirs = [(float(m * n), int(n)) for m, n in zip(shared, tokens, strict=True)]
        interval = difference(ours, theirs)
        assert interval is not None
        covered += interval.low <= 0.1 <= interval.high
    assert 0.92 <= covered / 400 <= 0.985


def test_few_pairs_have_no_interval_and_equal_ones_no_width() -> None:
    assert difference([], []) is None
    assert difference([(-10.0, 10)] * 3, [(-11.0, 10)] * 3) is None
    same = difference([(-10.0, 10)] * 4, [(-10.0, 10)] * 4)
    assert same is not None
    assert (same.value, same.low, same.high) == (0.0, 0.0, 0.0)
