"""Prose, tables and rules of a reply: one light widget for each block, because a transcript holds hundreds of them.

None of them reads markup: texts arrive as Content. A block knows its height without being drawn, so a reply that grows
within its last line is repainted without laying out the screen.
"""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from textual.content import Content
from textual.css.styles import RulesMap
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widget import Widget

from app.tui.markdown import Block, Prose, Rule, Table
from app.tui.markdown.table_layout import lay_out

LEAST_TEXT = 12
"""Cells of text that must be left beside a prefix; deeper nesting is shown without it."""
OPENABLE = ("http://", "https://", "mailto:")


class Hanging(Visual):
    """Content behind a prefix that stays in its own column when lines wrap."""

    def __init__(self, block: Prose) -> None:
        self._block = block
        self._indent = cell_len(block.rest)

    def _text_width(self, width: int) -> tuple[int, int]:
        """Cells of prefix and of text."""
        indent = self._indent if width - self._indent >= LEAST_TEXT else 0
        return indent, max(1, width - indent)

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return self._indent + self._block.content.get_optimal_width(rules, container_width)

    def get_height(self, rules: RulesMap, width: int) -> int:
        _, text_width = self._text_width(width)
        return self._block.gap + self._block.content.get_height(rules, text_width)

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        indent, text_width = self._text_width(width)
        strips = self._block.content.render_strips(text_width, None, style, options)
        if indent:
            plain = style.rich_style
            strips = [
                Strip.join([Strip([Segment(self._block.rest if at else self._block.first, plain)], indent), strip])
                for at, strip in enumerate(strips)
            ]
        if self._block.gap:
            strips.insert(0, Strip.blank(width, style.rich_style))
        return strips if height is None else strips[:height]


class BlockView(Widget):
    """What the three have in common."""

    ALLOW_SELECT: ClassVar[bool] = True
    DEFAULT_CSS = """
    BlockView { width: 1fr; height: auto; }
    """

    def _redraw(self, height: int) -> None:
        """Repaint; lay the screen out only if `height` is not the height we have."""
        self.refresh(layout=height != self.size.height or not self.size.width)

    def action_link(self, href: str) -> None:
        """A click on a link. Only addresses a browser or a mail program opens are opened."""
        if href.startswith(OPENABLE):
            self.app.open_url(href)


class ProseView(BlockView):
    """A paragraph, a heading or a list item."""

    def __init__(self, block: Prose) -> None:
        super().__init__()
        self.block = block

    def render(self) -> Visual:
        return Hanging(self.block)

    def fits(self, block: Block) -> bool:
        """Whether this widget can show that block."""
        return isinstance(block, Prose)

    def show(self, block: Block) -> None:
        """Show that block from now on."""
        assert isinstance(block, Prose)
        if not self.block.same(block):
            self.block = block
            self._redraw(Hanging(block).get_height(self.styles, self.size.width) if self.size.width else 0)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(self.block.content.plain), "\n"


class TableView(BlockView):
    """A table, drawn for the width there is."""

    def __init__(self, block: Table) -> None:
        super().__init__()
        self.block = block
        self.styles.margin = (int(block.gap), 0, 0, 0)

    def render(self) -> Visual:
        return _Laid(self.block)

    def fits(self, block: Block) -> bool:
        return isinstance(block, Table) and block.gap == self.block.gap

    def show(self, block: Block) -> None:
        assert isinstance(block, Table)
        if not self.block.same(block):
            self.block = block
            self.refresh(layout=True)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract(lay_out(self.block, self.size.width).plain), "\n"


class _Laid(Visual):
    """A table as content of a given width."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._content: tuple[int, Content] | None = None

    def _at(self, width: int) -> Content:
        if self._content is None or self._content[0] != width:
            self._content = (width, lay_out(self._table, width))
        return self._content[1]

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return container_width

    def get_height(self, rules: RulesMap, width: int) -> int:
        return self._at(width).plain.count("\n") + 1

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        return self._at(width).render_strips(width, height, style, options)


class RuleView(BlockView):
    """A horizontal line."""

    DEFAULT_CSS = """
    RuleView { height: 1; color: $text-muted; }
    """

    def __init__(self, block: Rule) -> None:
        super().__init__()
        self.block = block
        self.styles.margin = (int(block.gap), 0, 0, 0)

    def render(self) -> Content:
        return Content("─" * self.size.width)

    def fits(self, block: Block) -> bool:
        return block == self.block

    def show(self, block: Block) -> None:
        """There is nothing in a line that could change."""
