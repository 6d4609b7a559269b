"""The chats that fit what stands in a search field, each with the place where it was found."""

from __future__ import annotations

from dataclasses import dataclass

from app.chat.conversation import ChatSummary
from app.store.search import Hit, Words
from app.store.store import ChatStore

_HITS = 200
"""Messages looked at for the places; a chat whose hits are all older is found without one."""


@dataclass(frozen=True, slots=True)
class Found:
    """A chat that fits."""

    chat: ChatSummary
    hit: Hit | None = None
    """The latest message that holds the words; None where only the title does, or nothing was searched for."""
    hits: int = 0
    """How many messages do, among the latest of all chats."""


def find_chats(store: ChatStore, text: str, limit: int) -> tuple[list[Found], Words]:
    """Chats in the order of `ChatStore.chats` that hold all words of `text`, and these words. `#tag` at the start is no word:
    it keeps the chats with that tag (a blank in it is typed as `-`). Raises StoreError."""
    tag, query = _split(store, text)
    chats = store.chats(query=query, tag=tag, limit=limit)
    latest: dict[int, Hit] = {}
    counts: dict[int, int] = {}
    for hit in store.search(query, limit=_HITS):
        latest.setdefault(hit.chat_id, hit)
        counts[hit.chat_id] = counts.get(hit.chat_id, 0) + 1
    return [Found(chat, latest.get(chat.id), counts.get(chat.id, 0)) for chat in chats], Words(query)


def _split(store: ChatStore, text: str) -> tuple[str | None, str]:
    first, _, rest = text.strip().partition(" ")
    if first.startswith("#"):
        for tag, _count in store.tags():
            if tag.casefold().replace(" ", "-") == first[1:].casefold():
                return tag, rest
    return None, text
