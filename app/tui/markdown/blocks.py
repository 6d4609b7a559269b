"""The flat blocks that a Markdown text becomes. Values only.

Nesting is gone: a list item or a quoted paragraph is prose with a prefix for its first line and one for the others.
Neighbouring prose is gathered in flows, each shown by one widget: what a screen costs goes by the number of widgets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from textual.content import Content


@dataclass(frozen=True, slots=True)
class Prose:
    """A paragraph, heading or list item."""

    content: Content
    first: str = ""
    """What stands before the first line: a bullet, a number, a quote's bar."""
    rest: str = ""
    """What stands before every further line; as many cells as `first`."""
    gap: bool = False
    """A blank line comes before it."""

    def same(self, other: object) -> bool:
        return (
            isinstance(other, Prose)
            and (self.first, self.rest, self.gap) == (other.first, other.rest, other.gap)
            and self.content.is_same(other.content)
        )


@dataclass(frozen=True, slots=True)
class Code:
    """A code block. `indent` cells of a list stand before it."""

    code: str
    language: str = ""
    indent: int = 0
    closed: bool = True
    """False while its end has not come yet."""
    gap: bool = False

    def same(self, other: object) -> bool:
        return self == other


@dataclass(frozen=True, slots=True)
class Table:
    """Cells by row; the first row is the header. `aligns` holds `left`, `center` or `right` for each column."""

    rows: tuple[tuple[Content, ...], ...]
    aligns: tuple[str, ...]
    indent: int = 0
    gap: bool = False

    def same(self, other: object) -> bool:
        return (
            isinstance(other, Table)
            and (self.aligns, self.indent, self.gap, len(self.rows)) == (other.aligns, other.indent, other.gap, len(other.rows))
            and all(
                len(mine) == len(theirs) and all(a.is_same(b) for a, b in zip(mine, theirs, strict=True))
                for mine, theirs in zip(self.rows, other.rows, strict=True)
            )
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """A horizontal line."""

    gap: bool = False

    def same(self, other: object) -> bool:
        return self == other


Block = Prose | Code | Table | Rule

FLOW = 12
"""Prose blocks in a flow: few enough to draw one again with every word, enough to keep a long reply's widgets few."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Prose blocks below each other."""

    blocks: tuple[Prose, ...]
    closed: bool = True
    """False while more text may come."""

    def same(self, other: object) -> bool:
        return (
            isinstance(other, Flow) and (self.closed, len(self.blocks)) == (other.closed, len(other.blocks))
            and all(mine is theirs or mine.same(theirs) for mine, theirs in zip(self.blocks, other.blocks, strict=True))
        )


Part = Flow | Code | Table | Rule
"""What one widget shows."""


def parts_of(blocks: Iterable[Block], *, closed: bool = True) -> Iterator[tuple[Part, int]]:
    """The blocks as parts, each with the number of its blocks. A part that is followed by another never changes when
    blocks are added at the end, but that it is closed then; without `closed`, the last is not."""
    run: list[Prose] = []
    for block in blocks:
        if run and (len(run) == FLOW or not isinstance(block, Prose)):
            yield Flow(tuple(run)), len(run)
            run = []
        if isinstance(block, Prose):
            run.append(block)
        else:
            yield block, 1
    if run:
        yield Flow(tuple(run), closed), len(run)
