"""Drafts by copying: where the newest tokens stood before, propose what followed them there.

The source is the longest match in the history (engine/drafters/ngram_index.py), or a passage that was being
copied when the text departed from it. Edited text goes back to its source after every edit, and there is
rarely a long match to find it by. So a match that breaks is remembered with half its length, and followed
again from where text and passage agree: on one token where the edit replaced token by token, on two where it
moved the text against the passage. Half is what keeps the lengths honest: with resumed matches among them,
drafts of one match length are kept as often as with exact matches alone.

Proposals depend on the tokens and on where replies began, never on when somebody asked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from engine.drafters.ngram_index import Match, NgramIndex
from engine.values import Draft, TokenId

# Measured by replaying edits (renames, lines added and dropped, spelling) of source files and prose: blocks
# of 15 after a match of 6 gave 9 to 13 tokens a round, exact matches alone 6 to 11. Wider limits hardly help.
_PATIENCE = 16
"""Tokens after a break in which the passage can be resumed."""
_REACH = 24
"""How far beyond the place due the text may have skipped."""


class NgramDrafter:
    """Implements engine.drafters.base.Drafter; every proposal is a point mass."""

    def __init__(self, shortest: int = 2, longest: int = 64, candidates: int = 32) -> None:
        self._shortest = shortest
        self._longest = longest
        self._index = NgramIndex(shortest, longest, candidates)
        self._match: Match | None = None
        self._broken: _Broken | None = None

    def begin(self, tokens: Sequence[TokenId]) -> None:
        """Start after `tokens`; what is indexed of the prefix they share with the history so far stays."""
        self._index.replace(tokens)
        self._match = self._index.longest_match()
        self._broken = None

    def observe(self, tokens: Sequence[TokenId]) -> None:
        """Append `tokens` to the history, following the match through each."""
        for token in tokens:
            followed = self._follow(token)
            self._index.append((token,))
            self._match = _longer(self._index.longest_match(), followed, self._resumed())
            if self._match and self._broken and self._match[1] > self._broken.length:
                self._broken = None

    def propose(self, limit: int) -> Draft:
        """At most `limit` tokens that followed the match; past the end of the history they repeat.

        A copy that reaches the tokens it has itself written goes on with them (as LZ77 does), so a sequence
        that has begun to repeat is continued to the limit.
        """
        if self._match is None or limit <= 0:
            return Draft(origin="ngram")
        place, length = self._match
        copied = self._index.tokens[place : place + limit]
        copied = (copied * -(-limit // len(copied)))[:limit]
        return Draft(tuple(copied), (None,) * limit, (0.0,) * limit, origin="ngram", match_length=length)

    def peek(self) -> tuple[TokenId, int] | None:
        """The first token `propose` would give, and its match length; no work at all."""
        return None if self._match is None else (self._index.tokens[self._match[0]], self._match[1])

    def _follow(self, token: TokenId) -> Match | None:
        """The match moved past `token`, which is about to be appended; a break is remembered instead."""
        if self._match is None:
            return None
        place, length = self._match
        if self._index.tokens[place] == token:
            return place + 1, min(length + 1, self._longest)
        half = length // 2
        if half >= self._shortest and (self._broken is None or half >= self._broken.length):
            self._broken = _Broken(place, len(self._index.tokens), half)
        return None

    def _resumed(self) -> Match | None:
        """Where to follow the broken match again, if the newest tokens say so; the nearest place wins."""
        broken, tokens, end = self._broken, self._index.tokens, len(self._index.tokens)
        if broken is None or end - broken.end > _PATIENCE:
            self._broken = None
            return None
        due = broken.place + end - broken.end  # if every token since has replaced one
        within = range(broken.place + 1, min(due + _REACH, end - 1) + 1)
        for place in sorted(within, key=lambda place: abs(place - due)):
            agreed = 1 if place == due else 2
            if tokens[place - agreed : place] == tokens[end - agreed :]:
                return place, min(broken.length + agreed, self._longest)
        return None


class _Broken(NamedTuple):
    """A match that `place` in the passage did not continue at `end` of the text."""

    place: int
    end: int
    length: int
    """What it is worth when resumed."""


def _longer(*matches: Match | None) -> Match | None:
    """The longest; of equals the first."""
    return max((m for m in matches if m), key=lambda m: m[1], default=None)
