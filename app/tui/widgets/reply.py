"""The text of one reply: thinking, then Markdown blocks; or, coloured by origin, plain text.

While it streams, what arrives is drawn as it comes, but less often the longer a drawing takes, so that neither the
keyboard nor the engine waits for the screen. At the end the whole text is read once more
and compared with what is shown: not a character can be missing, whatever came in the last moment.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from time import monotonic, thread_time

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget

from app.chat.conversation import OriginSpan
from app.chat.thinking import split_thinking
from app.tui.markdown import Block, Code, Flow, GrowingMarkdown, Part, Table, parse_blocks, parts_of
from app.tui.widgets.code_block import CodeBlock
from app.tui.widgets.plain_text import PlainText
from app.tui.widgets.prose import ProseView, RuleView, TableView
from app.tui.widgets.thinking import Thinking
from app.tui.widgets.thrifty import Thrifty

DRAW_SHARE = 40
"""From one drawing to the next it is at least so many times the processor time that one takes, layout and painting included:
it bounds the share of a core that the screen takes from the engine, however long the reply."""
SOON = 0.005
"""Seconds that a drawing is put off at least: Textual's timer fails at 0, and a shorter one may be over before it runs."""
SMOOTHING = 0.3
"""Weight of the last drawing in what a drawing takes: most repaint a line, some lay out the screen."""

PartWidget = ProseView | CodeBlock | TableView | RuleView


def part_view(part: Part) -> PartWidget:
    """The widget that shows a part."""
    if isinstance(part, Flow):
        return ProseView(part)
    if isinstance(part, Code):
        return CodeBlock(part)
    if isinstance(part, Table):
        return TableView(part)
    return RuleView(part)


class Reply(Vertical, Thrifty):
    """Shows a reply, complete or growing."""

    DEFAULT_CSS = """
    Reply { height: auto; width: 1fr; }
    """

    coloured: reactive[bool] = reactive(False, init=False)
    """Plain text in the styles of the tokens' origins instead of Markdown."""
    thinking_opened: reactive[bool] = reactive(False, init=False)

    def __init__(
        self, text: str = "", origins: Sequence[OriginSpan] = (), *, growing: bool = False, coloured: bool = False,
        thinking_opened: bool = False,
    ) -> None:
        super().__init__()
        self.text = text
        self._origins = list(origins)
        self._growing = growing
        self.set_reactive(Reply.coloured, coloured)
        self.set_reactive(Reply.thinking_opened, thinking_opened)
        self._timer: Timer | None = None
        self._drawn = -math.inf
        self._spent: float | None = None
        """This thread's processor time before the last drawing; what it has spent until the next is what a drawing takes."""
        self._drawing_seconds = 0.0
        self._read = ""
        """What of the answer `_markdown` has read."""
        self._forget_views()

    def compose(self) -> ComposeResult:
        yield from self._fresh_views()

    def on_mount(self) -> None:
        self.call_later(self._catch_up)

    def _catch_up(self) -> None:
        """Show what came while the first widgets were mounted."""
        if self._made_for == (self.text, self._growing):
            return
        if self._growing:
            self.grow("", ())
        else:
            self._show_all()

    # ---- growing

    def grow(self, text: str, spans: Sequence[OriginSpan]) -> None:
        """More text has come. It is on the screen now or a moment later."""
        self.text += text
        self._origins += spans
        if self._timer is None and self.is_mounted:
            wait = self._drawn + DRAW_SHARE * self._drawing_seconds - monotonic()
            if wait <= 0:
                self._draw()
            else:
                self._timer = self.set_timer(max(SOON, wait), self._draw)

    def finish(self, text: str, origins: Sequence[OriginSpan]) -> None:
        """The reply is complete: this is all of it."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None
        self.text, self._origins, self._growing = text, list(origins), False
        if self.is_mounted:
            self._show_all()

    def _show_all(self) -> None:
        if self._plain is not None:
            self._plain.show(self.text, self._origins)
            return
        split = split_thinking(self.text)
        self._show_thinking(split.thinking, done=True)
        self._show_blocks(parse_blocks(split.answer), 0)

    def _draw(self) -> None:
        self._timer, self._drawn = None, monotonic()
        spent = thread_time()
        if self._spent is not None:
            self._drawing_seconds += SMOOTHING * (spent - self._spent - self._drawing_seconds)
        self._spent = spent
        if self._plain is not None:
            self._plain.show(self.text, self._origins)
        else:
            self._draw_markdown()

    def _draw_markdown(self) -> None:
        split = split_thinking(self.text, growing=True)
        if not split.answer.startswith(self._read):  # what looked like the answer was thinking
            self._markdown, self._read = GrowingMarkdown(), ""
        at, first = self._last_settled()
        self._markdown.append(split.answer[len(self._read) :])
        self._read = split.answer
        self._show_thinking(split.thinking, done=split.thought)
        self._show_blocks(self._markdown.blocks_from(first), at)

    def _last_settled(self) -> tuple[int, int]:
        """The last view that begins with a settled block, and that block's number: everything before stays as it is.
        This one may take in more."""
        at = first = 0
        while at + 1 < len(self._views) and first + self._sizes[at] < self._markdown.settled:
            first += self._sizes[at]
            at += 1
        return at, min(first, self._markdown.settled)

    # ---- views

    def _forget_views(self) -> None:
        self._markdown = GrowingMarkdown()
        self._read = ""
        self._thinking: Thinking | None = None
        self._views: list[PartWidget] = []
        self._sizes: list[int] = []
        """Blocks that each of them shows."""
        self._plain: PlainText | None = None
        self._made_for = ("", False)
        """The text that the widgets were made for, and whether it was growing."""

    def _fresh_views(self) -> list[Widget]:
        """All widgets, from nothing."""
        self._forget_views()
        self._made_for = (self.text, self._growing)
        if self.coloured:
            self._plain = PlainText(self.text, self._origins)
            return [self._plain]
        split = split_thinking(self.text, growing=self._growing)
        if self._growing:
            self._markdown.append(split.answer)
            self._read = split.answer
            blocks = self._markdown.blocks
        else:
            blocks = parse_blocks(split.answer)
        for part, size in parts_of(blocks, closed=not self._growing):
            self._views.append(part_view(part))
            self._sizes.append(size)
        if split.thinking is None:
            return [*self._views]
        self._thinking = Thinking(split.thinking, done=split.thought, opened=self.thinking_opened)
        return [self._thinking, *self._views]

    def _show_thinking(self, text: str | None, *, done: bool) -> None:
        if text is None:
            return
        if self._thinking is None:
            self._thinking = Thinking(text, done=done, opened=self.thinking_opened)
            self.mount(self._thinking, before=0)
        else:
            self._thinking.show(text, done=done)

    def _show_blocks(self, blocks: Sequence[Block], first: int) -> None:
        """Have the views from that one on show these blocks and no others."""
        at, fresh = first, []
        for part, size in parts_of(blocks, closed=not self._growing):
            if at < len(self._views) and not self._views[at].fits(part):
                self._cut(at)
            if at < len(self._views):
                self._views[at].show(part)
                self._sizes[at] = size
            else:
                fresh.append(part_view(part))
                self._views.append(fresh[-1])
                self._sizes.append(size)
            at += 1
        self._cut(at)
        if fresh:
            self.mount_all(fresh)

    def _cut(self, at: int) -> None:
        for view in self._views[at:]:
            view.remove()
        del self._views[at:], self._sizes[at:]

    async def watch_coloured(self) -> None:
        with self.app.batch_update():
            await self.remove_children()
            await self.mount_all(self._fresh_views())

    def watch_thinking_opened(self) -> None:
        if self._thinking is not None:
            self._thinking.opened = self.thinking_opened

    # ---- what can be copied

    @property
    def answer(self) -> str:
        """The reply without its thinking."""
        return split_thinking(self.text).answer

    @property
    def code_blocks(self) -> tuple[str, ...]:
        """The code of each block, in order."""
        return tuple(block.code for block in parse_blocks(self.answer) if isinstance(block, Code))
