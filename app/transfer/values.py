"""What every reader of a foreign file returns, and how all of them fail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.chat.conversation import Chat, Message
from app.errors import AppError
from app.store.rows import storable


class TransferError(AppError):
    """The file cannot be read or written; the message is one line that names it."""


@dataclass(frozen=True, slots=True)
class ReadChat:
    """A chat read from a file, with ids that mean something within it only; parents stand before their children."""

    chat: Chat
    messages: tuple[Message, ...]
    left_out: int = 0
    """Parts that are no text: images, files, tool calls."""


def number(value: Any, otherwise: float) -> float:
    """`value` if it is a number that can be a time, else `otherwise`."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < 1e11
    return float(value) if usable else otherwise


def text_of(value: Any) -> str:
    """`value` if it is text, else nothing."""
    return storable(value) if isinstance(value, str) else ""


def one_line(value: Any) -> str:
    """A title."""
    return " ".join(text_of(value).split())
