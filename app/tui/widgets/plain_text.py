"""Text shown as it is, in pieces: user messages, thinking, and replies coloured by origin.

A piece that is full never changes again while the text grows, so growing costs the same at any length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content, Span

from app.chat.conversation import Origin, OriginSpan
from app.tui.markdown import Flow, Prose
from app.tui.widgets.prose import ProseView
from app.tui.widgets.thrifty import Thrifty

PIECE, LONGEST = 1500, 3000
"""Characters: a piece ends with the first line that ends after PIECE, and at LONGEST in any case."""

ORIGIN_STYLES: dict[Origin, str] = {"target": "", "model": "underline $origin-model", "ngram": "bold italic $origin-ngram"}
"""How the coloured view shows who proposed a token. Also told apart without colour."""


def pieces(text: str, start: int = 0) -> Iterator[tuple[int, int, int]]:
    """From a piece's start on: (start, end, start of the next) for each piece; the line's end between is in none."""
    while True:
        end = text.find("\n", start + PIECE)
        if end < 0 or end > start + LONGEST:
            end = start + LONGEST if len(text) > start + LONGEST else len(text)
        after = end + (text[end : end + 1] == "\n")
        yield start, end, after
        if after >= len(text):
            return
        start = after


class PlainText(Vertical, Thrifty):
    """Shows `text`; with `origins`, in the styles of who proposed what."""

    DEFAULT_CSS = """
    PlainText { height: auto; width: 1fr; }
    """

    def __init__(self, text: str = "", origins: Sequence[OriginSpan] = (), *, style: str = "", classes: str | None = None) -> None:
        super().__init__(classes=classes)
        self.text = text
        self._style = style
        self._origins = origins
        self._views: list[ProseView] = []
        self._last = 0
        """Where the last piece starts."""

    def compose(self) -> ComposeResult:
        self._views = [self._view(start, end) for start, end, _ in pieces(self.text)]
        self._last = list(pieces(self.text))[-1][0]
        yield from self._views

    def show(self, text: str, origins: Sequence[OriginSpan] = ()) -> None:
        """Show a longer text that begins with the present one, or any other."""
        grown = text.startswith(self.text)
        self.text, self._origins = text, origins
        if not self.is_mounted:
            return
        first = len(self._views) - 1 if grown else 0
        for at, (start, end, _) in enumerate(pieces(text, self._last if grown else 0), first):
            if at < len(self._views):
                self._views[at].show(self._flow(start, end))
            else:
                self._views.append(self._view(start, end))
                self.mount(self._views[-1])
            self._last, first = start, at
        for view in self._views[first + 1 :]:
            view.remove()
        del self._views[first + 1 :]

    def _view(self, start: int, end: int) -> ProseView:
        return ProseView(self._flow(start, end))

    def _flow(self, start: int, end: int) -> Flow:
        return Flow((Prose(self._content(start, end)),))

    def _content(self, start: int, end: int) -> Content:
        spans = [Span(0, end - start, self._style)] if self._style else []
        ends = accumulate(span.characters for span in self._origins)
        for span, origin_end in zip(self._origins, ends, strict=True):
            origin_start = origin_end - span.characters
            if origin_end > start and origin_start < end and ORIGIN_STYLES[span.origin]:
                spans.append(Span(max(origin_start, start) - start, min(origin_end, end) - start, ORIGIN_STYLES[span.origin]))
        return Content(self.text[start:end], spans=spans)
