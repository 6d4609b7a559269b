"""A bar for the memory a pair needs against what is free. The parts differ by how dense they are; colours only repeat it."""

from __future__ import annotations

from textual.content import Content

from app.chat.memory_needs import Needs
from app.tui.widgets.pace_text import DENSE, MODEL, MUTED, NGRAM, SOLID, TARGET, TRACK, Share, stacked
from app.units import byte_size

MEDIUM, FAINT = "▒", "░"


def memory_bar(needs: Needs, width: int) -> Content:
    """`width` cells for what is free, or for what is needed where that is more; a part that is there is seen."""
    return stacked([*_parts(needs), Share("free", max(0, needs.free - needs.total), TRACK, MUTED)], width)


def memory_legend(needs: Needs) -> list[Content]:
    """The parts with their bytes, in the bar's order."""
    return [Content.assemble((part.fill, part.style), f" {part.name} {byte_size(round(part.amount))}") for part in _parts(needs) if part.amount]


def _parts(needs: Needs) -> list[Share]:
    return [
        Share("target", needs.target, SOLID, TARGET), Share("draft", needs.draft, DENSE, MODEL),
        Share("context", needs.context, MEDIUM, NGRAM), Share("work", needs.work, FAINT, MUTED),
    ]
