"""Two results of the same prompts on the same machine: what got faster or slower beyond noise. Pure.

The runs did not take turns, so a machine that was slower on one of the days changes every speed. Each configuration is
therefore compared twice: its tokens/s, and how many times its baseline's those are (both measured in the same run, moments
apart), which the day does not change. Repeats are paired in their order; the interval is that of app/bench/statistics.py
over prompts and repeats. A change counts when that interval leaves out 1. There are many comparisons, so the intervals are
wide enough for all of them together: two runs of the same thing give a false alarm in one of twenty, at most.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from app.bench.manifest import differences
from app.bench.measurement import Measurement
from app.bench.plan import Configuration
from app.bench.result import Result
from app.bench.statistics import Ratio, by_category, paired, ratio_of

MUST_AGREE = (
    "machine.cpu", "machine.cores", "machine.memory_bytes", "machine.gpus", "machine.power", "prompts.sha256",
    "settings.sampling", "settings.loading.ctx", "settings.loading.threads",
)
"""Where these differ the two say nothing about what was changed in between."""
MAY_DIFFER = ("versions", "build", "models", "settings.loading", "settings.options.seed", "settings.options.rule")
"""Likely what was changed: told, not objected to."""
FAMILY_RISK = 0.05
"""Of one false alarm or more among all comparisons of two results."""
Measure = Literal["tokens/s", "x baseline"]
Verdict = Literal["faster", "slower", "no difference", "unclear"]


@dataclass(frozen=True, slots=True)
class Change:
    """One configuration in one category: B's speed over A's."""

    category: str
    config: str
    measure: Measure
    ratio: Ratio
    """Its intervals allow for the number of comparisons."""
    verdict: Verdict
    """`unclear`: a single prompt and repeat has no interval."""


def objections(a: Result, b: Result) -> list[str]:
    """Why the two should not be compared."""
    found = differences(a.manifest, b.manifest, MUST_AGREE)
    if not {config.name for config in a.configs} & {config.name for config in b.configs}:
        found.append("they have no configuration in common")
    return found


def what_changed(a: Result, b: Result) -> list[str]:
    """Versions, build, models and settings that are not the same."""
    return differences(a.manifest, b.manifest, MAY_DIFFER)


def changes(a: Result, b: Result) -> list[Change]:
    """Every configuration that both have, category by category."""
    groups_a, groups_b = by_category(a.rows), by_category(b.rows)
    both = {config.name for config in b.configs}
    compared: list[tuple[str, str, Measure, dict[tuple[str, int], list[float]]]] = []
    for category in [name for name in groups_a if name in groups_b]:
        rows_a, rows_b = groups_a[category], groups_b[category]
        for config in (config for config in a.configs if config.name in both):
            compared.append((category, config.name, "tokens/s", paired(_of(rows_b, config.name), _of(rows_a, config.name))))
            compared.append((category, config.name, "x baseline", _times_baseline(rows_a, rows_b, config)))
    compared = [entry for entry in compared if any(entry[-1].values())]
    level = 1 - FAMILY_RISK / max(1, len(compared))
    found = []
    for category, name, measure, ratios in compared:
        ratio = ratio_of(ratios, level)
        found.append(Change(category, name, measure, ratio, verdict(ratio)))
    return found


def verdict(ratio: Ratio) -> Verdict:
    """What the interval leaves open."""
    if ratio.low is None or ratio.high is None:
        return "unclear"
    return "faster" if ratio.low > 1 else "slower" if ratio.high < 1 else "no difference"


def _of(rows: Sequence[Measurement], config: str) -> list[Measurement]:
    return [row for row in rows if row.config == config]


def _times_baseline(
    rows_a: Sequence[Measurement], rows_b: Sequence[Measurement], config: Configuration
) -> dict[tuple[str, int], list[float]]:
    """By prompt: B's ratio to its own baseline over A's, repeats in their order."""
    if config.baseline is None:
        return {}
    ratios = [
        paired(_of(rows, config.name), _of(rows, config.baseline)) for rows in (rows_a, rows_b)
    ]
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for prompt in ratios[0].keys() & ratios[1].keys():
        found[prompt] = [after / before for before, after in zip(ratios[0][prompt], ratios[1][prompt], strict=False)]
    return dict(sorted(found.items()))
