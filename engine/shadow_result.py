"""What a second reading of a reply says (engine/shadow.py). Pure, and apart from that, because the owner of an engine's
process receives it without llama.cpp."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["exact", "near ties", "drift", "not checked"]


@dataclass(frozen=True, slots=True)
class ShadowResult:
    """What the second reading of one reply said."""

    verdict: Verdict
    tokens: int = 0
    departures: int = 0
    """Greedy: places where the reply's token is not the target's first choice."""
    largest_gap: float = 0.0
    """Greedy: the largest distance of such a token from the first choice, in nats."""
    bound: float | None = None
    """Greedy: what counts as a near tie, in nats; None where no place needed it."""
    forbidden: int = 0
    """Drawn: tokens that had no probability; a reply is read up to the first of them."""
    borderline: int = 0
    """Drawn: tokens that a filter's edge, moved by rounding, may have let through."""
    e_value: float | None = None
    """Drawn: evidence against the target's distribution (engine/evidence.py)."""
    log_likelihood: float | None = None
    """Mean for a token, under the target at temperature 1 when greedy, else under the distribution it was drawn from."""
    reason: str = ""
    """Why it was not checked."""
