"""What a drafter must do. `observe` reaches every drafter each round, whether or not its proposal was used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from engine.values import Draft, TokenId


class Drafter(Protocol):
    """Proposes candidate tokens to follow the committed ones."""

    def begin(self, tokens: Sequence[TokenId]) -> None:
        """A new reply starts after `tokens` (the whole prompt). Must be cheap: no model is run here."""

    def propose(self, limit: int) -> Draft:
        """At most `limit` candidates to follow the committed tokens; an empty draft is a normal answer."""

    def observe(self, tokens: Sequence[TokenId]) -> None:
        """`tokens` were just committed to the session (accepted candidates and the target's own)."""
