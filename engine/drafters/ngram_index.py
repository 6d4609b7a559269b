"""Where the newest tokens stood before: an index over a token sequence that grows with it, without rescans.

The match is the longest run of trailing tokens that occurred earlier, the most recent of equally long ones;
runs of `longest` or more count as equal. It depends on the tokens alone.

Grams of three orders, k, 2k and 4k tokens (k the shortest match allowed), are indexed: the place after a
gram's last occurrence, and from every such place the one before. The match is found in the highest order
that has seen the trailing gram, among its `candidates` newest places. So a token costs three dictionary
entries and a look-up a bounded walk, and a common pair of tokens cannot hide a long match far back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from engine.values import TokenId

Match = tuple[int, int]
"""(place of the token that followed, number of tokens before it that match)."""


class NgramIndex:
    """The tokens so far, and their longest match.

    On 95,000 word-like pieces of prompts and source code, 32 candidates predicted exactly as well as an
    unlimited walk at every match length; 4 did not.
    """

    def __init__(self, shortest: int, longest: int, candidates: int) -> None:
        if not 1 <= shortest <= longest or candidates < 1:
            raise ValueError("1 <= shortest <= longest and at least one candidate are needed")
        self.tokens: list[TokenId] = []
        self._longest = longest
        self._candidates = candidates
        orders = (4 * shortest, 2 * shortest, shortest)
        self._orders = [_Order(k) for k in orders if k <= longest]

    def append(self, tokens: Sequence[TokenId]) -> None:
        """Add `tokens` at the end."""
        self.tokens += tokens
        for order in self._orders:
            order.extend(self.tokens)

    def replace(self, tokens: Sequence[TokenId]) -> None:
        """Hold `tokens` instead: the index of their shared prefix stays, the rest is dropped or added."""
        tokens = list(tokens)
        shared = _shared_prefix(self.tokens, tokens)
        for order in self._orders:
            order.truncate(self.tokens, shared)
        del self.tokens[shared:]
        self.append(tokens[shared:])

    def longest_match(self) -> Match | None:
        """None when not even `shortest` trailing tokens occurred before."""
        tokens, end = self.tokens, len(self.tokens)
        for order in self._orders:
            source, best = -1, 0
            for place in islice(order.places(tokens), self._candidates):
                # Only a place that also agrees one token beyond the best so far can beat it.
                if best < place and tokens[place - 1 - best] == tokens[end - 1 - best]:
                    length = self._agreement(place, order.k)
                    if length > best:
                        source, best = place, length
                    if best == self._longest:
                        break
            if best:
                return source, best
        return None

    def _agreement(self, place: int, known: int) -> int:
        """How many tokens before `place` equal the trailing ones; `known` of them surely do."""
        tokens, end, most = self.tokens, len(self.tokens), min(place, self._longest)
        while known < most and tokens[place - 1 - known] == tokens[end - 1 - known]:
            known += 1
        return known


class _Order:
    """The places after every gram of `k` tokens, newest first."""

    def __init__(self, k: int) -> None:
        self.k = k
        self.before = [-1] * k
        """before[i]: the place before i that follows the same k tokens, or -1 (always so for i < k)."""
        self._last: dict[tuple[TokenId, ...], int] = {}

    def places(self, tokens: list[TokenId]) -> Iterator[int]:
        """Where the trailing gram stood before, newest first."""
        place = self._last.get(tuple(tokens[-self.k :]), -1)
        while place >= 0:
            yield place
            place = self.before[place]

    def extend(self, tokens: list[TokenId]) -> None:
        """Index every place that has a token now; the end of `tokens` has none and stays out."""
        start, k, last, before = len(self.before), self.k, self._last, self.before
        if len(tokens) <= start:
            return
        columns = (tokens[start - k + i : len(tokens) - k + i] for i in range(k))
        for place, gram in enumerate(zip(*columns, strict=True), start):
            before.append(last.get(gram, -1))
            last[gram] = place

    def truncate(self, tokens: list[TokenId], length: int) -> None:
        """Forget, newest first, the places from `length` on."""
        for place in range(len(self.before) - 1, max(length, self.k) - 1, -1):
            gram = tuple(tokens[place - self.k : place])
            earlier = self.before.pop()
            if earlier < 0:
                del self._last[gram]
            else:
                self._last[gram] = earlier


def _shared_prefix(a: list[TokenId], b: list[TokenId]) -> int:
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])
