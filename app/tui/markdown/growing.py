"""A Markdown text that grows: what stands is never read again, so a token costs the same at any length of the text.

Of the text so far only its end can still change its meaning: the last top-level block, and of a list only the last
item. Everything before is settled. Inside a code fence nothing is parsed at all; its end is looked for in the new
lines. Two things need the whole text to be right (a link defined further down, a list that is loose in places), so
whoever shows the text reads it once more with `parse_blocks` when it is complete.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from app.tui.markdown.blocks import Block, Code
from app.tui.markdown.parser import blocks_of, markdown_parser

if TYPE_CHECKING:
    from markdown_it.token import Token

_FENCE = re.compile(r"(?P<marker>`{3,}|~{3,})[ \t]*(?P<info>[^\n]*)\n")


@dataclass(slots=True)
class _Fence:
    """A top-level code fence that is open."""

    language: str
    close: re.Pattern[str]
    code: str = ""
    """Complete lines; the last, unfinished one waits in `_tail`."""


class GrowingMarkdown:
    """Append pieces; read `blocks`. `settled` says how many of them will never change."""

    def __init__(self) -> None:
        self._settled: list[Block] = []
        self._open: list[Block] = []
        self._tail = ""
        """The text behind the settled blocks (inside a fence: its unfinished last line)."""
        self._fence: _Fence | None = None
        self._ordinal: int | None = None
        """Set while `_tail` begins inside a list: the number of its item, 0 in a bulleted list."""
        self._loose = False
        """Whether a blank line stands before that item."""

    @property
    def settled(self) -> int:
        return len(self._settled)

    @property
    def blocks(self) -> list[Block]:
        """All blocks so far."""
        return [*self._settled, *self._open]

    def blocks_from(self, first: int) -> list[Block]:
        """The blocks from that index on; `first` is at most `settled`."""
        return [*self._settled[first:], *self._open]

    def append(self, text: str) -> None:
        """Read the next piece."""
        self._tail += text
        while self._read_fence() if self._fence is not None or self._enters_fence() else self._settle():
            continue

    def _enters_fence(self) -> bool:
        """Whether the unsettled text begins with the opening line of a fence; if so, be inside it."""
        found = _FENCE.match(self._tail) if self._ordinal is None else None
        if found is None or ("`" in found["marker"] and "`" in found["info"]):
            return False
        marker, info = found["marker"], found["info"].split()
        self._fence = _Fence(info[0] if info else "", re.compile(rf" {{0,3}}{re.escape(marker[0])}{{{len(marker)},}}[ \t]*"))
        self._tail = self._tail[found.end():]
        return True

    def _read_fence(self) -> bool:
        """Move complete lines into the fence's code. True when its closing line came; then it is settled."""
        fence = self._fence
        assert fence is not None
        *lines, last = self._tail.split("\n")
        for at, line in enumerate(lines):
            if fence.close.fullmatch(line):
                code = fence.code + "".join(f"{each}\n" for each in lines[:at])
                self._settled.append(Code(code.removesuffix("\n"), fence.language, gap=bool(self._settled)))
                self._tail = "\n".join([*lines[at + 1 :], last])
                self._fence, self._open = None, []
                return True
        fence.code += "".join(f"{line}\n" for line in lines)
        self._tail = last
        code = fence.code if fence.close.fullmatch(last) else fence.code + last
        self._open = [Code(code.removesuffix("\n"), fence.language, closed=False, gap=bool(self._settled))]
        return False

    def _settle(self) -> bool:
        """Parse what is not settled, and settle all of it but the end. True when there was something to settle."""
        tokens = markdown_parser().parse(self._tail)
        line, ordinal = self._last_start(tokens)
        before = "".join(f"{each}\n" for each in self._tail.split("\n")[:line])
        settled = markdown_parser().parse(before) if before else tokens
        blocks = blocks_of(settled, continues=bool(self._settled), ordinal=self._ordinal, loose=self._loose)
        if not before:
            self._open = blocks
            return False
        self._settled += blocks
        self._loose = ordinal is not None and before.endswith("\n\n")
        self._tail, self._ordinal, self._open = self._tail[len(before) :], ordinal, []
        return True

    def _last_start(self, tokens: Sequence[Token]) -> tuple[int, int | None]:
        """The line where the last block, or the last item of a list that is the last block, begins; and its number if
        it is not the first of its list."""
        line, ordinal = 0, None
        number, inside = self._ordinal or 0, self._ordinal is not None
        for token in tokens:
            if token.map is None:
                continue
            if token.level == 0:
                line, ordinal = token.map[0], None
                if line or not inside:
                    number, inside = int(token.attrs.get("start", 1)), False
                counted = token.type == "ordered_list_open"
            elif token.type == "list_item_open" and token.level == 1:
                line, ordinal = token.map[0], number if inside else None
                number, inside = number + counted, True
        return line, ordinal
