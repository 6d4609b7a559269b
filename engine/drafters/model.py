"""A small model as drafter: proposals drawn from its own filtered distribution, which is handed on as q.

Owns the draft's KV cache and its lag. Nothing is read until a proposal is asked for, so a parked draft costs
nothing, the first token least of all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from engine.errors import NothingAllowed
from engine.llama.context import Context
from engine.llama.sampler import SamplerChain
from engine.sampling import Distribution, SamplingParams
from engine.token_cache import TokenCache
from engine.values import Draft, TokenId
from engine.vocabulary import SharedVocabulary

CostSink = Callable[[int, int, float], None]
"""Gets rows, context and seconds of every decode of the draft."""


def _ignore_cost(rows: int, context: int, seconds: float) -> None:
    pass


class ModelDrafter:
    """Drafts with a small model for one request at a time."""

    def __init__(self, cache: TokenCache, shared: SharedVocabulary) -> None:
        self._cache = cache
        self._shared = shared
        self._tokens: list[TokenId] = []
        self._prompt_length = 0
        self._synced = 0
        self._asked = False
        self._chain: SamplerChain | None = None
        self._params = SamplingParams()
        self._rng = np.random.default_rng(0)
        self._on_cost: CostSink = _ignore_cost
        self._reproducible = False

    def configure(
        self, params: SamplingParams, rng: np.random.Generator, on_cost: CostSink | None = None, *,
        reproducible: bool = False,
    ) -> None:
        """The next reply's sampling settings, the random stream of its proposals, who hears what decodes cost, and
        whether proposals must be bit for bit those of an empty cache (see Session.begin)."""
        self.release()
        self._params, self._rng, self._on_cost = params, rng, on_cost or _ignore_cost
        self._reproducible = reproducible

    @property
    def cache(self) -> TokenCache:
        return self._cache

    @property
    def context(self) -> Context:
        return self._cache.context

    def begin(self, tokens: Sequence[TokenId]) -> None:
        self._tokens = list(tokens)
        self._prompt_length = len(tokens)
        self._synced = self._cache.match(tokens)
        if self._reproducible:
            self._synced = self._cache.reproducible(self._synced)
            self._cache.keep(self._synced)
        self._asked = False

    def observe(self, tokens: Sequence[TokenId]) -> None:
        self._tokens.extend(tokens)
        if max(tokens, default=0) >= self._shared.size:
            self.release()  # the draft cannot read this token: `propose` has nothing to say until the next reply
        if self._chain is not None:
            for token in tokens:
                self._chain.accept(token)

    def lag(self, *, of_this_reply: bool = False) -> int:
        """Committed tokens the draft has not read; reading them comes before the next proposal.

        `of_this_reply` leaves out of account what earlier replies have left in the cache, so that the answer depends
        on this one alone.
        """
        self._synced = self._cache.match(self._tokens, self._synced)
        return len(self._tokens) - (0 if of_this_reply and not self._asked else self._synced)

    def room(self) -> int:
        """Positions left in the draft's context, which may be smaller than the target's."""
        return self._cache.context.n_ctx - len(self._tokens)

    def propose(self, limit: int, go_on: Callable[[Sequence[float]], bool] = lambda _: True) -> Draft:
        """Up to `limit` candidates; after each, `go_on(confidences so far)` may end the draft. None where a committed
        token or the place for the next one lies outside the shared ids.

        Raises as TokenCache.extend; what was read stays valid.
        """
        start = len(self._tokens) - max(1, self.lag())  # the last token is read again for its logits
        unread: list[TokenId] = self._tokens[start:]
        if min(limit, self.room()) <= 0 or max(unread) >= self._shared.size:
            return Draft()
        self._cache.keep(start)
        self._asked = True
        chain = self._chain_for_reply()
        ahead = chain.fork() if chain.stateful else chain
        tokens: list[TokenId] = []
        probs: list[Distribution | None] = []
        confidence: list[float] = []
        try:
            while True:
                before = time.perf_counter()
                self._cache.extend(unread, 1)
                logits = self._cache.context.logits(0)[: self._shared.size]
                try:
                    token, q, trust = self._draw(ahead, logits)
                except NothingAllowed:  # to the target, which may have more tokens, something is
                    break
                self._on_cost(len(unread), len(self._tokens), time.perf_counter() - before)
                tokens.append(token)
                probs.append(q)
                confidence.append(trust)
                if len(tokens) >= min(limit, self.room()) or not go_on(confidence):
                    break
                ahead.accept(token)
                unread = [token]
        finally:
            self._synced = min(self._cache.wanted, len(self._tokens))
            if ahead is not chain:
                ahead.close()
        return Draft(tuple(tokens), tuple(probs), tuple(confidence), "model")

    def _draw(self, chain: SamplerChain, logits: NDArray[np.float32]) -> tuple[TokenId, Distribution | None, float]:
        """A token, the q it was drawn from (None: a point mass), and the draft's confidence in it."""
        if self._params.greedy:
            token = chain.greedy(logits)
            return token, None, float(1 / np.exp(logits - logits[token]).sum())
        q = chain.distribution(logits)
        token = q.draw(self._rng.random())
        return token, q, q.prob(token)

    def _chain_for_reply(self) -> SamplerChain:
        """The draft's own chain, made at its first proposal of a reply with the history so far."""
        if self._chain is None:
            context = self._cache.context
            self._chain = SamplerChain(context.model, self._params, context.n_ctx, n_vocab=self._shared.size)
            self._chain.begin(self._tokens[: self._prompt_length])
            for token in self._tokens[self._prompt_length :]:
                self._chain.accept(token)
        return self._chain

    def forget(self) -> None:
        """Drop the cache."""
        self._cache.clear()
        self._synced = 0

    def release(self) -> None:
        """Free the reply's chain."""
        if self._chain is not None:
            self._chain.close()
            self._chain = None
