"""The tables of a run for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.table import Table


def run_table(by_category: Mapping[str, Mapping[str, Any]], *, greedy: bool) -> Table:
    """`Result.by_category` in rows of category and configuration. Only greedy replies are meant to be the same in every mode."""
    facts = [entry for modes in by_category.values() for entry in modes.values()]
    with_energy = any(entry["joules_per_token"] is not None for entry in facts)
    headings = [
        "tokens/s", "x baseline", "95 % of prompts", "worst", "kept", "a round", "first token", "gap p95", "memory",
        *(["J/token"] if with_energy else []), *(["same text"] if greedy else []),
    ]
    shown = _bare("category", "configuration", numbers=headings)
    for category, modes in by_category.items():
        for index, (name, entry) in enumerate(modes.items()):
            ratio = entry["ratio"]
            shown.add_row(
                "" if index else category, name, text(entry["tokens_per_second"], ".1f"), text(ratio["median"], ".3f"),
                interval(ratio["low"], ratio["high"]), text(ratio["worst"], ".2f"), text(entry["acceptance_rate"], ".0%"),
                text(entry["tokens_per_round"], ".2f"), text(entry["ttft_ms"]["median"], ".0f", " ms"),
                text(entry["itl_ms"]["p95"], ".0f", " ms"), gigabytes(entry["peak_rss_bytes"]),
                *([text(entry["joules_per_token"], ".2f")] if with_energy else []),
                *([text(entry["same_text_as_baseline"], ".0%")] if greedy else []),
                end_section=index == len(modes) - 1,
            )
    return shown


def load_table(summary: Sequence[Mapping[str, Any]]) -> Table:
    """Throughput with several replies at once."""
    shown = _bare("at once", "mode", numbers=["threads each", "tokens/s in all", "range", "x plain", "x fewest", "first token"])
    for entry in summary:
        shown.add_row(
            str(entry["at_once"]), entry["mode"], str(entry["threads"]), text(entry["tokens_per_second"], ".1f"),
            interval(entry["low"], entry["high"], ".1f"), text(entry["times_plain"], ".2f"), text(entry["times_fewest"], ".2f"),
            text(entry["ttft_ms"], ".0f", " ms"),
        )
    return shown


def plain_table(columns: Sequence[str], numbers: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Any rows under headings; the numbers' columns are set to the right."""
    shown = _bare(*columns, numbers=numbers)
    for row in rows:
        shown.add_row(*row)
    return shown


def text(value: float | None, form: str, unit: str = "") -> str:
    """A number, or nothing where there is none."""
    return "" if value is None else f"{value:{form}}{unit}"


def interval(low: float | None, high: float | None, form: str = ".2f") -> str:
    return "" if low is None or high is None else f"{low:{form}}-{high:{form}}"


def gigabytes(size: int | None) -> str:
    return "" if size is None else f"{size / 1e9:.2f} GB"


def _bare(*columns: str, numbers: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in columns:
        shown.add_column(heading, overflow="fold")
    for heading in numbers:
        shown.add_column(heading, justify="right")
    return shown
