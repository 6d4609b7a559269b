"""The look of every table that a command prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Column, Table


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Rows under headings, with a line between them. A name too long for its column goes on in the next line: half of
    a name cannot be typed."""
    made = Table(*(Column(heading, overflow="fold") for heading in headings), box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        made.add_row(*row)
    return made


def facts_table(facts: Iterable[tuple[str, str]]) -> Table:
    """Label and value, one fact a line."""
    made = Table.grid(padding=(0, 2))
    made.add_column(style="dim", no_wrap=True)
    made.add_column()
    for label, value in facts:
        made.add_row(label, value)
    return made
