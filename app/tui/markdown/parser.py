"""A whole Markdown text to flat blocks (CommonMark with tables, strikethrough and bare links; no HTML)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from rich.cells import cell_len
from textual.content import Content

from app.tui.markdown.blocks import Block, Code, Prose, Rule, Table
from app.tui.markdown.inline import inline_content

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

BULLETS = ("•", "◦", "▪")
QUOTE_BAR = "▎ "
_HEADINGS = {"h1": "bold underline $text-primary", "h2": "bold $text-primary", "h3": "bold $text-secondary"}
_LOWER_HEADING = "bold italic"


@cache
def markdown_parser() -> MarkdownIt:
    """The one parser. HTML is off: what a model writes in angle brackets is to be seen, not to vanish."""
    from markdown_it import MarkdownIt  # here: the first frame needs no parser

    return MarkdownIt("commonmark", {"html": False, "linkify": True}).enable(["table", "strikethrough", "linkify"])


def parse_blocks(text: str) -> list[Block]:
    """All blocks of a complete text."""
    return blocks_of(markdown_parser().parse(text))


def blocks_of(
    tokens: Sequence[Token], *, continues: bool = False, ordinal: int | None = None, loose: bool = False
) -> list[Block]:
    """The blocks of markdown-it's tokens. `continues`: something stands before them. `ordinal`: they begin inside a
    list, with the item of this number (0 in a bulleted one); `loose`: with a blank line before it."""
    walk = _Walk(continues=continues, ordinal=ordinal, loose=loose)
    for token in tokens:
        walk.step(token)
    return walk.blocks


@dataclass(slots=True)
class _Frame:
    """One level of quoting or of a list item."""

    first: str
    rest: str
    used: bool = False


@dataclass(slots=True)
class _List:
    number: int | None
    """Of the next item; None in a bulleted list."""
    items: int = 0


class _Walk:
    """Goes through the tokens once and gathers blocks."""

    def __init__(self, *, continues: bool, ordinal: int | None, loose: bool) -> None:
        self.blocks: list[Block] = []
        self._loose = loose
        self._continues = continues
        self._ordinal = ordinal
        self._frames: list[_Frame] = []
        self._lists: list[_List] = []
        self._heading: str | None = None
        self._hidden = False
        self._rows: list[list[Content]] = []
        self._aligns: list[str] = []
        self._in_cell = False

    def step(self, token: Token) -> None:
        match token.type:
            case "bullet_list_open":
                self._open_list(None)
            case "ordered_list_open":
                self._open_list(int(token.attrs.get("start", 1)))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "list_item_open":
                self._frames.append(self._item())
            case "blockquote_open":
                self._frames.append(_Frame(QUOTE_BAR, QUOTE_BAR))
            case "list_item_close" | "blockquote_close":
                frame = self._frames.pop()
                if not frame.used:  # an item that has nothing in it yet still shows its bullet
                    self._frames.append(frame)
                    self._prose(Content(""))
                    self._frames.pop()
            case "heading_open":
                self._heading = _HEADINGS.get(token.tag, _LOWER_HEADING)
            case "heading_close":
                self._heading = None
            case "paragraph_open":
                self._hidden = token.hidden
            case "table_open":
                self._rows, self._aligns = [], []
            case "tr_open":
                self._rows.append([])
            case "th_open" | "td_open":
                self._in_cell = True
                if token.type == "th_open":
                    self._aligns.append(str(token.attrs.get("style", "")).removeprefix("text-align:") or "left")
            case "th_close" | "td_close":
                self._in_cell = False
            case "table_close":
                self._add(Table(tuple(map(tuple, self._rows)), tuple(self._aligns), self._indent(), self._follows))
            case "inline":
                self._inline(token)
            case "fence" | "code_block":
                code = token.content.removesuffix("\n")
                language = token.info.split()[0] if token.info.strip() else ""
                self._add(Code(code, language, self._indent(), gap=self._follows))
            case "hr":
                self._add(Rule(self._follows))
            case _ if token.type.endswith(("_open", "_close")):
                pass
            case _ if token.content:  # a kind this walk does not know: its text must not be lost
                self._prose(Content(token.content))

    def _open_list(self, start: int | None) -> None:
        if self._ordinal is not None and not self._lists:
            start = None if start is None else self._ordinal
            self._lists.append(_List(start, items=1))
            self._ordinal = None
        else:
            self._lists.append(_List(start))

    def _item(self) -> _Frame:
        current = self._lists[-1]
        if current.number is None:
            marker = f"{BULLETS[(len(self._lists) - 1) % len(BULLETS)]} "
        else:
            marker = f"{current.number}. "
            current.number += 1
        current.items += 1
        return _Frame(marker, " " * cell_len(marker))

    def _inline(self, token: Token) -> None:
        content = inline_content(token)
        if self._in_cell:
            self._rows[-1].append(content)
            return
        if self._heading:
            content = content.stylize(self._heading)
        self._prose(content)

    def _prose(self, content: Content) -> None:
        gap = self._gap()
        self._add(Prose(content, *self._prefixes(), gap=gap))

    @property
    def _follows(self) -> bool:
        """Whether something stands before what comes next."""
        return bool(self.blocks) or self._continues

    def _gap(self) -> bool:
        """A blank line before everything but the very first block and the items of a tight list among themselves."""
        if not self._follows:
            return False
        tight = bool(self._lists) and self._hidden
        if self._loose and not self.blocks:
            return True
        return not tight or (len(self._lists) == 1 and self._lists[0].items <= 1 and not self._frames[-1].used)

    def _prefixes(self) -> tuple[str, str]:
        first = "".join(frame.rest if frame.used else frame.first for frame in self._frames)
        for frame in self._frames:
            frame.used = True
        return first, "".join(frame.rest for frame in self._frames)

    def _indent(self) -> int:
        """Cells before a block that has no prefix of its own. A bullet that waits gets a line first."""
        if any(not frame.used for frame in self._frames):
            self._prose(Content(""))
        return sum(cell_len(frame.rest) for frame in self._frames)

    def _add(self, block: Block) -> None:
        self.blocks.append(block)
