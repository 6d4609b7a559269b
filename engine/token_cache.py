"""Which tokens a context's KV cache holds, for one sequence. The only code that truncates a cache.

Used for the target (engine.session) and for the draft (engine.drafters.model). Truncation is lazy: `keep` only
notes how much is still wanted, and the next `extend` takes the rest back in one go. Recurrent models allow one
rollback per decode, and a cancelled or stopped reply then costs nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from engine.errors import DecodeAborted, DecodeFailed
from engine.llama.context import Context


class TokenCache:
    """Invariant: `held` are the tokens in the context's cache, of which the first `wanted` are still valid."""

    def __init__(self, context: Context, sequence: int = 0) -> None:
        self.context = context
        self.sequence = sequence
        self.held: list[int] = []
        self.wanted = 0
        self._in_whole_batches = 0

    def keep(self, length: int) -> None:
        """Only the first `length` tokens are valid from now on."""
        self.wanted = min(self.wanted, length)

    def match(self, tokens: Sequence[int], start: int = 0) -> int:
        """Keep the longest prefix shared with `tokens`, known to be equal up to `start`; its length."""
        limit = min(self.wanted, len(tokens))
        n = min(start, limit)
        while n < limit and self.held[n] == tokens[n]:
            n += 1
        self.keep(n)
        return n

    def reproducible(self, length: int) -> int:
        """Of the first `length` tokens, how many were read as a first reading would: in whole batches from the start.

        The last bits of what a token leaves in the cache depend on how many were read together with it.
        """
        size = self.context.batch_size
        return min(length, self.wanted, self._in_whole_batches) // size * size

    def extend(self, tokens: Sequence[int], outputs: int) -> None:
        """Read `tokens` after the wanted ones, in batches; the last `outputs` rows give logits.

        `outputs` must not exceed a batch. Where the cache refuses to take tokens back, everything is read again:
        slow, but right. Raises DecodeAborted and DecodeFailed; the cache stays consistent with what was read.
        """
        unread = [*self._rewind(), *tokens]
        size = self.context.batch_size
        while unread:
            # The rows that give logits must share one decode.
            n = len(unread) if len(unread) <= size else min(size, len(unread) - outputs)
            chunk, unread = unread[:n], unread[n:]
            before = len(self.held)
            try:
                self.context.decode(chunk, before, 0 if unread else outputs, self.sequence)
            except (DecodeAborted, DecodeFailed):
                self.held = (self.held + chunk)[: self.context.length(self.sequence)]
                self.wanted = len(self.held)
                self._in_whole_batches = self.reproducible(self.wanted)
                raise
            self.held.extend(chunk)
            self.wanted = len(self.held)
            if n == size and self._in_whole_batches == before:
                self._in_whole_batches += n

    def _rewind(self) -> list[int]:
        """Take back what is no longer wanted; the tokens that must be read again (none where rollback works)."""
        if self.wanted == len(self.held):
            return []
        kept = self.held[: self.wanted]
        if kept and self.context.truncate(len(kept), self.sequence):
            self._in_whole_batches = self.reproducible(len(kept))
            self.held = kept
            return []
        self.clear()
        return kept

    @property
    def in_whole_batches(self) -> int:
        """How many of the held tokens were read in whole batches from the start; see `reproducible`."""
        return self._in_whole_batches

    def settle(self) -> None:
        """Take back now what is no longer wanted; where the cache cannot, it is emptied, as the next `extend` would."""
        self._rewind()

    def load(self, tokens: list[int], state: memoryview, in_whole_batches: int) -> bool:
        """Hold `tokens`, whose `state` a context like this one gave. False if llama.cpp does not take it: empty then."""
        self.clear()
        if not self.context.load_state(state, self.sequence) or self.context.length(self.sequence) != len(tokens):
            self.context.clear(self.sequence)
            return False
        self.held, self.wanted, self._in_whole_batches = tokens, len(tokens), in_whole_batches
        return True

    def clear(self) -> None:
        """Forget everything."""
        self.context.clear(self.sequence)
        self.held, self.wanted, self._in_whole_batches = [], 0, 0


def can_roll_back(context: Context, *, one_by_one: bool = False) -> bool:
    """Try it: read three tokens, take two back. `one_by_one`: over several decodes, as drafting reads them; recurrent
    layers keep no states that far. Leaves the cache empty."""
    try:
        for position in range(3 if one_by_one else 1):
            context.decode([1] if one_by_one else [1, 1, 1], position, 1)
        return context.truncate(1) and context.length() == 1
    finally:
        context.clear()
