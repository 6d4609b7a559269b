"""What the engine host tells the interface: frozen events, in the order in which things happened.

Pure data, cheap to import. Texts are sanitised: they hold no control characters but the newline and the tab, and are
plain text, never markup. Between two ModelLoading or PaceChanged events only the last matters.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from app.chat.conversation import MessageState, OriginSpan
    from app.chat.pace import PaceSnapshot


@dataclass(frozen=True, slots=True)
class ModelLoading:
    """A load goes on."""

    stage: str
    """What is being done, in words: `loading the model`."""
    fraction: float
    """Of this stage, in [0, 1]."""


@dataclass(frozen=True, slots=True)
class ModelReady:
    """Replies can be asked for."""

    target_name: str
    draft_name: str | None
    context: int
    """Tokens."""
    notices: tuple[str, ...]
    """Remarks on the choice and the load, one line each."""
    seconds: float
    device: str
    """`CPU`, or the names of the GPUs in use."""


@dataclass(frozen=True, slots=True)
class ModelMissing:
    """The models that were chosen are not on this disk; nothing is loaded, and nothing is fetched without asking."""

    files: tuple[str, ...]
    """Titles."""
    bytes: int | None
    """All of them together; None where that is not known."""


@dataclass(frozen=True, slots=True)
class ModelFailed:
    """The load came to nothing."""

    text: str
    cancelled: bool = False
    """The user stopped it."""


@dataclass(frozen=True, slots=True)
class PromptRead:
    """`done` of the prompt's `total` tokens are read, `cached` of them earlier."""

    message_id: int
    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class ReplyGrew:
    """New text of a reply, and who proposed it; the spans' characters add up to the text's. About 10 a second at most."""

    message_id: int
    text: str
    spans: tuple[OriginSpan, ...]


@dataclass(frozen=True, slots=True)
class PaceChanged:
    message_id: int
    snapshot: PaceSnapshot


@dataclass(frozen=True, slots=True)
class HostNotice:
    """One line the user should read."""

    message_id: int | None
    text: str
    dropped: int = 0
    """Above 0: the model no longer reads so many of the oldest messages of the request (system messages not counted)."""
    passing: bool = False
    """It is so now, and over with whatever is told next."""


@dataclass(frozen=True, slots=True)
class SummaryMade:
    """The context was full and older turns were summarised, so that the reply can be made. The branch now goes: older
    turns, the summary (kind `summary`), the user's message again, the reply; see app/chat/overflow.py. From here on the
    reply goes by its new id. Read the path again."""

    chat_id: int
    summary_id: int
    prompt_id: int
    """The user's message in its new place."""
    reply_id: int
    """The reply in its new place."""
    instead_of: int
    """The reply as it was asked for; its row is deleted."""


@dataclass(frozen=True, slots=True)
class ReplyEnded:
    """A reply is over, in whatever way."""

    message_id: int
    state: MessageState
    text: str
    """All of it."""
    spans: tuple[OriginSpan, ...]
    report: dict[str, Any]
    """The engine's report where it came to one, `pace` (a PaceSnapshot as JSON), and where there is one `line`, and
    `dropped` as HostNotice has it."""
    line: str | None = None
    """Why it ended early, where that is not plain from the state."""
    stored: bool = True
    """False: it is not in the store (see StoreFailed); whoever swaps the store finishes it there."""


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """The store refused a write. The reply goes on; the interface swaps the store for `to_memory()`, once."""

    text: str


@dataclass(frozen=True, slots=True)
class EngineLost:
    """The engine's process is gone (a crash, no memory, no answer). `load` starts a new one."""

    text: str
    message_id: int | None = None
    """The reply that was cut short; its ReplyEnded (`interrupted`) comes before."""


@dataclass(frozen=True, slots=True)
class TokensCounted:
    tag: object
    """As given to `count_tokens`."""
    count: int | None
    """None: no model is loaded that could count."""


@dataclass(frozen=True, slots=True)
class TitleMade:
    chat_id: int
    title: str


HostEvent = (
    ModelLoading | ModelReady | ModelMissing | ModelFailed | PromptRead | ReplyGrew | PaceChanged | HostNotice | SummaryMade
    | ReplyEnded | StoreFailed | EngineLost | TokensCounted | TitleMade
)
