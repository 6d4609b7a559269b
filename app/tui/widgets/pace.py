"""The pace panel: what speculation does, live or of a saved reply. A column where there is height, else a strip.

It shows a PaceSnapshot and knows nothing of engines and chats. Where there is no room for everything, the log leaves
first, then blank lines, then whole sections from the least telling up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from textual.content import Content
from textual.geometry import Region

from app.chat.pace import PaceSnapshot
from app.tui.widgets.pace_text import (
    DENSE,
    LIGHT,
    MODEL,
    MUTED,
    NGRAM,
    SOLID,
    STRONG,
    TARGET,
    Share,
    apart,
    bar,
    columns,
    flow,
    legend,
    sparkline,
    stacked,
    wrapped,
)
from app.tui.widgets.thrifty import Thrifty
from app.units import byte_size

COLUMN_ROWS = 12
"""Height from which the panel is a column."""
POSITIONS = 6
"""Acceptance bars in the column; later positions are told together."""
STRIP_POSITIONS = 16
FEW = 6
"""Cells under which a bar tells nothing."""
LOG_ENTRIES = 4
BETWEEN = " │ "
NOTHING = "Numbers come with the first reply."


@dataclass(frozen=True, slots=True)
class Section:
    """Lines that belong together."""

    weight: int
    """What is lighter leaves first."""
    lines: Sequence[Content]


class PacePanel(Thrifty):
    """Fill by `show`."""

    DEFAULT_CSS = """
    PacePanel { width: 1fr; height: 1fr; padding: 0 1; color: $foreground; background: $surface; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.snapshot: PaceSnapshot | None = None
        self.heading, self.live = "Pace", True

    def show(self, snapshot: PaceSnapshot | None, *, heading: str = "Pace", live: bool = True) -> None:
        """Show these numbers, or that there are none. `live`: of the reply that is being made, so that what counts is
        the speed now; else of a finished one."""
        before = self._lines()
        self.live, self.heading, self.snapshot = live, heading, snapshot
        rows = [
            Region(0, y, self.content_size.width, 1) for y, (old, new) in enumerate(zip_longest(before, self._lines()))
            if old is None or new is None or not old.is_same(new)
        ]
        if rows:
            self.refresh(*rows)

    def render(self) -> Content:
        return Content("\n").join(self._lines())

    def _lines(self) -> list[Content]:
        width, height = self.content_size
        return self._all_lines(width, height)[:height] if width > 0 else []

    def _all_lines(self, width: int, height: int) -> list[Content]:
        pace = self.snapshot
        if height < COLUMN_ROWS:
            return [Content.styled(NOTHING, MUTED)] if pace is None else strip(pace, width, height, live=self.live)
        title = Content.styled(self.heading, "bold $primary")
        if pace is None:
            return [title, Content(""), *wrapped(NOTHING, width, 3, MUTED)]
        return [title, *column(pace, width, height - 1, live=self.live)]


def column(pace: PaceSnapshot, width: int, height: int, *, live: bool) -> list[Content]:
    """Everything, one below the other, as far as there is room."""
    sections = [
        Section(9, _speed(pace, width, live=live)),
        Section(7, wrapped(pace.state, width, 6) if pace.state else []),
        Section(8, _acceptance(pace, width)),
        Section(5, _lengths(pace, width)),
        Section(6, _parts("Time", f"{pace.decode_seconds:.1f} s", _times(pace), width)),
        Section(4, _parts("Tokens by", f"{pace.tokens:,}", _origins(pace), width, counts=True)),
        Section(3, _context(pace, width)),
    ]
    kept = [section for section in sections if section.lines]
    while len(kept) > 1 and _rows(kept) > height:
        kept.remove(min(kept, key=lambda section: section.weight))
    for entries in range(min(LOG_ENTRIES, len(pace.log)), 0, -1):
        log = Section(0, _log(pace, width, entries))
        if _rows(kept) + len(kept) + len(log.lines) <= height:
            kept.append(log)
            break
    spare = height - _rows(kept)
    lines: list[Content] = []
    for at, section in enumerate(kept):
        if lines and at <= spare:
            lines.append(Content(""))
        lines += section.lines
    return lines


def _rows(sections: Sequence[Section]) -> int:
    return sum(len(section.lines) for section in sections)


def strip(pace: PaceSnapshot, width: int, height: int, *, live: bool) -> list[Content]:
    """The same on five lines and less, the most telling first."""
    times = _beside("time", _times(pace), f"context {pace.context_used:,}/{pace.context_size:,}", width)
    memory = byte_size(pace.memory_bytes) if pace.memory_bytes else ""
    origins = _beside("from", _origins(pace), memory, width, counts=True)
    state = wrapped(pace.state, width, max(1, height - 3))
    order = [_headline(pace, width, live=live), times, origins, *state] if height > 3 else [_headline(pace, width, live=live), *state, times]
    return order[:height]


def _headline(pace: PaceSnapshot, width: int, *, live: bool) -> Content:
    """Speed, ratio, acceptance and lengths, as far as there is room."""
    items = [Content.assemble((f"{_now(pace, live=live):.1f}", STRONG), " tokens/s"), _ratio(pace)]
    if shares := pace.acceptance_by_position[:STRIP_POSITIONS]:
        items.append(Content.assemble(("kept ", MUTED), columns(shares), f" {shares[0]:.0%}"))
    line = flow([item for item in items if item.plain], width, BETWEEN)[0]
    last = str(pace.lengths[-1]) if pace.lengths else ""
    room = width - line.cell_length - len(f"{BETWEEN}length  {last}")
    if last and room >= FEW:
        line = Content.assemble(line, BETWEEN, ("length ", MUTED), sparkline(pace.lengths, room), f" {last}")
    return line


def _beside(name: str, shares: Sequence[Share], more: str, width: int, *, counts: bool = False) -> Content:
    """A short stacked bar with its legend beside it, and something more at the end where there is room."""
    words = Content("  ").join(legend(shares, width, counts=counts))
    behind = f"{BETWEEN}{more}" if more else ""
    room = min(20, width - len(f"{name}  ") - words.cell_length - len(behind))
    if room < FEW and behind:
        return _beside(name, shares, "", width, counts=counts)
    drawn = Content.assemble(stacked(shares, room), " ") if room >= FEW else Content("")
    return Content.assemble((f"{name} ", MUTED), drawn, words, behind)


def _now(pace: PaceSnapshot, *, live: bool) -> float:
    return pace.tokens_per_second if live else pace.reply_tokens_per_second


def _ratio(pace: PaceSnapshot) -> Content:
    if pace.ratio_to_plain is None:
        return Content("")
    ratio = pace.ratio_to_plain
    style = "bold $text-success" if ratio >= 1.05 else "bold $text-warning" if ratio < 0.95 else STRONG
    return Content.assemble((f"{ratio:.2f}x", style), " plain")


def _speed(pace: PaceSnapshot, width: int, *, live: bool) -> list[Content]:
    speed = Content.assemble((f"{_now(pace, live=live):.1f}", STRONG), " tokens/s")
    lines = [apart(speed, _ratio(pace), width)]
    if live and pace.reply_tokens_per_second:
        lines.append(Content.styled(f"{pace.reply_tokens_per_second:.1f} over this reply", MUTED))
    return lines


def _named(name: str, value: str, width: int) -> Content:
    return apart(Content.styled(name, MUTED), Content(value), width)


def _acceptance(pace: PaceSnapshot, width: int) -> list[Content]:
    shares = pace.acceptance_by_position
    if not shares:
        return [_named("Kept by position", "no drafts", width)]
    shown = shares[:POSITIONS] if len(shares) <= POSITIONS else shares[: POSITIONS - 1]
    lines = [Content.styled("Kept by position", MUTED)]
    label = len(str(POSITIONS)) if len(shown) == len(shares) else len(f"{POSITIONS}-{len(shares)}")
    room = width - label - 6
    for place, share in enumerate(shown, 1):
        lines.append(Content.assemble((f"{place:>{label}} ", MUTED), bar(share, room, MODEL), f" {share:4.0%}"))
    if rest := shares[len(shown) :]:
        mean = sum(rest) / len(rest)
        lines.append(Content.assemble((f"{len(shown) + 1}-{len(shares)} ", MUTED), bar(mean, room, MODEL), f" {mean:4.0%}"))
    return lines


def _lengths(pace: PaceSnapshot, width: int) -> list[Content]:
    if not pace.lengths:
        return []
    return [_named("Drafted each round", str(pace.lengths[-1]), width), sparkline(pace.lengths, width)]


def _times(pace: PaceSnapshot) -> list[Share]:
    return [
        Share("draft", pace.draft_seconds, DENSE, MODEL), Share("check", pace.check_seconds, SOLID, TARGET),
        Share("other", pace.other_seconds, LIGHT, MUTED),
    ]


def _origins(pace: PaceSnapshot) -> list[Share]:
    return [
        Share("draft", pace.by_origin.get("model", 0), DENSE, MODEL), Share("n-gram", pace.by_origin.get("ngram", 0), LIGHT, NGRAM),
        Share("target", pace.by_origin.get("target", 0), SOLID, TARGET),
    ]


def _used(pace: PaceSnapshot) -> float:
    return pace.context_used / pace.context_size if pace.context_size else 0.0


def _context(pace: PaceSnapshot, width: int) -> list[Content]:
    if not pace.context_size:
        return []
    lines = [
        _named("Context", f"{pace.context_used:,} of {pace.context_size:,}", width), bar(_used(pace), width, TARGET),
    ]
    return [*lines, _named("Memory", byte_size(pace.memory_bytes), width)] if pace.memory_bytes else lines


def _parts(name: str, total: str, shares: Sequence[Share], width: int, *, counts: bool = False) -> list[Content]:
    return [_named(name, total, width), stacked(shares, width), *legend(shares, width, counts=counts)]


def _log(pace: PaceSnapshot, width: int, entries: int) -> list[Content]:
    return [Content.styled("Lately", MUTED), *(line for entry in pace.log[-entries:] for line in wrapped(entry, width, 2, MUTED))]
