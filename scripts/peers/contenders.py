"""Who competes, behind one interface: a text to continue goes in, numbers come out."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

NGRAM_TYPES = ("ngram-simple", "ngram-map-k", "ngram-map-k4v", "ngram-mod", "ngram-cache")
OURS, OUR_PLAIN, THEIR_PLAIN = "paceline auto", "paceline plain", "llama-server plain"
GRID = tuple((n_max, p_min) for n_max in (1, 2, 4, 8) for p_min in (0.0, 0.6))
"""Draft lengths and least probabilities that draft-simple is tuned over."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The same for all: files, context, threads."""

    target: Path
    draft: Path
    context: int
    threads: int
    logs: Path


@dataclass(frozen=True, slots=True)
class Task:
    """One text to continue. Filters are llama.cpp's defaults: top-k 40, top-p 0.95, min-p 0.05."""

    prompt: str
    """With the chat template's markers, which are control tokens."""
    temperature: float
    max_tokens: int
    seed: int


@dataclass(frozen=True, slots=True)
class Answer:
    """`tokens_per_second` of the tokens after the first, as its own clock has it; None for a single token."""

    prompt_tokens: int
    completion_tokens: int
    """The peers count the token that ends a reply; ours leaves it out."""
    tokens_per_second: float | None
    ttft_ms: float
    drafted: int
    accepted: int
    text_sha256: str


class Runner(Protocol):
    """A process that has the models loaded."""

    def reply(self, task: Task) -> Answer:
        """From an empty cache. Raises PeerFailed."""

    def close(self) -> None: ...


class PeerFailed(Exception):
    """A peer could not be started or did not answer, in one line."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A name in the table, and how to start it."""

    name: str
    kind: str
    """`paceline`, `llama-server` or `llama-cpp-python`."""
    options: tuple[str, ...] = ()
    """llama-server: its arguments; paceline: the mode; llama-cpp-python: tokens to predict."""
    uses_draft: bool = False


def contenders(best: tuple[int, float] | None) -> list[Contender]:
    """All of them, those that stay up in every round first. `best`: what draft-simple was tuned to."""
    found = [
        Contender(OUR_PLAIN, "paceline", ("plain",)),
        Contender(OURS, "paceline", ("auto",), uses_draft=True),
        Contender(THEIR_PLAIN, "llama-server"),
        draft_simple(None),
    ]
    if best is not None:
        found.append(draft_simple(best))
    found += [Contender(f"llama-server {kind}", "llama-server", ("--spec-type", kind)) for kind in NGRAM_TYPES]
    found += [Contender(f"llama-cpp-python lookup {n}", "llama-cpp-python", (str(n),)) for n in (10, 2)]
    return found


def draft_simple(tuned: tuple[int, float] | None) -> Contender:
    """At its defaults or with a length and a least probability."""
    name, options = "llama-server draft-simple", ["--spec-type", "draft-simple"]
    if tuned is not None:
        name += f" n={tuned[0]} p={tuned[1]:g}"
        options += ["--spec-draft-n-max", str(tuned[0]), "--spec-draft-p-min", str(tuned[1])]
    return Contender(name, "llama-server", tuple(options), uses_draft=True)


def chosen(all_of_them: Sequence[Contender], only: Sequence[str]) -> list[Contender]:
    """Those whose names hold one of the words, and the three that everything is compared with."""
    anchors = (OURS, OUR_PLAIN, THEIR_PLAIN)
    return [c for c in all_of_them if c.name in anchors or not only or any(word in c.name for word in only)]


def rate(tokens: int, seconds: float) -> float | None:
    """Tokens a second after the first one."""
    return (tokens - 1) / seconds if tokens > 1 and seconds > 0 else None


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
