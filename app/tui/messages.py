"""Messages that cross screens."""

from __future__ import annotations

from textual.message import Message

from app.chat.events import HostEvent


class HostSaid(Message):
    """The engine host has something to tell."""

    def __init__(self, event: HostEvent) -> None:
        super().__init__()
        self.event = event
