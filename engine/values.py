"""Frozen values that the stages of decoding pass to each other, and the events a caller receives.

Pure data: no llama.cpp, no I/O. Token ids are ints in the target's vocabulary; times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from engine.errors import BadRequest
from engine.sampling import Distribution, SamplingParams

TokenId = int
PairPlace = tuple[float, float, float]
"""What one place of a text says of a pair: the draft's confidence in its candidate, the target's top probability, and the
chance that the candidate is kept."""
Role = Literal["system", "user", "assistant"]
FinishReason = Literal["stop", "length", "context", "cancelled"]
Origin = Literal["target", "model", "ngram"]
"""Who proposed a kept token: the target itself, the draft model, or the n-gram lookup."""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One turn as the chat template sees it."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One reply to produce. Either `messages` (rendered by the chat template) or raw `prompt` text."""

    messages: tuple[ChatMessage, ...] = ()
    prompt: str | None = None
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()
    mode: str = "auto"
    """`auto`, `plain`, `ngram`, `draft` or `fixed:K`; see engine.length.parse_mode."""
    seed: int | None = None
    """None draws one. A given seed also makes `auto` decide without its clock, so the text repeats."""
    trace: Path | None = None
    """Where to append one JSON line per round."""
    overflow: Literal["drop", "stop"] = "drop"
    """When the messages do not fit: leave the oldest out, or raise ContextFull with the numbers."""
    rule: Literal["block", "match"] = "block"
    """`match` (sample from the target and compare, with a greedy draft) exists only to be compared with."""

    @property
    def reproducible(self) -> bool:
        """Whether a draw may hang on the last bits of a probability and still has to come out as the last time, which
        costs reading some of the prompt again."""
        return self.seed is not None and not self.sampling.greedy


@dataclass(frozen=True, slots=True)
class Draft:
    """A candidate block: tokens, and for each the distribution it was drawn from.

    `probs[i]` is the q that `tokens[i]` was really drawn from; None means a point mass (n-gram lookup,
    greedy draft), as verification treats both alike. `confidence[i]` in [0, 1] is the drafter's own
    estimate that the target keeps `tokens[i]`; it guides lengths only and never touches exactness.
    """

    tokens: tuple[TokenId, ...] = ()
    probs: tuple[Distribution | None, ...] = ()
    confidence: tuple[float, ...] = ()
    origin: Origin = "target"
    match_length: int = 0
    """For an n-gram draft: how many trailing tokens matched."""

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True, slots=True)
class Round:
    """What one round did, for metrics, traces and the readout. Times in seconds."""

    origin: Origin
    candidates: tuple[TokenId, ...]
    confidence: tuple[float, ...]
    judged: int
    """How many of the candidates were kept or refused; what stands behind an accepted end of the reply was neither."""
    accepted: int
    """Of a reply that ended inside the block, possibly more than `judged`."""
    emitted: tuple[TokenId, ...]
    """Tokens this round added to the reply (fewer than accepted + 1 when the reply ended inside)."""
    context: int
    """Committed tokens before the round."""
    match_length: int
    parked: bool
    draft_seconds: float
    target_seconds: float
    sampling_seconds: float
    total_seconds: float
    expected_seconds: float | None
    """What the length rule thought drafting and checking would cost; None for fixed rules."""
    reason: str
    """Why this length, in words."""
    plain_seconds: float | None = None
    """What one row through the target takes here now: a plain token, less its sampling. None: not measured."""
    ended: bool = False
    """Whether the token that ends a turn came after those emitted: it is no part of the reply, but took its time."""

    @property
    def produced(self) -> int:
        """Tokens that the round's time went into: what a speed counts."""
        return len(self.emitted) + self.ended


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """`fraction` in [0, 1] of the named model read into memory; stage `measure` is the one-time calibration."""

    stage: Literal["target", "draft", "measure"]
    fraction: float


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Prompt reading: `done` of `total` tokens are in the KV cache, `cached` of them from earlier turns."""

    done: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class Notice:
    """One line the user should read (turns dropped, a draft that cannot be used, ...)."""

    text: str
    dropped: int = 0
    """How many of the oldest messages (leading system messages not counted) are no longer read, when that is the news."""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """New reply text, never empty."""

    text: str
    origins: tuple[Origin, ...]
    """For every token that completed characters of the text, who proposed it. Tokens of earlier rounds come first where
    their text was held back."""
    lengths: tuple[int, ...]
    """The characters that each of them completed; they add up to the text's."""


@dataclass(frozen=True, slots=True)
class RoundDone:
    """One round's numbers and the sentence that explains the controller's state."""

    round: Round
    state: str
    action: str | None = None
    """What the controller did in this round to keep a loss away (shortened, parked, measured anew), and why."""


@dataclass(frozen=True, slots=True)
class Written:
    """A reply as tokens: the prompt it stands behind, its own, and whether an end-of-generation token ended it."""

    prompt: tuple[TokenId, ...]
    reply: tuple[TokenId, ...]
    """Without the token that ended it."""
    ended: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """The reply's end. `text` is the whole reply; `report` is the JSON object `ask --json` prints, less
    the fields only the app knows (models' paths, version)."""

    reason: FinishReason
    text: str
    report: dict[str, Any]
    written: Written


GenerationEvent = PrefillProgress | Notice | TextDelta | RoundDone | Finished


@dataclass(frozen=True, slots=True)
class LoadConfig:
    """What to load and how. Only what the caller sets is fixed; None leaves the choice to the engine."""

    target: Path
    draft: Path | None = None
    context: int = 4096
    """Tokens; clipped to what the target was trained on."""
    target_gpu_layers: int | None = None
    """None: all layers where the build has a GPU, else 0."""
    draft_gpu_layers: int | None = None
    threads: int | None = None
    batch_threads: int | None = None
    flash_attention: bool | None = None
    kv_type: Literal["f16", "q8_0", "q4_0"] = "f16"
    batch: int = 512
    """Prompt tokens per decode (n_batch and n_ubatch)."""
    max_block: int = 64
    """Most rows one verification decode may have; sizes the logits buffer."""
    profile_dir: Path | None = None
    """Where measured costs live; None keeps them in memory."""
    log_file: Path | None = None
    """Where llama.cpp's log lines go; None drops them."""

    def __post_init__(self) -> None:
        """Raise BadRequest naming the first setting that is out of range."""
        checks = (
            ("context", self.context >= 256, "256 or more"),  # llama.cpp rounds up to a multiple of 256
            ("batch", self.batch >= 64, "64 or more"),  # calibration reads that many at once
            ("max_block", self.max_block >= 1, "1 or more"),
            ("threads", self.threads is None or self.threads >= 1, "1 or more"),
            ("batch_threads", self.batch_threads is None or self.batch_threads >= 1, "1 or more"),
            ("kv_type", self.kv_type in ("f16", "q8_0", "q4_0"), "f16, q8_0 or q4_0"),
        )
        for name, ok, meaning in checks:
            if not ok:
                raise BadRequest(f"{name} is {getattr(self, name)!r}; it must be {meaning}")
