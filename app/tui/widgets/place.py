"""A place in a scrolled view: which row of which part of a message. Holds through text that grows below it, and, to a row or
two, through a change of width, however long the message."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from textual.geometry import Region, Size
from textual.widget import Widget


@dataclass(frozen=True, slots=True)
class Level:
    """A widget, the row that is meant in it, and its size when that was noted."""

    widget: Widget
    row: int
    size: Size


@dataclass(frozen=True, slots=True)
class Place:
    """One row, as seen from the outermost widget down to the innermost."""

    levels: tuple[Level, ...]

    @classmethod
    def at(cls, row: int, widget: Widget, region: Region) -> Place:
        """The place at `row` of what contains `widget`, which stands at `region` there."""
        levels = [Level(widget, row - region.y, region.size)]
        while above := [(child, part) for child, part in _children(widget, region) if part.y <= row]:
            widget, region = max(above, key=lambda pair: pair[1].y)
            levels.append(Level(widget, row - region.y, region.size))
        return cls(tuple(levels))

    @property
    def outermost(self) -> Widget:
        return self.levels[0].widget

    def row(self, region: Region) -> int:
        """Where the row stands now that the outermost widget stands at `region`. Of parts that are gone, what held them counts."""
        found = self.levels[0]
        for level in self.levels[1:]:
            inner = next((part for child, part in _children(found.widget, region) if child is level.widget), None)
            if inner is None:
                break
            found, region = level, inner
        if region.width == found.size.width:
            return region.y + found.row
        return region.y + round(found.row * region.height / max(1, found.size.height))


def _children(widget: Widget, region: Region) -> Iterator[tuple[Widget, Region]]:
    """The widgets in one that does not scroll by itself, and where they stand; a layout that was made is not made again."""
    if not widget.is_container or (widget.styles.overflow_x, widget.styles.overflow_y) != ("hidden", "hidden"):
        return
    inner = region.shrink(widget.styles.gutter)
    for placement in widget.arrange(inner.size).placements:
        yield placement.widget, placement.region + inner.offset
