"""The tables of a run for people. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from app.terminal import WIDE
from app.units import gb

if TYPE_CHECKING:
    from rich.table import Table

NARROW = 104
"""Columns below which a table has to do without delays."""


def run_table(by_category: Mapping[str, Mapping[str, Any]], *, greedy: bool, width: int = WIDE) -> Table:
    """`Result.by_category`, a line for each configuration under its category: speed, its ratio to the baseline's with the
    interval over prompts and the worst prompt, tokens kept of those drafted and gained a round, milliseconds to the first token
    and between tokens, peak memory, energy. Only greedy replies are meant to be the same text in every mode. On a narrow
    terminal delays are left out: the result's file has them."""
    facts = [entry for modes in by_category.values() for entry in modes.values()]
    columns: list[tuple[str, Callable[[Mapping[str, Any]], str]]] = [
        ("tok/s", lambda entry: text(entry["tokens_per_second"], ".1f")),
        ("x base", lambda entry: text(entry["ratio"]["median"], ".3f")),
        ("95 %", lambda entry: interval(entry["ratio"]["low"], entry["ratio"]["high"])),
        ("worst", lambda entry: text(entry["ratio"]["worst"], ".2f")),
        ("kept", lambda entry: text(entry["acceptance_rate"], ".0%")),
    ]
    if width >= NARROW:
        columns += [
            ("a round", lambda entry: text(entry["tokens_per_round"], ".2f")),
            ("first ms", lambda entry: text(entry["ttft_ms"]["median"], ".0f")),
            ("gap p95", lambda entry: text(entry["itl_ms"]["p95"], ".0f")),
        ]
    columns.append(("GB", lambda entry: gigabytes(entry["peak_rss_bytes"]).removesuffix(" GB")))
    if any(entry["joules_per_token"] is not None for entry in facts):
        columns.append(("J/tok", lambda entry: text(entry["joules_per_token"], ".2f")))
    if greedy:
        columns.append(("same", lambda entry: text(entry["same_text_as_baseline"], ".0%")))
    shown = _bare("", numbers=[heading for heading, _ in columns])
    for category, modes in by_category.items():
        shown.add_row(category)
        for index, (name, entry) in enumerate(modes.items()):
            shown.add_row(f"  {name}", *(cell(entry) for _, cell in columns), end_section=index == len(modes) - 1)
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
    return "" if size is None else f"{gb(size, 2)} GB"


def _bare(*columns: str, numbers: Sequence[str]) -> Table:
    from rich import box
    from rich.table import Table

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in columns:
        shown.add_column(heading, overflow="fold")
    for heading in numbers:
        shown.add_column(heading, justify="right", no_wrap=True)
    return shown
