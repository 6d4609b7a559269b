"""A table as lines of text that fit a width: columns share it, cells wrap; without room for columns, one line a cell."""

from __future__ import annotations

from textual.content import Content

from app.tui.markdown.blocks import Table

LEAST_COLUMN = 4
BETWEEN = " │ "
CROSSING = "─┼─"


def lay_out(table: Table, width: int) -> Content:
    """The table in `width` cells, as one content of several lines."""
    columns = len(table.aligns)
    indent = table.indent if table.indent + columns * LEAST_COLUMN < width else 0
    room = width - indent - len(BETWEEN) * (columns - 1)
    if not columns:
        return Content("")
    if room < columns * LEAST_COLUMN:
        return _records(table)
    widths = _widths(table, columns, room)
    margin = Content(" " * indent)
    lines: list[Content] = []
    for at, row in enumerate(table.rows):
        cells = [row[i] if i < len(row) else Content("") for i in range(columns)]
        if at == 0:
            cells = [cell.stylize("bold") for cell in cells]
        lines += [margin + line for line in _row(cells, widths, table.aligns)]
        if at == 0:
            lines.append(margin + Content(CROSSING.join("─" * each for each in widths)).stylize("dim"))
    return Content("\n").join(lines)


def _widths(table: Table, columns: int, room: int) -> list[int]:
    """Natural widths; if they do not fit, the widest columns give."""
    widths = [
        max(1, *(line.cell_length for row in table.rows if i < len(row) for line in row[i].split("\n", allow_blank=True)))
        for i in range(columns)
    ]
    while (excess := sum(widths) - room) > 0:
        widest = max(widths)
        second = max([each for each in widths if each < widest], default=LEAST_COLUMN)
        wide = [i for i, each in enumerate(widths) if each == widest]
        step = max(1, min(widest - second, -(-excess // len(wide))))
        for i in wide:
            widths[i] = max(LEAST_COLUMN, widths[i] - step)
    return widths


def _row(cells: list[Content], widths: list[int], aligns: tuple[str, ...]) -> list[Content]:
    wrapped = [cell.wrap(width) or [Content("")] for cell, width in zip(cells, widths, strict=True)]
    lines = []
    for at in range(max(map(len, wrapped))):
        parts = [
            _aligned(lines_of[at] if at < len(lines_of) else Content(""), width, align)
            for lines_of, width, align in zip(wrapped, widths, aligns, strict=True)
        ]
        lines.append(Content(BETWEEN).join(parts))
    return lines


def _aligned(cell: Content, width: int, align: str) -> Content:
    cell = cell.rstrip()
    space = max(0, width - cell.cell_length)
    left = {"right": space, "center": space // 2}.get(align, 0)
    return cell.pad_left(left).pad_right(space - left)


def _records(table: Table) -> Content:
    """`header: cell` lines, a blank line between rows."""
    header, *rows = table.rows
    groups = [
        Content("\n").join(Content.assemble(name.stylize("bold"), ": ", cell) for name, cell in zip(header, row, strict=False))
        for row in rows
    ]
    return Content("\n\n").join(groups) if groups else Content("\n").join(header)
