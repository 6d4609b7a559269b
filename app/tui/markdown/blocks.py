"""The flat blocks that a Markdown text becomes. Values only; a widget shows each of them.

Nesting is gone: a list item or a quoted paragraph is prose with a prefix for its first line and one for the others.
"""

from __future__ import annotations

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

    def same(self, other: Block) -> bool:
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

    def same(self, other: Block) -> bool:
        return self == other


@dataclass(frozen=True, slots=True)
class Table:
    """Cells by row; the first row is the header. `aligns` holds `left`, `center` or `right` for each column."""

    rows: tuple[tuple[Content, ...], ...]
    aligns: tuple[str, ...]
    indent: int = 0
    gap: bool = False

    def same(self, other: Block) -> bool:
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

    def same(self, other: Block) -> bool:
        return self == other


Block = Prose | Code | Table | Rule
