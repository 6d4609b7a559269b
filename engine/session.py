"""The target's side of one reply: the committed tokens, and the KV invariant.

Invariant: the cache holds all committed tokens but those not yet scored; between rounds that is exactly the
last one. `score` reads what is missing together with the candidates, so the tail of a prompt and the first
token share one decode.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.token_cache import TokenCache


class Session:
    """Committed tokens of one sequence over the target's cache. Cheap to begin anew: the cache is reused."""

    def __init__(self, cache: TokenCache) -> None:
        self._cache = cache
        self.tokens: list[int] = []

    def begin(self, prompt: Sequence[int], *, reproducible: bool = False) -> int:
        """Start from `prompt` (not empty), keeping what the cache shares with it; the number of tokens reused.

        `reproducible`: only as far as the logits are bit for bit those of a first reading.
        """
        self.tokens = list(prompt)
        reused = min(self._cache.match(prompt), len(prompt) - 1)  # the last token must be scored again for its logits
        if reproducible:
            reused = self._cache.reproducible(reused)
        self._cache.keep(reused)
        return reused

    def prefill(self) -> Iterator[int]:
        """Read the prompt up to its last batch, which the first `score` reads; yields the tokens in the cache
        after each batch. Raises as TokenCache.extend."""
        size = self._cache.context.batch_size
        while (unread := len(self.tokens) - self._cache.wanted) > size:
            start = self._cache.wanted
            self._cache.extend(self.tokens[start : start + min(size, unread - 1)], 0)
            yield self._cache.wanted

    def score(self, candidates: Sequence[int]) -> int:
        """Decode the unread tokens and `candidates` in one pass; the rows decoded.

        Afterwards `logits(i)` follows the last committed token and the first i candidates. On an error nothing
        is committed and the candidates are dropped from the cache.
        """
        unread = self.tokens[self._cache.wanted :]
        try:
            self._cache.extend([*unread, *candidates], len(candidates) + 1)
        except BaseException:
            self._cache.keep(len(self.tokens))
            raise
        return len(unread) + len(candidates)

    def logits(self, i: int) -> NDArray[np.float32]:
        """Zero-copy (n_vocab,) row of the last score; valid until the next."""
        return self._cache.context.logits(i)

    def commit(self, tokens: Sequence[int], accepted: int) -> None:
        """`tokens` joined the reply; the first `accepted` of them are candidates already in the cache."""
        self._cache.keep(len(self.tokens) + min(accepted, len(tokens)))
        self.tokens.extend(tokens)

    def room(self) -> int:
        """Tokens that can still be committed before the context is full."""
        return self._cache.context.n_ctx - len(self.tokens)

    def forget(self) -> None:
        """Drop the cache, so that the next reply reads its whole prompt."""
        self._cache.clear()
        self.tokens = []
