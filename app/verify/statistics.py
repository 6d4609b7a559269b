"""Tests and intervals of `verify`. Pure, and seeded: the same counts give the same answer.

p-values are exact rather than asymptotic where that matters: Pearson's statistic is compared with simulated draws from
the very law it tests, so that cells expected only five times do not spoil a false-alarm rate of one in thousands.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.bench.statistics import student

LEAST_EXPECTED = 5.0
"""Outcomes expected fewer times are counted together."""
SIMULATIONS = 100_000
"""The smallest p-value that can come out is one part in this many."""
_CHUNK = 10_000
FEWEST_PAIRS = 4

Outcome = TypeVar("Outcome", bound=Hashable)


@dataclass(frozen=True, slots=True)
class ChiSquare:
    """Pearson's test of counts against a law."""

    statistic: float
    cells: int
    samples: int
    p_value: float


def chi_square(counts: Counter[Outcome], law: Mapping[Outcome, float]) -> ChiSquare | None:
    """Whether `counts` look drawn from `law` (probabilities that sum to 1). None where fewer than two cells are left."""
    total = counts.total()
    large = [outcome for outcome, p in law.items() if p * total >= LEAST_EXPECTED]
    observed = [counts[outcome] for outcome in large]
    probabilities = [law[outcome] for outcome in large]
    rest = 1.0 - sum(probabilities)
    others = total - sum(observed)
    if rest * total >= LEAST_EXPECTED:
        observed.append(others)
        probabilities.append(rest)
    elif others or rest > 0:  # too little for a cell of its own: together with the smallest that has one
        if not large:
            return None
        smallest = min(range(len(large)), key=lambda i: probabilities[i])
        observed[smallest] += others
        probabilities[smallest] += rest
    if len(observed) < 2:
        return None
    p = np.array(probabilities)
    p /= p.sum()
    statistic = float(_pearson(np.array([observed]), p, total)[0])
    return ChiSquare(statistic, len(observed), total, _simulated(statistic, p, total))


def _pearson(counts: NDArray[np.int64], p: NDArray[np.float64], total: int) -> NDArray[np.float64]:
    expected = p * total
    result: NDArray[np.float64] = (((counts - expected) ** 2) / expected).sum(axis=1)
    return result


def _simulated(statistic: float, p: NDArray[np.float64], total: int) -> float:
    rng = np.random.default_rng(0)
    above = 0
    for _ in range(SIMULATIONS // _CHUNK):
        above += int((_pearson(rng.multinomial(total, p, size=_CHUNK), p, total) >= statistic * (1 - 1e-12)).sum())
    return (1 + above) / (1 + SIMULATIONS)


def poisson_tail(count: int, mean: float) -> float:
    """P(X >= count) for a Poisson X of this mean: an upper bound for sums of many small independent chances, nearly."""
    if count <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    if count <= mean:
        return max(0.0, 1.0 - math.fsum(_poisson(k, mean) for k in range(count)))
    tail, term, k = 0.0, _poisson(count, mean), count  # what is small is added up, not taken from 1
    while term > 1e-18 * tail:
        tail += term
        k += 1
        term *= mean / k
    return min(1.0, tail)


def _poisson(k: int, mean: float) -> float:
    """By logarithms: exp(-mean) is 0 from a mean of 746 on, which a long run expects."""
    return math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))


def holm(p_values: Sequence[float], level: float) -> list[bool]:
    """Which hypotheses Holm's method rejects: all of them together give a false alarm with chance `level` at most."""
    rejected = [False] * len(p_values)
    for rank, i in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        if p_values[i] > level / (len(p_values) - rank):
            break
        rejected[i] = True
    return rejected


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and its 95 % interval."""

    value: float
    low: float
    high: float


def difference(ours: Sequence[tuple[float, int]], theirs: Sequence[tuple[float, int]]) -> Interval | None:
    """Of two means over tokens, from pairs of replies given as (sum, tokens): ours minus theirs. None of fewer than
    FEWEST_PAIRS.

    Replies count, not tokens: each pair's share in the difference is one observation (the linearised ratio of sums), and
    Student's distribution allows for there being few. A bootstrap over eight pairs would be a third too narrow.
    """
    a, b = np.array(ours, dtype=float).reshape(-1, 2), np.array(theirs, dtype=float).reshape(-1, 2)
    n = len(a)
    if n < FEWEST_PAIRS or n != len(b) or not a[:, 1].sum() or not b[:, 1].sum():
        return None
    value = float(a[:, 0].sum() / a[:, 1].sum() - b[:, 0].sum() / b[:, 1].sum())
    shares = _linearised(a) - _linearised(b)
    margin = student(n - 1, 0.975) * float(shares.std(ddof=1)) / math.sqrt(n)
    return Interval(value, value - margin, value + margin)


def _linearised(replies: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) how far each reply moves the mean over tokens, times n."""
    mean = replies[:, 0].sum() / replies[:, 1].sum()
    result: NDArray[np.float64] = (replies[:, 0] - mean * replies[:, 1]) / replies[:, 1].mean()
    return result
