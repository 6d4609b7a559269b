"""The messages of a chat, of which only a window is mounted: a chat of thousands opens as fast as a short one.

Two rules decide where the view stands after every layout, whatever made it necessary (streaming, a resize, messages
mounted above): while it *follows*, at the end; otherwise so that the row at its top stays where it is. Both are
applied inside the layout itself, so that nothing is ever drawn in the wrong place first. Scrolling up stops the
following, reaching the end takes it up again.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.geometry import Region, Size
from textual.layout import DockArrangeResult
from textual.message import Message as TextualMessage
from textual.reactive import reactive
from textual.widget import Widget

from app.chat.conversation import Message
from app.tui.keys import bind
from app.tui.widgets.message import MessageView
from app.tui.widgets.place import Place
from app.tui.widgets.thrifty import Thrifty

FIRST = 12
"""Messages mounted at once: more than a screen holds, as a rule."""
STEP = 8
"""Messages mounted at an edge that is reached."""
MOST = 40
"""Messages mounted; beyond that the other end of the window is let go."""


class Transcript(VerticalScroll, Thrifty):
    """Shows a path of messages. `following`: it stays at the end while text comes."""

    DEFAULT_CSS = """
    Transcript { height: 1fr; width: 1fr; scrollbar-gutter: stable; scrollbar-size-vertical: 1; padding: 0 0 0 0; }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "cursor(-1)", "Message above", show=False),
        Binding("down", "cursor(1)", "Message below", show=False),
        bind("message_menu", "want('menu')"),
        bind("delete_message", "want('delete')"),
        bind("undo_message", "want('undo')"),
        bind("previous_branch", "want('previous_branch')"),
        bind("next_branch", "want('next_branch')"),
    ]

    cursor: reactive[int | None] = reactive(None, init=False)
    """Id of the selected message."""

    class Wanted(TextualMessage):
        """A key asks for something to be done with the selected message."""

        def __init__(self, what: str) -> None:
            super().__init__()
            self.what = what

    class CursorMoved(TextualMessage):
        """Another message is selected, or none."""

        def __init__(self, message: Message | None) -> None:
            super().__init__()
            self.message = message

    class Followed(TextualMessage):
        """Following has begun or ended."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.following = True
        self._path: list[Message] = []
        self._views: list[MessageView] = []
        self._low = 0
        """Index of the first message mounted."""
        self._branches: Mapping[int, Sequence[int]] = {}
        self._coloured = self._thinking_opened = False
        self._marked: int | None = None
        self._marker = ""
        self._places: dict[int, Place] = {}
        """What stands at the view's top: as it was scrolled to, and by the widths that there were since."""
        self._regions: dict[Widget, Region] = {}
        """Where the last layout put each view, from the top of the window."""
        self._width = 0
        """Of that layout."""
        self._window = Lock()
        """Held while views come and go: those who ask for something else meanwhile find the window whole. Never to be waited for
        in a handler of a message's own widget, as taking that away waits for the handler."""
        self.newest: Callable[[Message], Message] = lambda message: message
        """A message with the text it has by now: a reply grows, on the screen or off it."""

    # ---- content

    @property
    def messages(self) -> Sequence[Message]:
        return self._path

    @property
    def earlier(self) -> int:
        """Messages above the window."""
        return self._low

    @property
    def later(self) -> int:
        """Messages below the window."""
        return len(self._path) - self._low - len(self._views)

    async def show(self, path: Sequence[Message], branches: Mapping[int, Sequence[int]], *, fresh: bool = False) -> None:
        """Show that path. What it has in common with the one shown stays as it is, unless it is a `fresh` chat."""
        async with self._window:
            await self._show(list(path), branches, fresh=fresh)
        if self.cursor is not None and all(message.id != self.cursor for message in self._path):
            self.cursor = None
        self._check_edges_soon()

    async def _show(self, path: list[Message], branches: Mapping[int, Sequence[int]], *, fresh: bool) -> None:
        self._branches = branches
        kept = 0 if fresh else _common(self._path, path)
        at_end = fresh or not self.later
        self._path = path
        with self.app.batch_update():
            if not at_end and kept >= self._low + len(self._views):
                self._refresh_views()
                return
            if kept < self._low + (kept > 0) or fresh:
                self.following = True
                await self._mount_window(max(0, len(self._path) - FIRST), len(self._path))
            else:
                stale = self._views[kept - self._low :]
                del self._views[kept - self._low :]
                await self._drop(stale)
                await self._mount_end()
            self._refresh_views()

    def replace(self, message: Message) -> None:
        """Take note of a message's new version; its view is told apart."""
        for at in range(len(self._path) - 1, -1, -1):
            if self._path[at].id == message.id:
                self._path[at] = message
                return

    def holds(self, message_id: int) -> bool:
        """Whether the message is on the path, mounted or not."""
        return any(message.id == message_id for message in reversed(self._path))

    def view(self, message_id: int) -> MessageView | None:
        """The widget of a message, if it is mounted."""
        return next((view for view in reversed(self._views) if view.message.id == message_id), None)

    def set_coloured(self, coloured: bool) -> None:
        self._coloured = coloured
        for view in self._views:
            view.set_coloured(coloured)

    def set_thinking_opened(self, opened: bool) -> None:
        self._thinking_opened = opened
        for view in self._views:
            if view.reply is not None:
                view.reply.thinking_opened = opened

    def mark(self, message_id: int | None, text: str) -> None:
        """Put a line above a message; there is one such line at most."""
        self._marked, self._marker = message_id, text
        for view in self._views:
            view.set_marker(text if view.message.id == message_id else "")

    # ---- the window

    def _make(self, message: Message) -> MessageView:
        message = self.newest(message)
        view = MessageView(
            message, branch=self._branch(message.id), coloured=self._coloured, thinking_opened=self._thinking_opened,
            marker=self._marker if message.id == self._marked else "",
        )
        view.set_class(message.id == self.cursor, "-cursor")
        return view

    def _branch(self, message_id: int) -> tuple[int, int]:
        siblings = self._branches.get(message_id, ())
        return (siblings.index(message_id) + 1, len(siblings)) if siblings else (1, 1)

    def _refresh_views(self) -> None:
        for view in self._views:
            view.set_branch(self._branch(view.message.id))

    async def _mount_window(self, low: int, high: int) -> None:
        old, self._views, self._low, self._places = self._views, [], low, {}
        await self._drop(old)
        self._views = [self._make(message) for message in self._path[low:high]]
        await self.mount_all(self._views)

    async def _mount_end(self) -> None:
        fresh = [self._make(message) for message in self._path[self._low + len(self._views) :]]
        self._views += fresh
        await self.mount_all(fresh)
        if self.following:
            await self._drop_first(len(self._views) - MOST)

    async def _drop_first(self, count: int) -> None:
        """Let go of so many views at the top."""
        if count > 0:
            stale = self._views[:count]
            del self._views[:count]
            self._low += count
            await self._drop(stale)

    async def _drop(self, views: Sequence[MessageView]) -> None:
        if any(place.outermost in views for place in self._places.values()):
            self._places = {}
        widgets = [widget for view in views for widget in view.walk_children(Widget, with_self=True)]
        await self.remove_children(list(views))
        for widget in widgets:  # Textual's memo of backgrounds keeps the caches of some 1,000 widgets that are gone
            if (cache := getattr(widget, "_styles_cache", None)) is not None:
                cache.clear()

    async def _extend(self) -> None:
        """Mount what an edge that is in reach wants, and let go of what is far from it."""
        if self._window.locked() or not self.is_mounted:
            return  # whoever holds it looks at the edges afterwards
        async with self._window:
            if self._low > 0 and self.scroll_y < self.size.height:
                await self._extend_up()
            elif self.later and self.scroll_y > self.max_scroll_y - self.size.height:
                await self._extend_down()
            else:
                return
        self._check_edges_soon()

    async def _extend_up(self) -> None:
        low = max(0, self._low - STEP)
        fresh = [self._make(message) for message in self._path[low : self._low]]
        with self.app.batch_update():
            self._views[:0] = fresh
            self._low = low
            await self.mount_all(fresh, before=0)
            if len(self._views) > MOST and not self.following:
                stale = self._views[MOST:]
                del self._views[MOST:]
                await self._drop(stale)

    async def _extend_down(self) -> None:
        high = self._low + len(self._views)
        fresh = [self._make(message) for message in self._path[high : high + STEP]]
        with self.app.batch_update():
            self._views += fresh
            await self.mount_all(fresh)
            await self._drop_first(len(self._views) - MOST)

    def _check_edges_soon(self) -> None:
        self.call_after_refresh(self._extend)

    def on_resize(self) -> None:
        self._check_edges_soon()  # wider, the texts take fewer rows

    # ---- where the view stands

    def arrange(self, size: Size, optimal: bool = False) -> DockArrangeResult:
        result = super().arrange(size, optimal)
        if optimal:
            return result
        self._regions = {placement.widget: placement.region for placement in result.placements}
        self._width = size.width
        bottom = max(0, result.total_region.bottom - size.height)
        if self.following and not self.later:
            self._stand_at(bottom)
        elif self._places:
            place = self._places.pop(size.width, None) or next(reversed(self._places.values()))
            if (region := self._regions.get(place.outermost)) is not None:
                row = place.row(region)
                place = Place.at(row, place.outermost, region)  # what it is part of may have grown
                self._stand_at(max(0, min(bottom, row)))
            self._places[size.width] = place  # as the last one
        return result

    def _stand_at(self, y: int) -> None:
        """As Widget.scroll_y, without another layout: one is going on."""
        if round(self.scroll_y) != y:
            self.set_reactive(VerticalScroll.scroll_y, float(y))
            self.set_reactive(VerticalScroll.scroll_target_y, float(y))
            self.vertical_scrollbar.position = y

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        followed, self.following = self.following, not self.later and new_value >= self.max_scroll_y
        self._note_place()
        self._check_edges_soon()
        if followed != self.following:
            self.post_message(self.Followed())

    def _note_place(self) -> None:
        """Remember what is at the top."""
        for view in self._views:
            region = self._regions.get(view)
            if region is not None and region.bottom > self.scroll_y:
                self._places = {self._width: Place.at(round(self.scroll_y), view, region)}
                return

    async def follow(self) -> None:
        """Go to the end and stay there."""
        async with self._window:
            self.following = True
            if self.later:
                await self._mount_window(max(0, len(self._path) - FIRST), len(self._path))
        self.refresh(layout=True)
        self._check_edges_soon()
        self.post_message(self.Followed())

    async def go_to(self, message_id: int) -> None:
        """Select a message and bring it into view, mounting its surroundings if need be."""
        async with self._window:
            at = next((i for i, message in enumerate(self._path) if message.id == message_id), None)
            if at is None:
                return
            if not self._low <= at < self._low + len(self._views):
                with self.app.batch_update():
                    self.following = False
                    await self._mount_window(max(0, at - STEP // 2), min(len(self._path), at + STEP))
        self.cursor = message_id
        view = self.view(message_id)
        if view is not None:
            self.call_after_refresh(self._bring_into_view, view)

    def _bring_into_view(self, view: MessageView) -> None:
        region = self._regions.get(view)
        if region is None or view not in self._views:  # taken away since, with others
            self._check_edges_soon()
            return
        if self.following and view.message.id != self._path[-1].id:  # text that comes would carry it off
            self.following = False
            self.post_message(self.Followed())
        if region.height >= self.size.height or region.y < self.scroll_y:
            self.scroll_to(y=region.y, animate=False, force=True)
        elif region.bottom > self.scroll_y + self.size.height:
            self.scroll_to(y=region.bottom - self.size.height, animate=False, force=True)
        self._note_place()  # which a scroll did already, if there was one
        self._check_edges_soon()

    # ---- cursor

    def watch_cursor(self, old: int | None, new: int | None) -> None:
        for message_id, selected in ((old, False), (new, True)):
            if message_id is not None and (view := self.view(message_id)) is not None:
                view.set_class(selected, "-cursor")
        if new is None and not self.following and not self.later and self.scroll_y >= self.max_scroll_y:
            self.following = True
            self.post_message(self.Followed())
        self.post_message(self.CursorMoved(self.selected))

    async def action_cursor(self, step: int) -> None:
        await self.move_cursor(step)

    def action_want(self, what: str) -> None:
        self.post_message(self.Wanted(what))

    async def move_cursor(self, step: int) -> None:
        """Select the message `step` further down; without a selection, the last one in view. Past the end: none."""
        if not self._path:
            return
        ids = [message.id for message in self._path]
        if self.cursor is None or self.cursor not in ids:
            await self.go_to(self._last_in_view())
            return
        at = ids.index(self.cursor) + step
        if 0 <= at < len(ids):
            await self.go_to(ids[at])

    def _last_in_view(self) -> int:
        bottom = self.scroll_y + self.size.height
        seen = [view.message.id for view in self._views if view in self._regions and self._regions[view].y < bottom]
        return seen[-1] if seen else self._path[-1].id

    @property
    def selected(self) -> Message | None:
        """The message under the cursor."""
        return next((message for message in self._path if message.id == self.cursor), None)


def _common(old: Sequence[Message], new: Sequence[Message]) -> int:
    """How many messages both begin with. A reply that grows is the same message."""
    count = 0
    for a, b in zip(old, new, strict=False):
        if a.id != b.id or (a.state != b.state and a.state != "streaming"):
            break
        count += 1
    return count
