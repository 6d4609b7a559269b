"""Finding words in messages: anywhere in a word, in any script, whatever the case.

Words of three characters and more go to the trigram index, always as quoted strings, so that nothing a user types is
query syntax. Shorter ones (two Chinese characters are a word, one emoji is) have no trigram: they are looked for in the
messages that the longer words leave, or in all.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from typing import Any

from app.chat.conversation import Role
from app.store.base import Part
from app.store.rows import storable

_TRIGRAM = 3
_MOST = 50
"""Words that are looked for; a pasted page has more, and SQLite a limit."""
_BEFORE, _AFTER = 40, 120
"""Characters of text a snippet shows before and after its first hit."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found."""

    chat_id: int
    message_id: int
    title: str
    """The chat's."""
    role: Role
    created: float
    snippet: tuple[tuple[str, bool], ...]
    """A line of the text around the first place, in pieces; True: a searched word."""


class Words:
    """What somebody typed into a search field. False if that was only blanks."""

    def __init__(self, query: str) -> None:
        self._words = list(dict.fromkeys(storable(query).replace("\0", " ").split()))[:_MOST]

    def __bool__(self) -> bool:
        return bool(self._words)

    @property
    def indexed(self) -> bool:
        """Whether the index narrows the search down; otherwise texts have to be looked through."""
        return any(len(word) >= _TRIGRAM for word in self._words)

    def in_messages(self) -> tuple[str, str, list[Any]]:
        """What to select from (messages m, with the index before it if that helps), the condition that a message is
        there and holds every word, and its parameters."""
        source, conditions, params = "messages m", ["m.deleted IS NULL"], []
        if self.indexed:
            source = "messages_text t CROSS JOIN messages m ON m.id = t.rowid"
            conditions.append("messages_text MATCH ?")
            params.append(" ".join('"' + w.replace('"', '""') + '"' for w in self._words if len(w) >= _TRIGRAM))
        for word in self._words:
            if len(word) < _TRIGRAM:
                condition, values = _contains(word)
                conditions.append(condition)
                params += values
        return source, " AND ".join(conditions), params

    def in_title(self) -> tuple[str, list[Any]]:
        """A condition on chats c, and its parameters."""
        return "(" + " AND ".join("instr(fold(c.title), fold(?))" for _ in self._words) + ")", list(self._words)

    def marked(self, text: str) -> tuple[tuple[str, bool], ...]:
        """The whole of `text` in pieces; True: one of the words."""
        pattern = re.compile("|".join(re.escape(w) for w in sorted(self._words, key=len, reverse=True)) or r"(?!)", re.IGNORECASE)
        pieces: list[tuple[str, bool]] = []
        end = 0
        for match in pattern.finditer(text):
            pieces += [(text[end : match.start()], False), (match.group(), True)]
            end = match.end()
        return tuple(piece for piece in (*pieces, (text[end:], False)) if piece[0])

    def snippet(self, text: str) -> tuple[tuple[str, bool], ...]:
        """One line around the first of the words."""
        places = [match.start() for word in self._words if (match := re.search(re.escape(word), text, re.IGNORECASE))]
        start = max(0, min(places, default=0) - _BEFORE)
        end = start + _BEFORE + _AFTER
        line = " ".join(text[start:end].split())
        return self.marked(("…" if start else "") + line + ("…" if end < len(text) else ""))


class Search(Part):
    """The part of the store that finds messages."""

    def search(self, text: str, chat_id: int | None = None, limit: int = 100) -> list[Hit]:
        """Messages that hold every word of `text`, the ones stored last first; in one chat, or in all."""
        if not (words := Words(text)):
            return []
        source, condition, params = words.in_messages()
        if chat_id is not None:
            condition, params = f"{condition} AND m.chat_id = ?", [*params, chat_id]
        # The joins keep this order, which lets both the index and the table be read from their ends until there are enough.
        rows = self._db.rows(
            f"SELECT m.chat_id, m.id, c.title, m.role, m.created, m.text FROM {source} CROSS JOIN chats c ON c.id = m.chat_id"
            f" WHERE {condition} AND c.deleted IS NULL ORDER BY {'t.rowid' if words.indexed else 'm.id'} DESC LIMIT ?",
            [*params, limit],
        )
        return [
            Hit(row["chat_id"], row["id"], row["title"], row["role"], row["created"], words.snippet(row["text"])) for row in rows
        ]


def _contains(word: str) -> tuple[str, list[str]]:
    """A condition that the text of m holds a word of one or two characters, and its parameters. LIKE knows the case of
    ASCII letters only; other scripts are tried in each way of writing."""
    if word.isascii():
        escaped = re.sub(r"([\\%_])", r"\\\1", word)
        return "m.text LIKE ? ESCAPE '\\'", [f"%{escaped}%"]
    letters = [sorted({char, char.lower(), char.upper()}) for char in word]
    cases = ["".join(chosen) for chosen in itertools.product(*letters)]
    return "(" + " OR ".join("instr(m.text, ?)" for _ in cases) + ")", cases
