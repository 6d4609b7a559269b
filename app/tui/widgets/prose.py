"""Prose, tables and rules of a reply: few and light widgets, because every layout asks all of them.

None of them reads markup: texts arrive as Content. While a text grows only its changed rows are repainted, and its height
grows by several rows at once: a layout of the screen, with all that it moves, costs more than ten such repaints.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style as RichStyle
from textual.content import Content
from textual.css.styles import RulesMap
from textual.geometry import Offset, Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.style import Style
from textual.visual import RenderOptions, Visual

from app.tui.markdown import Flow, Part, Prose, Rule, Table
from app.tui.markdown.table_layout import lay_out
from app.tui.widgets.thrifty import Thrifty

LEAST_TEXT = 12
"""Cells of text that must be left beside a prefix; deeper nesting is shown without it."""
STEP = 4
"""Rows by which the height of a growing text grows."""
OPENABLE = ("http://", "https://", "mailto:")


class ProseVisual(Visual):
    """A block behind a prefix that stays in its own column when lines wrap. `line`: that of the flow's text with which it
    begins."""

    def __init__(self, block: Prose, line: int = 0) -> None:
        self._block = block
        self._line = line

    def get_optimal_width(self, rules: RulesMap, container_width: int) -> int:
        return cell_len(self._block.rest) + self._block.content.get_optimal_width(rules, container_width)

    def get_height(self, rules: RulesMap, width: int) -> int:
        return _rows((self._block,), width)

    def render_strips(self, width: int, height: int | None, style: Style, options: RenderOptions) -> list[Strip]:
        block, line = self._block, self._line
        gap = [Strip.blank(width, style.rich_style)] * block.gap
        indent = _indent(block, width)
        if line:
            options = replace(options, selection=_shifted(options.selection, -line))
        strips = block.content.render_strips(width - indent, None, style, options)
        if line:
            strips = [_renumbered(strip, line) for strip in strips]
        if not indent:
            return gap + strips
        plain = style.rich_style
        return gap + [
            Strip.join([Strip([Segment(block.rest if at else block.first, plain)], indent), strip])
            for at, strip in enumerate(strips)
        ]


def _indent(block: Prose, width: int) -> int:
    """Cells of the prefix; none where too little would be left for the text."""
    indent = cell_len(block.rest)
    return indent if width - indent >= LEAST_TEXT else 0


def _rows(blocks: Iterable[Prose], width: int) -> int:
    return sum(block.gap + block.content.get_height({}, width - _indent(block, width)) for block in blocks)


def changed_rows(old: Flow, new: Flow, width: int) -> tuple[int, int]:
    """The first row of `new` that is not drawn as in `old`, and the row after the last that has to be drawn anew."""
    row = 0
    for was, block in zip_longest(old.blocks, new.blocks):
        if was is None or block is None or not was.same(block):
            if was is not None and block is not None:
                row += _same_rows(was, block, width)
            return row, max(_rows(old.blocks, width), _rows(new.blocks, width))
        row += _rows((block,), width)
    return row, row


def _same_rows(was: Prose, block: Prose, width: int) -> int:
    """How many rows at the block's beginning are the same: those before the row where the first difference is. What comes
    later in a text moves no words before that."""
    if (was.first, was.rest, was.gap) != (block.first, block.rest, block.gap):
        return 0
    old, new = was.content.plain, block.content.plain
    if new.startswith(old):
        at, before = len(old), was.content
    else:
        at = next((at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(new))
        before = block.content[:at]
    if spans := {*was.content[:at].spans} ^ {*block.content[:at].spans}:
        before = block.content[: min(span.start for span in spans)]
    return _rows((replace(block, content=before),), width) - 1


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


class BlockView(Thrifty):
    """What the three have in common."""

    ALLOW_SELECT: ClassVar[bool] = True
    DEFAULT_CSS = """
    BlockView { width: 1fr; height: auto; }
    """

    def action_link(self, href: str) -> None:
        """A click on a link. Only addresses a browser or a mail program opens are opened."""
        if href.startswith(OPENABLE):
            self.app.open_url(href)


class ProseView(BlockView):
    """Paragraphs, headings and list items; or code. Each is drawn once, as long as it is shown the same way."""

    def __init__(self, flow: Flow, *, classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self.flow = flow
        self._how: tuple[int, Style, Selection | None] | None = None
        """Width, style and selection with which everything below was drawn."""
        self._drawn: dict[tuple[int, int], tuple[Prose, list[Strip]]] = {}
        """By a block's identity and the line with which it begins: the block, so that it stays, and its rows."""
        self._rows: list[Strip] | None = None
        """All of them; None once the text is another."""

    def render(self) -> Visual:
        return ProseVisual(self.flow.blocks[0])

    def render_line(self, y: int) -> Strip:
        how = (self.size.width, self.visual_style, self.text_selection)
        if how != self._how:
            self._how, self._drawn, self._rows = how, {}, None
        if self._rows is None:
            self._rows = self._draw(how[0], how[1])
        return self._rows[y] if y < len(self._rows) else Strip.blank(how[0], how[1].rich_style)

    def _draw(self, width: int, style: Style) -> list[Strip]:
        known, self._drawn = self._drawn, {}
        line, rows = 0, list[Strip]()
        for block in self.flow.blocks:
            at = (id(block), line)
            self._drawn[at] = known.get(at) or (block, Visual.to_strips(self, ProseVisual(block, line), width, None, style))
            rows += self._drawn[at][1]
            line += block.content.plain.count("\n") + 1
        return rows

    def notify_style_update(self) -> None:
        self._how = None
        super().notify_style_update()

    def fits(self, part: Part) -> bool:
        """Whether this widget can show that part."""
        return isinstance(part, Flow)

    def show(self, part: Part) -> None:
        """Show that part from now on."""
        assert isinstance(part, Flow)
        if self.flow.same(part):
            return
        old, self.flow, self._rows = self.flow, part, None
        width, height = self.size
        if not width or self._height(width) != height:
            self.refresh(layout=True)
        else:
            first, end = changed_rows(old, part, width)
            self.refresh(Region(0, first, width, end - first))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        return self._height(width) if width else 0

    def _height(self, width: int) -> int:
        rows = _rows(self.flow.blocks, width)
        return rows if self.flow.closed else -(-rows // STEP) * STEP

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
