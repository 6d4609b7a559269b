"""Whether one way of running is faster than another, from pairs of times taken in turns. Pure.

The interval of the median ratio comes from signs and ranks alone: for n pairs, the k-th smallest and k-th largest ratio
enclose the median with probability 1 - 2 P(Binomial(n, 1/2) < k), whatever the noise looks like. (It may be skewed, and
heavy in the tails, when another program takes the cores for a moment.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

LEAST_GAIN = 0.01
"""A gain below this share is left alone even where it is certain: it is not worth a different way of running."""
FAMILY_RISK = 0.05
"""Chance that any of the changes of one run is made although nothing is faster."""


@dataclass(frozen=True, slots=True)
class Gain:
    """How much longer the tried way takes, as a ratio to the present one: below 1 is faster."""

    ratio: float
    """Median over the pairs."""
    low: float
    high: float
    confidence: float
    pairs: int

    @property
    def beats_the_noise(self) -> bool:
        """The whole interval is on the faster side, and the gain is worth having."""
        return self.high < 1.0 and self.ratio <= 1.0 - LEAST_GAIN

    def in_words(self) -> str:
        """`-12.0 % (-14.1 to -9.8)`."""
        return f"{100 * (self.ratio - 1):+.1f} % ({100 * (self.low - 1):+.1f} to {100 * (self.high - 1):+.1f})"


def gain_of(now: Sequence[float], tried: Sequence[float], confidence: float) -> Gain | None:
    """From seconds of both, pair by pair. None when there are too few pairs for that confidence."""
    ratios = sorted(b / a for a, b in zip(now, tried, strict=True))
    n = len(ratios)
    k = _rank(n, 1 - confidence)
    if k < 1:
        return None
    return Gain(median(ratios), ratios[k - 1], ratios[n - k], confidence, n)


def pairs_needed(confidence: float) -> int:
    """Fewest pairs that give an interval at all."""
    return 1 + math.ceil(-math.log2(1 - confidence))


def _rank(n: int, risk: float) -> int:
    """The largest k with 2 P(Binomial(n, 1/2) < k) <= risk; 0 if there is none."""
    k, below = 0, 0.0
    while k < n // 2 + 1:
        below += math.comb(n, k) / 2.0**n
        if 2 * below > risk:
            break
        k += 1
    return k
