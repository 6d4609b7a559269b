"""For what is on the screen while a reply is written: an update costs what has changed, not what is there."""

from __future__ import annotations

from typing import Self

from textual.containers import Horizontal, Vertical
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.strip import Strip
from textual.widget import Widget


class Thrifty(Widget):
    """A widget whose size only the layout decides. To be named behind other bases.

    Textual goes through all rows of all widgets whenever one of them has changed: these keep their rows until they are refreshed.
    And when a layout has changed the size of what is in a widget, Textual paints that widget whole and lays the screen out a
    second time, for those that place their content by it, which none of these does.
    """

    virtual_size: Reactive[Size] = Reactive(Size(0, 0), repaint=False)
    _kept: tuple[Region, Size, list[Strip]] | None = None

    def render_lines(self, crop: Region) -> list[Strip]:
        if self._kept is None or self._kept[:2] != (crop, self.size):
            self._kept = (crop, self.size, super().render_lines(crop))
        return self._kept[2]

    def refresh(self, *regions: Region, repaint: bool = True, layout: bool = False, recompose: bool = False) -> Self:
        self._kept = None
        return super().refresh(*regions, repaint=repaint, layout=layout, recompose=recompose)

    def notify_style_update(self) -> None:
        self._kept = None
        super().notify_style_update()


class Rows(Vertical, Thrifty):
    """Widgets below each other."""


class Columns(Horizontal, Thrifty):
    """Widgets beside each other."""
