"""Drafts by copying: where the newest tokens stood before, propose what followed them there.

Owns an index over the tokens of prompt and reply that grows with them: no model, no rescans. The match is
the longest run of trailing tokens that occurred earlier, the most recent of equally long ones, and runs of
`longest` or more count as equal. Proposals depend on the tokens alone, never on when somebody asked.

Grams of three orders, k, 2k and 4k tokens (k the shortest match allowed), are indexed: the place after a
gram's last occurrence, and from every such place the one before. The match is found in the highest order
that has seen the trailing gram, among its `candidates` newest places. So a token costs three dictionary
entries and a look-up a bounded walk, and a common pair of tokens cannot hide a long match far back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from engine.values import Draft, TokenId


class NgramDrafter:
    """Implements engine.drafters.base.Drafter; every proposal is a point mass."""

    def __init__(self, shortest: int = 2, longest: int = 64, candidates: int = 32) -> None:
        if not 1 <= shortest <= longest or candidates < 1:
            raise ValueError("1 <= shortest <= longest and at least one candidate are needed")
        self._longest = longest
        self._candidates = candidates
        self._tokens: list[TokenId] = []
        orders = (4 * shortest, 2 * shortest, shortest)
        self._orders = [_Order(k) for k in orders if k <= longest]
        self._match: tuple[int, int] | None = None
        """(place to copy from, match length) at the present position; looked up once."""
        self._match_is_known = False

    def begin(self, tokens: Sequence[TokenId]) -> None:
        """Keep what is indexed of the prefix shared with the tokens so far, drop the rest, add what is new."""
        tokens = list(tokens)
        shared = _shared_prefix(self._tokens, tokens)
        for order in self._orders:
            order.truncate(self._tokens, shared)
        del self._tokens[shared:]
        self.observe(tokens[shared:])

    def observe(self, tokens: Sequence[TokenId]) -> None:
        """Append `tokens` to the history."""
        self._tokens += tokens
        for order in self._orders:
            order.extend(self._tokens)
        self._match_is_known = False

    def propose(self, limit: int) -> Draft:
        """At most `limit` tokens that followed the match; past the end of the history they repeat.

        A copy that reaches the tokens it has itself written goes on with them (as LZ77 does), so a sequence
        that has begun to repeat is continued to the limit.
        """
        match = self._find()
        if match is None or limit <= 0:
            return Draft(origin="ngram")
        source, length = match
        copied = self._tokens[source : source + limit]
        copied = (copied * -(-limit // len(copied)))[:limit]
        return Draft(tuple(copied), (None,) * limit, (0.0,) * limit, origin="ngram", match_length=length)

    def peek(self) -> tuple[TokenId, int] | None:
        """The first token `propose` would give and its match length; the look-up is shared with it."""
        match = self._find()
        return None if match is None else (self._tokens[match[0]], match[1])

    def _find(self) -> tuple[int, int] | None:
        if not self._match_is_known:
            self._match = self._longest_match()
            self._match_is_known = True
        return self._match

    def _longest_match(self) -> tuple[int, int] | None:
        tokens, end = self._tokens, len(self._tokens)
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
        tokens, end, most = self._tokens, len(self._tokens), min(place, self._longest)
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
