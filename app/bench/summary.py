"""The figures of one configuration over a group of replies: speed, delay, drafting, energy, memory. Pure.

Counts are pooled (sums over sums), so that long replies count for what they are; times are medians over replies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from app.bench.measurement import Measurement
from app.bench.plan import PLAIN, Configuration
from app.bench.statistics import by_category, grouped, over, paired, quantile, ratio_of

PARTS = ("draft", "target", "sampling", "other")


def summaries(rows: Sequence[Measurement], configs: Sequence[Configuration]) -> dict[str, dict[str, Any]]:
    """`[category][configuration]`: categories in order of appearance and `all`, configurations in the order of the plan."""
    return {category: _each(group, configs) for category, group in by_category(rows).items()}


def prompt_summaries(rows: Sequence[Measurement], configs: Sequence[Configuration]) -> dict[str, dict[str, Any]]:
    """`[question_id][configuration]`."""
    return {question: _each(group, configs) for question, group in grouped(rows, lambda row: row.question_id).items()}


def _each(rows: Sequence[Measurement], configs: Sequence[Configuration]) -> dict[str, Any]:
    groups = grouped(rows, lambda row: row.config)
    found = {}
    for config in configs:
        if config.name in groups:
            found[config.name] = summarise(groups[config.name], groups.get(config.baseline or "", []))
            if config.mode == PLAIN:  # another target or length need not write the same
                found[config.name]["same_text_as_baseline"] = None
    return found


def summarise(rows: Sequence[Measurement], base: Sequence[Measurement]) -> dict[str, Any]:
    """One configuration's replies, against those of its baseline that they are twins of."""
    twins = {row.twin: row for row in base}
    pairs = [(row, twins[row.twin]) for row in rows if row.twin in twins]
    drafted, rounds = sum(row.drafted for row in rows), sum(row.rounds for row in rows)
    kept = positions(rows)
    energy = [(row.energy_joules, row.completion_tokens, _seconds(row)) for row in rows if row.energy_joules]
    joules = sum(used for used, _, _ in energy)
    return {
        "replies": len(rows),
        "tokens_per_second": quantile((row.tokens_per_second for row in rows), 0.5),
        "ratio": asdict(ratio_of(paired(rows, base))),
        "acceptance_rate": sum(row.accepted for row in rows) / drafted if drafted else None,
        "acceptance_by_position": kept,
        "acceptance_by_drafter": {who: _acceptance(rows, who) for who in ("model", "ngram")},
        "tokens_per_round": sum((row.tokens_per_round or 0) * row.rounds for row in rows) / rounds if rounds else None,
        "ttft_ms": {"median": quantile((row.ttft_ms for row in rows), 0.5), "p95": quantile((row.ttft_ms for row in rows), 0.95)},
        "itl_ms": {p: quantile((row.itl_ms.get(p) for row in rows), 0.5) for p in ("p50", "p95", "p99")},
        "time_share": _time_share(rows),
        "outside_llama_share": _weighted(rows),
        "joules_per_token": over(joules, sum(tokens for _, tokens, _ in energy)) if energy else None,
        "watts": over(joules, sum(seconds for _, _, seconds in energy)),
        "peak_rss_bytes": max((row.peak_rss_bytes for row in rows if row.peak_rss_bytes), default=None),
        "parked_share": sum(row.parked_rounds for row in rows) / rounds if rounds else None,
        "same_text_as_baseline": sum(row.text_sha256 == other.text_sha256 for row, other in pairs) / len(pairs) if pairs else None,
    }


def positions(rows: Sequence[Measurement]) -> list[float]:
    """For the candidates at position 1, 2, ... of a block: the share that was kept, of those that came to be judged."""
    drafted = [sum(column) for column in zip_longest(*(row.drafted_by_position for row in rows), fillvalue=0)]
    kept = [sum(column) for column in zip_longest(*(row.accepted_by_position for row in rows), fillvalue=0)]
    return [k / d for k, d in zip_longest(kept, drafted, fillvalue=0) if d]


def _acceptance(rows: Sequence[Measurement], drafter: str) -> float | None:
    own = [row.by_drafter[drafter] for row in rows if drafter in row.by_drafter]
    drafted = sum(part["drafted"] for part in own)
    return sum(part["accepted"] for part in own) / drafted if drafted else None


def _seconds(row: Measurement) -> float:
    return row.decode_seconds + (row.ttft_ms or 0.0) / 1000


def _time_share(rows: Sequence[Measurement]) -> dict[str, float] | None:
    totals = {part: sum(row.time_ms.get(part) or 0.0 for row in rows) for part in PARTS}
    total = sum(totals.values())
    return {part: value / total for part, value in totals.items()} if total else None


def _weighted(rows: Sequence[Measurement]) -> float | None:
    """The share of time outside llama.cpp, each reply weighted by its time."""
    known = [(row.outside_llama_share, row.decode_seconds) for row in rows if row.outside_llama_share is not None]
    total = sum(weight for _, weight in known)
    return sum(share * weight for share, weight in known) / total if total else None
