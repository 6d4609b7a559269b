"""What the measured replies say: per category and per prompt, each mode against plain decoding. Pure.

Speeds drift with heat and with what else the machine does, so modes are compared in pairs: the ratio of a reply's
tokens/s to that of plain on the same prompt, turn and repeat, which ran moments apart. Reported are the median
ratio and, as its spread, the 10th and 90th percentile. Rates of tokens are pooled (sums over sums), so that long
replies count for what they are.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

PLAIN = "plain"
ALL = "all"
LOW, HIGH = 0.10, 0.90


@dataclass(frozen=True, slots=True)
class Measurement:
    """One reply: a row of the result."""

    question_id: str
    category: str
    turn: int
    mode: str
    repeat: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finish_reason: str
    tokens_per_second: float | None
    """None for a reply too short to have a speed."""
    ttft_ms: float | None
    prefill_tps: float | None
    decode_seconds: float
    outside_llama_share: float | None
    rounds: int
    drafted: int
    accepted: int
    tokens_per_round: float | None
    parked_rounds: int
    state: str
    text_sha256: str

    @property
    def twin(self) -> tuple[str, int, int]:
        """What this reply shares with the reply of another mode that it is compared with."""
        return (self.question_id, self.turn, self.repeat)


def by_category(rows: Sequence[Measurement]) -> dict[str, dict[str, Any]]:
    """`[category][mode]`, categories in order of appearance, then `all`."""
    return _grouped(rows, lambda row: row.category) | {ALL: _by_mode(rows)}


def by_prompt(rows: Sequence[Measurement]) -> dict[str, dict[str, Any]]:
    """`[question_id][mode]`."""
    return _grouped(rows, lambda row: row.question_id)


def summarise(rows: Sequence[Measurement], plain: Sequence[Measurement]) -> dict[str, Any]:
    """One mode's replies against those of plain among `plain` that they are twins of."""
    twins = {row.twin: row for row in plain}
    pairs = [(row, twins[row.twin]) for row in rows if row.twin in twins]
    ratios = [
        row.tokens_per_second / base.tokens_per_second
        for row, base in pairs
        if row.tokens_per_second and base.tokens_per_second
    ]
    drafted, rounds = sum(row.drafted for row in rows), sum(row.rounds for row in rows)
    return {
        "replies": len(rows),
        "tokens_per_second": _median(row.tokens_per_second for row in rows),
        "ratio_to_plain": {
            "median": _median(ratios), "low": quantile(ratios, LOW), "high": quantile(ratios, HIGH), "pairs": len(ratios),
        },
        "acceptance_rate": sum(row.accepted for row in rows) / drafted if drafted else None,
        "tokens_per_round": sum((row.tokens_per_round or 0) * row.rounds for row in rows) / rounds if rounds else None,
        "ttft_ms": _median(row.ttft_ms for row in rows),
        "outside_llama_share": _weighted((row.outside_llama_share, row.decode_seconds) for row in rows),
        "same_text_as_plain": sum(row.text_sha256 == base.text_sha256 for row, base in pairs) / len(pairs) if pairs else None,
    }


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value below which `share` of `values` lie, linear between neighbours; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def _grouped(rows: Sequence[Measurement], key: Callable[[Measurement], str]) -> dict[str, dict[str, Any]]:
    groups: dict[str, list[Measurement]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return {name: _by_mode(group) for name, group in groups.items()}


def _by_mode(rows: Sequence[Measurement]) -> dict[str, Any]:
    modes: dict[str, list[Measurement]] = defaultdict(list)
    for row in rows:
        modes[row.mode].append(row)
    return {mode: summarise(group, modes.get(PLAIN, [])) for mode, group in modes.items()}


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _weighted(pairs: Iterable[tuple[float | None, float]]) -> float | None:
    """The mean of the known values, each weighted by its time."""
    known = [(value, weight) for value, weight in pairs if value is not None and weight > 0]
    total = sum(weight for _, weight in known)
    return sum(value * weight for value, weight in known) / total if total else None
