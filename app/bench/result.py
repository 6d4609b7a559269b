"""The result of a comparison: the JSON document and the table on the screen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from app.bench.runner import Skipped
from app.bench.statistics import HIGH, LOW, PLAIN, Measurement, by_category, by_prompt

if TYPE_CHECKING:
    from rich.table import Table


def document(
    manifest: Mapping[str, Any], rows: Sequence[Measurement], skipped: Sequence[Skipped], *, complete: bool
) -> dict[str, Any]:
    """Everything: what it was made with, each reply, and what they say together."""
    return {
        "manifest": dict(manifest),
        "complete": complete,
        "ratio_to_plain": f"paired by prompt, turn and repeat; low and high are the {LOW:.0%} and {HIGH:.0%} quantiles",
        "by_category": by_category(rows),
        "by_prompt": by_prompt(rows),
        "skipped": [asdict(skip) for skip in skipped],
        "rows": [asdict(row) | {"acceptance_rate": row.accepted / row.drafted if row.drafted else None} for row in rows],
    }


def table(summary: Mapping[str, Mapping[str, Any]], *, greedy: bool) -> Table:
    """`by_category` for people. Only greedy replies are meant to be the same in every mode."""
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    shown.add_column("category")
    shown.add_column("mode")
    for heading in ("tokens/s", "x plain", "spread", "kept", "a round", "first token", "outside", *(["same text"] if greedy else [])):
        shown.add_column(heading, justify="right")
    for category, modes in summary.items():
        for index, (mode, facts) in enumerate(modes.items()):
            ratio = facts["ratio_to_plain"]
            spread = f"{ratio['low']:.2f}-{ratio['high']:.2f}" if ratio["low"] is not None else ""
            shown.add_row(
                "" if index else category, mode, _text(facts["tokens_per_second"], ".1f"),
                _text(ratio["median"], ".2f"), "" if mode == PLAIN else spread, _text(facts["acceptance_rate"], ".0%"),
                _text(facts["tokens_per_round"], ".2f"), _text(facts["ttft_ms"], ".0f", " ms"),
                _text(facts["outside_llama_share"], ".1%"),
                *([_text(facts["same_text_as_plain"], ".0%")] if greedy else []),
                end_section=index == len(modes) - 1,
            )
    return shown


def _text(value: float | None, form: str, unit: str = "") -> str:
    return "" if value is None else f"{value:{form}}{unit}"
