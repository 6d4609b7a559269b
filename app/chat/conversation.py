"""The values of a chat: its messages form a tree, of which one branch is shown.

Frozen, and free of SQL, widgets and the engine. Times are seconds since 1970 (UTC). Ids are the store's; a parent's id
is always smaller than its children's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from app.settings import ChatSettings

Role = Literal["system", "user", "assistant"]
MessageKind = Literal["message", "summary"]
"""`summary` stands for everything above it on its branch, which the model no longer reads."""
MessageState = Literal["complete", "streaming", "cancelled", "length", "context", "interrupted", "failed"]
"""How a message ended. `length`: at max_tokens; `context`: the context was full; `interrupted`: the program that wrote it
died; `failed`: the engine did. Everything but `complete` and `streaming` is a kept part of a reply."""
Origin = Literal["target", "model", "ngram"]
"""Who proposed a kept token, in the engine's words."""

_LETTERS: dict[Origin, str] = {"target": "t", "model": "m", "ngram": "n"}
_ORIGINS: dict[str, Origin] = {letter: origin for origin, letter in _LETTERS.items()}
_RUN = re.compile(r"([tmn])(\d+)")


@dataclass(frozen=True, slots=True)
class OriginSpan:
    """`characters` of the reply's text, the next ones in order, that `origin` proposed."""

    origin: Origin
    characters: int


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file that goes with a message."""

    name: str
    text: str
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Origins and report are kept as they are stored and read on demand, so that a chat of 5,000 messages
    opens without parsing thousands of reports that nobody looks at."""

    id: int
    chat_id: int
    parent_id: int | None
    role: Role
    text: str
    created: float
    state: MessageState = "complete"
    attachments: tuple[Attachment, ...] = ()
    packed_origins: str = ""
    """See pack_origins."""
    packed_report: str | None = None
    """JSON."""
    kind: MessageKind = "message"

    @property
    def origins(self) -> tuple[OriginSpan, ...]:
        """Who proposed which part of the text; empty where nobody noted it."""
        return unpack_origins(self.packed_origins)

    @property
    def report(self) -> dict[str, Any] | None:
        """The engine's numbers for this reply (its `Finished.report`); None where there are none."""
        return None if self.packed_report is None else json.loads(self.packed_report)


@dataclass(frozen=True, slots=True)
class Chat:
    """A chat without its messages."""

    id: int
    title: str
    """Empty until somebody gives one."""
    created: float
    updated: float
    """When a message was last added or finished."""
    pinned: bool
    tags: tuple[str, ...]
    settings: ChatSettings
    unsent: str
    """What stands in the prompt and was not sent."""
    leaf_id: int | None
    """The last message of the branch shown; None: no messages."""


@dataclass(frozen=True, slots=True)
class ChatSummary:
    """A chat as a list shows it."""

    id: int
    title: str
    created: float
    updated: float
    pinned: bool
    tags: tuple[str, ...]
    messages: int
    """On all branches."""
    last_line: str
    """How the last message shown begins, on one line."""


def pack_origins(spans: Iterable[OriginSpan]) -> str:
    """The spans as run lengths, neighbours of one origin joined: `t12m30t1`."""
    runs: list[tuple[str, int]] = []
    for span in spans:
        letter = _LETTERS[span.origin]
        if span.characters <= 0:
            continue
        if runs and runs[-1][0] == letter:
            runs[-1] = (letter, runs[-1][1] + span.characters)
        else:
            runs.append((letter, span.characters))
    return "".join(f"{letter}{count}" for letter, count in runs)


def unpack_origins(packed: str) -> tuple[OriginSpan, ...]:
    """The spans that `pack_origins` wrote."""
    return tuple(OriginSpan(_ORIGINS[letter], int(count)) for letter, count in _RUN.findall(packed))
