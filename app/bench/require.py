"""Decision rules, fixed before the measuring: `auto>=0.97*plain in every category`. Pure.

    LEFT >= [FACTOR *] RIGHT [in every category | in every prompt | in CATEGORY | overall] [by interval]

LEFT and RIGHT are names of configurations; `>` and `>=` are known; without a place it is `overall`. A rule is judged by the
median of the paired ratio LEFT / RIGHT; with `by interval` the whole 95 % noise interval must lie on the right side, so that
what was measured too roughly fails. What was not measured fails too.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.bench.measurement import Measurement
from app.bench.statistics import ALL, Ratio, by_category, compare, grouped
from app.errors import AppError

EVERY_CATEGORY, EVERY_PROMPT = "every category", "every prompt"
_NUMBER = re.compile(r"\d+(\.\d+)?|\.\d+")
_RULE = re.compile(r"(?P<left>\S+)\s*(?P<sign>>=|>)\s*(?:(?P<factor>[^\s*]+)\s*\*\s*)?(?P<right>\S+)(?P<rest>(?:\s+.*)?)")


@dataclass(frozen=True, slots=True)
class Rule:
    """One requirement. `place` is EVERY_CATEGORY, EVERY_PROMPT, ALL or a category."""

    text: str
    left: str
    right: str
    factor: float = 1.0
    strict: bool = False
    """`>` instead of `>=`."""
    place: str = ALL
    by_interval: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a rule turned out at one place."""

    rule: str
    place: str
    holds: bool
    words: str


def parse_rule(text: str, configs: Collection[str], categories: Collection[str]) -> Rule:
    """Raises AppError that says what is wrong and what is known."""
    found = _RULE.fullmatch(" ".join(text.split()))
    if found is None:
        raise AppError(f"--require {text!r}: a rule looks like \"auto>=0.97*plain in every category\"")
    left, right, factor = found["left"], found["right"], found["factor"] or "1"
    if not _NUMBER.fullmatch(factor) or float(factor) == 0:
        raise AppError(f"--require {text!r}: {factor!r} is not a positive number")
    for name in (left, right):
        if name not in configs:
            raise AppError(f"--require {text!r}: nothing called {name!r} is measured; there is {', '.join(configs)}")
    if left == right:
        raise AppError(f"--require {text!r}: {left} is compared with itself")
    rest = found["rest"].strip()
    by_interval = rest == "by interval" or rest.endswith(" by interval")
    place = rest.removesuffix("by interval").strip().removeprefix("in ")
    place = ALL if place in ("", "overall") else place
    if place not in (EVERY_CATEGORY, EVERY_PROMPT, ALL) and place not in categories:
        raise AppError(
            f"--require {text!r}: {rest!r} is no place; say `in every category`, `in every prompt`, `overall`, "
            f"or `in` one of {', '.join(categories)}"
        )
    return Rule(text, left, right, float(factor), found["sign"] == ">", place, by_interval)


def judge(rule: Rule, rows: Sequence[Measurement], categories: Sequence[str]) -> list[Verdict]:
    """One verdict for each place the rule speaks of; `categories` are all that were to be measured."""
    if rule.place == EVERY_CATEGORY:
        groups = by_category(rows)
        places = {category: groups.get(category, []) for category in categories}
    elif rule.place == EVERY_PROMPT:
        places = grouped(rows, lambda row: row.question_id) or {rule.place: []}
    elif rule.place == ALL:
        places = {ALL: list(rows)}
    else:
        places = {rule.place: [row for row in rows if row.category == rule.place]}
    return [_verdict(rule, place, compare(group, rule.left, rule.right)) for place, group in places.items()]


def _verdict(rule: Rule, place: str, ratio: Ratio) -> Verdict:
    if ratio.median is None:
        return Verdict(rule.text, place, False, "not measured")
    words = f"{rule.left} is {ratio.median:.3f} times {rule.right}"
    interval = None if ratio.noise_low is None else (ratio.noise_low, ratio.noise_high)
    if interval is not None:
        words += f" ({interval[0]:.3f}-{interval[1]:.3f})"
    if rule.by_interval and interval is None:
        return Verdict(rule.text, place, False, f"{words}, but one repeat has no interval")
    deciding = interval[0] if rule.by_interval and interval is not None else ratio.median
    assert deciding is not None
    holds = deciding > rule.factor if rule.strict else deciding >= rule.factor
    if interval is not None and not rule.by_interval and interval[0] <= rule.factor <= (interval[1] or 0.0):
        words += f"; {rule.factor:g} lies within the noise"
    return Verdict(rule.text, place, holds, words)
