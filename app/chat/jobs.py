"""What the engine host can be asked to do: frozen values. Pure data, cheap to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app.settings import ChatSettings, OnContextFull
    from engine import ChatMessage


@dataclass(frozen=True, slots=True)
class ReplyJob:
    """One reply to make. It has been started in the store, and the message it answers is stored."""

    chat_id: int
    message_id: int
    """The reply's own row."""
    messages: tuple[ChatMessage, ...]
    """All the model shall read, the system prompt included and the user's message last; see app/chat/overflow.py."""
    settings: ChatSettings
    overflow: OnContextFull = "drop"


@dataclass(frozen=True, slots=True)
class TitleJob:
    """A title to make for a chat, from what was said in it so far. Given up for anything the user asks for."""

    chat_id: int
    messages: tuple[ChatMessage, ...]
    """As of the reply that was just made, and the reply itself as the last."""
