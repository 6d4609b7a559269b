"""What the measured replies say: each configuration against its baseline, by category and by prompt. Pure.

Speeds drift with heat and with what else the machine does, so configurations are compared in pairs: the ratio of a
reply's tokens/s to that of the baseline on the same prompt, turn and repeat, which ran moments apart. A prompt counts once,
with the median over its repeats; a category's ratio is the median over its prompts. Two bootstrap intervals (95 %, seeded)
stand beside it:

- `low`, `high`: prompts drawn anew, and the repeats of each: what other prompts of that kind would be likely to give;
- `noise_low`, `noise_high`: the same prompts, only their repeats drawn anew: how well *these* are measured. It needs two
  repeats. More repeats narrow it, and a run repeats until it is narrow.

A repeat is drawn as the prompt's own value and a deviation taken from all prompts of the category (in logarithms, widened by
sqrt(n/(n-1)) because they are deviations from a mean of n), as two or three repeats of one prompt say little. Few deviations
tell little of how far others would go: they are widened once more, as Student's distribution is wider than the normal one.

Simulated, with noise of 3 %, prompts that differ by 10 %, and a run that stops once it is precise enough: the noise interval
holds the truth in 91 to 99 % of runs, the other in 95 to 97 % from five prompts on (in 90 % with three, 75 % with two: their
median can be anywhere). Stopping by the width does not move the ratio, because the width does not know the ratio.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.bench.measurement import Measurement

ALL = "all"
RESAMPLES, MOST_RESAMPLES = 2000, 20_000
"""For LEVEL, and for levels above it, whose quantiles lie far out."""
LEVEL = 0.95
SEED = 20_240_229
TAIL = 0.10
"""The share of prompts beyond which the tail is told."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as fast. Nothing is known of an empty comparison."""

    median: float | None = None
    low: float | None = None
    high: float | None = None
    noise_low: float | None = None
    noise_high: float | None = None
    worst: float | None = None
    """Of the prompts."""
    worst_prompt: str | None = None
    tail: float | None = None
    """The quantile TAIL over the prompts."""
    prompts: int = 0
    pairs: int = 0

    @property
    def precision(self) -> float | None:
        """Half the width of the noise interval, as a share of the median; None where there is no interval."""
        if self.median is None or self.noise_low is None or self.noise_high is None:
            return None
        return (self.noise_high - self.noise_low) / 2 / self.median


def ratio_of(ratios: Mapping[tuple[str, int], Sequence[float]], level: float = LEVEL) -> Ratio:
    """The statistics of paired ratios, given by prompt (question_id, turn). level: of both intervals."""
    logs = {prompt: np.log(np.asarray(values, dtype=np.float64)) for prompt, values in ratios.items() if len(values)}
    if not logs:
        return Ratio()
    centres = np.array([np.median(values) for values in logs.values()])
    worst = int(centres.argmin())
    several = any(len(values) > 1 for values in logs.values())
    low, high = _interval(logs, centres, level, prompts=True) if len(logs) > 1 else (None, None)
    noise = _interval(logs, centres, level, prompts=False) if several else (None, None)
    if low is None:
        low, high = noise
    return Ratio(
        median=float(np.exp(np.median(centres))), low=low, high=high, noise_low=noise[0], noise_high=noise[1],
        worst=float(np.exp(centres[worst])), worst_prompt=list(logs)[worst][0], tail=float(np.exp(np.quantile(centres, TAIL))),
        prompts=len(logs), pairs=sum(len(values) for values in logs.values()),
    )


def paired(rows: Iterable[Measurement], base: Iterable[Measurement]) -> dict[tuple[str, int], list[float]]:
    """The ratios of speed of those rows that have a twin in `base`, by prompt. Replies too short for a speed are left out."""
    twins = {row.twin: row.tokens_per_second for row in base if row.tokens_per_second}
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for row in rows:
        if row.tokens_per_second and (other := twins.get(row.twin)):
            found[row.prompt].append(row.tokens_per_second / other)
    return dict(found)


def compare(rows: Sequence[Measurement], left: str, right: str) -> Ratio:
    """How many times as fast `left` is as `right`, both names of configurations."""
    return ratio_of(paired((r for r in rows if r.config == left), (r for r in rows if r.config == right)))


def by_category(rows: Sequence[Measurement]) -> dict[str, list[Measurement]]:
    """The rows of each category in order of appearance, then `all` if there are several."""
    groups = grouped(rows, lambda row: row.category)
    return groups | {ALL: list(rows)} if len(groups) > 1 else groups


def grouped(rows: Iterable[Measurement], key: Any) -> dict[Any, list[Measurement]]:
    """The rows by `key(row)`, keys in order of appearance."""
    groups: dict[Hashable, list[Measurement]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return dict(groups)


def over(amount: float, divisor: float | None) -> float | None:
    """The quotient, where there is one: replies may be empty."""
    return amount / divisor if divisor else None


def quantile(values: Iterable[float | None], share: float) -> float | None:
    """The value below which `share` of the known values lie, linear between neighbours; None of nothing."""
    known = [value for value in values if value is not None]
    return float(np.quantile(known, share)) if known else None


def _interval(
    logs: Mapping[Any, NDArray[np.float64]], centres: NDArray[np.float64], level: float, *, prompts: bool
) -> tuple[float, float]:
    """Between which factors the category's ratio lies as other repeats, and with `prompts` other prompts, might give it."""
    rng = np.random.default_rng(SEED)
    deviations = [
        (values - centre) * np.sqrt(len(values) / (len(values) - 1))
        for values, centre in zip(logs.values(), centres, strict=True) if len(values) > 1
    ]
    freedom = sum(len(values) - 1 for values in deviations)
    pool = np.concatenate(deviations) * wider_than_normal(freedom, level) if deviations else np.zeros(1)
    drawn = np.empty((RESAMPLES if level <= LEVEL else MOST_RESAMPLES, len(centres)))
    for column, (centre, values) in enumerate(zip(centres, logs.values(), strict=True)):
        drawn[:, column] = centre + np.median(rng.choice(pool, (len(drawn), len(values))), axis=1)
    if prompts:
        drawn = np.take_along_axis(drawn, rng.integers(len(centres), size=drawn.shape), axis=1)
    low, high = np.exp(np.quantile(np.median(drawn, axis=1), [(1 - level) / 2, (1 + level) / 2]))
    return float(low), float(high)


def wider_than_normal(freedom: int, level: float) -> float:
    """How many times as wide an interval of this level is with so many degrees of freedom (at least 1) as with endlessly many."""
    p = (1 + level) / 2
    z = NormalDist().inv_cdf(p)
    return student(freedom, p) / z


def student(freedom: int, p: float) -> float:
    """The quantile of Student's distribution at p above 1/2: for up to 30 degrees from its distribution function (to 1e-9),
    beyond by the expansion around the normal one (within 0.1 % up to p = 0.9999)."""
    if freedom > 30:
        z, v = NormalDist().inv_cdf(p), float(freedom)
        return (
            z + (z**3 + z) / (4 * v) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
            + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
        )
    low, high = 0.0, math.pi / 2
    while high - low > 1e-14:
        middle = (low + high) / 2
        low, high = (middle, high) if _central(freedom, middle) < 2 * p - 1 else (low, middle)
    return math.sqrt(freedom) * math.tan((low + high) / 2)


def _central(freedom: int, angle: float) -> float:
    """The probability that |t| < sqrt(freedom) * tan(angle): a finite sum for whole degrees of freedom (Abramowitz and
    Stegun 26.7.3 and 26.7.4)."""
    odd = freedom % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0 if freedom == 1 else term
    for k in range(2 + odd, freedom - 1, 2):
        term *= (k - 1) / k * math.cos(angle) ** 2
        total += term
    return (angle + math.sin(angle) * total) * 2 / math.pi if odd else math.sin(angle) * total
