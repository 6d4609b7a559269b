"""A code block: its language and a copy action above, the code below in pieces of a fixed number of lines.

While code is written, only the last piece is highlighted again, so a line costs the same in a long block as in a
short one. A piece that begins inside a string of many lines may look wrong until then: when the block is closed it is
highlighted once as a whole.
"""

from __future__ import annotations

from pygments.token import Token  # type: ignore[import-untyped]  # it has no types
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.highlight import HighlightTheme, highlight
from textual.message import Message
from textual.style import Style
from textual.widgets import Static

from app.tui.markdown import Code, Flow, Part, Prose
from app.tui.widgets.prose import ProseView
from app.tui.widgets.thrifty import Thrifty

PIECE = 40
"""Lines: about what one highlighting does in a millisecond or two."""


class CodeTheme(HighlightTheme):
    """Few colours, all from the app's theme; comments and keywords also differ in weight, for terminals without colour."""

    STYLES: dict[tuple[str, ...], str] = {  # noqa: RUF012 - as the base class declares it
        Token.Comment: "italic $text-muted",
        Token.Keyword: "bold $text-accent",
        Token.Keyword.Constant: "$text-warning",
        Token.Operator.Word: "bold $text-accent",
        Token.Literal.Number: "$text-warning",
        Token.Literal.String: "$text-success",
        Token.Name.Function: "$text-primary",
        Token.Name.Class: "bold $text-primary",
        Token.Name.Decorator: "$text-secondary",
        Token.Name.Tag: "bold $text-primary",
        Token.Name.Attribute: "$text-secondary",
        Token.Generic.Inserted: "$text-success",
        Token.Generic.Deleted: "$text-error",
        Token.Generic.Heading: "bold",
        Token.Generic.Subheading: "bold $text-primary",
    }


def highlighted(code: str, language: str) -> Content:
    """`code` in the colours of its language; of one nobody knows, plain."""
    return highlight(code, language=language or "text", theme=CodeTheme)


class _Head(Static, Thrifty):
    """The line above the code. An action in its text is looked for here."""

    def action_copy(self) -> None:
        assert isinstance(self.parent, CodeBlock)
        self.parent.action_copy()


class CodeBlock(Vertical, Thrifty):
    """Shows one Code block."""

    class CopyWanted(Message):
        """Somebody clicked `copy`."""

        def __init__(self, code: str) -> None:
            super().__init__()
            self.code = code

    DEFAULT_CSS = """
    CodeBlock {
        height: auto; width: 1fr; padding: 0 1; background: $boost;
        .code-head { width: 1fr; height: 1; color: $text-muted; }
        .code-piece { width: 1fr; height: auto; }
    }
    """

    def __init__(self, block: Code) -> None:
        super().__init__()
        self.block = block
        self.styles.margin = (int(block.gap), 0, 0, block.indent)
        self._pieces = [ProseView(content, classes="code-piece") for content in self._contents(0)]

    def compose(self) -> ComposeResult:
        yield _Head(self._head(), classes="code-head", markup=False)
        yield from self._pieces

    @property
    def code(self) -> str:
        return self.block.code

    def fits(self, block: Part) -> bool:
        """Whether this widget can show that block: the same code, or the same with more behind it."""
        return (
            isinstance(block, Code) and (block.language, block.indent, block.gap) == (self.block.language, self.block.indent, self.block.gap)
            and block.code.startswith(self.block.code)
        )

    def show(self, block: Part) -> None:
        """Show the longer code from now on."""
        assert isinstance(block, Code)
        if block == self.block:
            return
        whole = block.closed and not self.block.closed and len(self._pieces) > 1
        self.block = block
        first = 0 if whole else len(self._pieces) - 1
        for at, content in enumerate(self._contents(first), first):
            if at < len(self._pieces):
                self._pieces[at].show(content)
            else:
                self._pieces.append(ProseView(content, classes="code-piece"))
                self.mount(self._pieces[-1])

    def action_copy(self) -> None:
        self.post_message(self.CopyWanted(self.code))

    def _head(self) -> Content:
        name = self.block.language or "text"
        return Content.assemble((name, "bold"), "  ", ("copy", Style(underline=True) + Style.from_meta({"@click": "copy"})))

    def _contents(self, first: int) -> list[Flow]:
        """The pieces from that one on."""
        lines = self.block.code.split("\n")
        if first == 0 and self.block.closed:
            colored = highlighted(self.block.code, self.block.language).split("\n", allow_blank=True)
            pieces = [Content("\n").join(colored[at : at + PIECE]) for at in range(0, max(1, len(colored)), PIECE)]
        else:
            pieces = [
                highlighted("\n".join(lines[at : at + PIECE]), self.block.language)
                for at in range(first * PIECE, max(1, len(lines)), PIECE)
            ]
        return [Flow((Prose(piece),), self.block.closed or piece is not pieces[-1]) for piece in pieces]
