"""What an engine's process and its owner say to each other over one pipe. Every message names the call it is about,
so that what an abandoned reply still sends cannot be taken for the next one's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.values import GenerationEvent, LoadProgress

LOADING = 0
"""The number of the call that the start of the process is."""


@dataclass(frozen=True, slots=True)
class Call:
    """Owner to process: run one of Engine's methods; `close` ends the process."""

    number: int
    method: str
    args: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Ready:
    """The models are loaded."""

    notices: tuple[str, ...]
    load_seconds: float
    context: int
    description: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Returned:
    """The call is over."""

    value: Any = None


@dataclass(frozen=True, slots=True)
class Raised:
    """The call failed with the EngineError of this name."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Message:
    """Process to owner."""

    number: int
    content: tuple[GenerationEvent, ...] | LoadProgress | Ready | Returned | Raised
