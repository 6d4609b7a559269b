"""Prose, tables and rules of a reply: few and light widgets, because every layout asks all of them.

None of them reads markup: texts arrive as Content. A block knows its height without being drawn, so a reply that grows
within its last line is repainted without laying out the screen.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.content import Content
from textual.css.styles import RulesMap
from textual.geometry import Offset
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual
from textual.widget import Widget

from app.tui.markdown import Flow, Part, Prose, Rule, Table
from app.tui.markdown.table_layout import lay_out

LEAST_TEXT = 12
"""Cells of text that must be left beside a prefix; deeper nesting is shown without it."""
OPENABLE = ("http://", "https://", "mailto:")


class Flowing(Visual):
    """Prose blocks, each behind a prefix that stays in its own column when lines wrap."""

    def __init__(self, flow: Flow) -> None:
        self._blocks = flow.blocks

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return max(cell_len(b.rest) + b.content.get_optimal_width(rules, container_width) for b in self._blocks)

    def get_height(self, rules: RulesMap, width: int) -> int:
        return sum(block.gap + block.content.get_height(rules, width - _indent(block, width)) for block in self._blocks)

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        strips: list[Strip] = []
        line = 0
        for block in self._blocks:
            if block.gap:
                strips.append(Strip.blank(width, style.rich_style))
            strips += self._render(block, width, style, options, line)
            line += block.content.plain.count("\n") + 1
        return strips if height is None else strips[:height]

    def _render(self, block: Prose, width: int, style: Style, options: RenderOptions, line: int) -> list[Strip]:
        """One block, which begins with line number `line` of the flow's text."""
        indent = _indent(block, width)
        if line:
            options = replace(options, selection=_shifted(options.selection, -line))
        strips = block.content.render_strips(width - indent, None, style, options)
        if line:
            strips = [_renumbered(strip, line) for strip in strips]
        if not indent:
            return strips
        plain = style.rich_style
        return [
            Strip.join([Strip([Segment(block.rest if at else block.first, plain)], indent), strip])
            for at, strip in enumerate(strips)
        ]


def _indent(block: Prose, width: int) -> int:
    """Cells of the prefix; none where too little would be left for the text."""
    indent = cell_len(block.rest)
    return indent if width - indent >= LEAST_TEXT else 0


def _shifted(selection: Selection | None, lines: int) -> Selection | None:
    """The same selection in a text that begins so many lines later."""
    if selection is None:
        return None
    start, end = (place and Offset(place.x, place.y + lines) for place in selection)
    return Selection(start, end)


def _renumbered(strip: Strip, line: int) -> Strip:
    """The mouse finds what it selects by line numbers noted in the strip: count them from `line`."""
    segments = []
    for text, style, control in strip:
        if style is not None and "offset" in style.meta:
            x, y = style.meta["offset"]
            style = style + RichStyle.from_meta({"offset": (x, y + line)})
        segments.append(Segment(text, style, control))
    return Strip(segments, strip.cell_length)


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
    """Paragraphs, headings and list items."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.flow = flow

    def render(self) -> Visual:
        return Flowing(self.flow)

    def fits(self, part: Part) -> bool:
        """Whether this widget can show that part."""
        return isinstance(part, Flow)

    def show(self, part: Part) -> None:
        """Show that part from now on."""
        assert isinstance(part, Flow)
        if not self.flow.same(part):
            self.flow = part
            self._redraw(Flowing(part).get_height({}, self.size.width) if self.size.width else 0)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        return selection.extract("\n".join(block.content.plain for block in self.flow.blocks)), "\n"


class TableView(BlockView):
    """A table, drawn for the width there is."""

    def __init__(self, block: Table) -> None:
        super().__init__()
        self.block = block
        self.styles.margin = (int(block.gap), 0, 0, 0)

    def render(self) -> Visual:
        return _Laid(self.block)

    def fits(self, block: Part) -> bool:
        return isinstance(block, Table) and block.gap == self.block.gap

    def show(self, block: Part) -> None:
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

    def fits(self, block: Part) -> bool:
        return block == self.block

    def show(self, block: Part) -> None:
        """There is nothing in a line that could change."""
