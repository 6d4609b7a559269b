"""How a list shows a chat: two lines of text. Pure."""

from __future__ import annotations

from datetime import datetime

from textual.content import Content

from app.sanitize import sanitize
from app.store import Found, Words

MARK, PIN = "✓", "★"
UNTITLED = "Chat without a name"
SIGNS = 2
"""Cells at the start of a row that hold its mark."""
_MUTED, _HIT = "dim", "bold underline"


def row(found: Found, words: Words, *, marked: bool, current: bool, now: float) -> Content:
    """The title with its signs and tags; below it when the chat was used, and where the words are or how it ends."""
    chat = found.chat
    title = _line(chat.title)
    sign = MARK if marked else "›" if current else " "
    first = Content.assemble(
        (sign, "bold"), " ", f"{PIN} " if chat.pinned else "",
        _marked(title, words, "bold") if title else Content.styled(UNTITLED, _MUTED),
        *((f"  #{_line(tag)}", _MUTED) for tag in chat.tags),
    )
    count = f"{found.hits} found" if found.hits else "1 message" if chat.messages == 1 else f"{chat.messages} messages"
    place = _snippet(found) if found.hit is not None else Content.styled(_line(chat.last_line), _MUTED)
    return Content("\n").join([first, Content.assemble((f"  {when(chat.updated, now)} · {count} · ", _MUTED), place)])


def when(seconds: float, now: float) -> str:
    """A moment in few characters: the older, the coarser."""
    age = max(0.0, now - seconds)
    then, today = datetime.fromtimestamp(seconds), datetime.fromtimestamp(now)
    if age < 60:
        return "just now"
    if age < 3600:
        return f"{age // 60:.0f} min ago"
    if then.date() == today.date():
        return then.strftime("%H:%M")
    if then.year == today.year:
        return f"{then.day} {then:%b}"
    return then.strftime("%Y-%m-%d")


def _snippet(found: Found) -> Content:
    assert found.hit is not None
    return Content.assemble(*((_line(piece), _HIT if hit else _MUTED) for piece, hit in found.hit.snippet))


def _marked(text: str, words: Words, style: str) -> Content:
    pieces = words.marked(text) if words else ((text, False),)
    return Content.assemble(*((piece, f"{style} underline" if hit else style) for piece, hit in pieces))


def _line(text: str) -> str:
    return sanitize(text).replace("\n", " ").replace("\t", " ")
