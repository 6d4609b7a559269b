"""The pace panel's numbers as lines of text: bars, a sparkline, a stacked bar, legends. Pure; widths are cells.

Everything is told by shape and words first, so that it reads without colours; colours only repeat it. Styles name
variables of the theme (app/tui/themes.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

MUTED, STRONG = "$foreground-muted", "bold"
TARGET, MODEL, NGRAM = "$primary", "$origin-model", "$origin-ngram"
EIGHTHS = " ▏▎▍▌▋▊▉█"
LEVELS = "▁▂▃▄▅▆▇█"
SOLID, DENSE, LIGHT = "█", "▓", "░"
TRACK = "·"
PLAIN_ROUND = "·"


@dataclass(frozen=True, slots=True)
class Share:
    """One part of a stacked bar."""

    name: str
    amount: float
    fill: str
    style: str


def bar(fraction: float, width: int, style: str) -> Content:
    """A bar filled to an eighth of a cell, on a dotted track."""
    eighths = round(max(0.0, min(1.0, fraction)) * width * 8)
    if fraction > 0:
        eighths = max(1, eighths)
    full, part = divmod(eighths, 8)
    filled = SOLID * full + (EIGHTHS[part] if part else "")
    return Content.assemble((filled, style), (TRACK * (width - len(filled)), MUTED))


def stacked(shares: Sequence[Share], width: int) -> Content:
    """One bar of several parts in proportion; a part that is there is seen. Empty: the track alone."""
    total = sum(share.amount for share in shares)
    if total <= 0:
        return Content.styled(TRACK * width, MUTED)
    cells = [round(width * share.amount / total) for share in shares]
    for i, share in enumerate(shares):
        if share.amount > 0 and cells[i] == 0:
            cells[i] = 1
    cells[cells.index(max(cells))] += width - sum(cells)
    return Content.assemble(*((share.fill * count, share.style) for share, count in zip(shares, cells, strict=True)))


def legend(shares: Sequence[Share], width: int, *, counts: bool = False) -> list[Content]:
    """What the parts of a stacked bar are, on as many lines as it takes; those that are nothing are left out."""
    total = sum(share.amount for share in shares)
    items = [
        Content.assemble((share.fill, share.style), f" {share.name} ", (_amount(share.amount, total, counts=counts), STRONG))
        for share in shares
        if share.amount > 0
    ]
    return flow(items, width)


def flow(items: Sequence[Content], width: int, gap: str = "  ") -> list[Content]:
    """Items side by side, wrapped between them."""
    lines: list[Content] = []
    for item in items:
        if lines and lines[-1].cell_length + len(gap) + item.cell_length <= width:
            lines[-1] = Content.assemble(lines[-1], gap, item)
        else:
            lines.append(item)
    return lines


def sparkline(values: Sequence[int], width: int) -> Content:
    """The last `width` values as heights; 0 is a dot on the ground. The heights go by square roots, or a copied block
    of 31 would flatten the usual 2 to 6."""
    recent = list(values)[-width:]
    most = math.sqrt(max(8, *recent)) if recent else 1.0
    return Content.assemble(
        *((LEVELS[math.ceil(8 * math.sqrt(value) / most - 1e-9) - 1], MODEL) if value else (PLAIN_ROUND, MUTED) for value in recent)
    )


def columns(fractions: Sequence[float]) -> Content:
    """Fractions as one upright bar each; 0 is a dot."""
    return Content.assemble(
        *((LEVELS[max(0, min(7, round(f * 8) - 1))], MODEL) if f > 0 else (PLAIN_ROUND, MUTED) for f in fractions)
    )


def wrapped(text: str, width: int, most: int, style: str = "") -> list[Content]:
    """Plain text on at most `most` lines; what does not fit ends in an ellipsis."""
    lines = Content.styled(text, style).wrap(width)
    if len(lines) <= most:
        return list(lines)
    kept = list(lines[:most])
    kept[-1] = Content.styled(f"{kept[-1].plain.rstrip()[: width - 1]}…", style)
    return kept


def apart(left: Content, right: Content, width: int) -> Content:
    """Two texts at the two ends of a line; the left one is cut where both do not fit."""
    room = max(0, width - right.cell_length - 1)
    left = left.truncate(room, ellipsis=True) if left.cell_length > room else left
    return Content.assemble(left, " " * max(1, width - left.cell_length - right.cell_length), right)


def _amount(amount: float, total: float, *, counts: bool) -> str:
    if counts:
        return f"{amount:,.0f}"
    return f"{amount / total:.0%}" if total > 0 else "0%"
