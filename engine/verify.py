"""Stages 3 and 4 of a round: how much of a drafted block to keep, and the token that follows it.

Block verification (Sun et al., arXiv 2403.10444, algorithm 2): the emitted tokens follow exactly the
target's distribution, and the expected number kept is never below token-by-token rejection's. With the
block x_1..x_n, the target's p and the draft's q given everything before a token:

    P_0 = 1,  P_i = min(1, P_{i-1} p(x_i) / q(x_i))                        how much of x_1..x_i is due
    R_i = sum over tokens of max(0, P_i p - q), p and q after x_1..x_i     what x_{i+1} cannot supply
    h_i = R_i / (R_i + 1 - P_i) for 0 < i < n,  h_n = P_n

With independent uniforms u_i in [0, 1) the kept length t is the largest i with u_i < h_i, or 0. The next
token is drawn from max(0, P_t p - q), normalised, or from p itself when t = n. Where P_i = 1, h_i is 1:
the formula says so too, but for 0/0 at p = q, where no outcome with t <= i has any probability.

What callers must keep to, or the law is lost:
- q is the distribution x_i was really drawn from. A token chosen without chance is a point mass.
- The block's length may depend on its tokens and on every q, but a token once drawn stays in the block.
  Dropping it *because of what it is* is a second, uncounted draw.

Everything here is a pure function of its arguments; the caller brings the uniforms.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from engine.sampling import Distribution
from engine.values import Draft, TokenId


def accept_block(draft: Draft, targets: Sequence[Distribution], uniforms: Sequence[float]) -> int:
    """Stage 3: how many of the draft's tokens to keep. Wants one target more, as many uniforms."""
    if not len(draft) == len(uniforms) == len(targets) - 1:
        raise ValueError(f"{len(draft)} tokens, {len(targets)} targets, {len(uniforms)} uniforms do not fit")
    for i, h in acceptance(draft, targets):
        if uniforms[i - 1] < h:  # strict: u can be 0, and h = 0 must never pass
            return i
    return 0


def resample(draft: Draft, targets: Sequence[Distribution], t: int, u: float) -> TokenId:
    """Stage 4: the token that follows the `t` kept ones, at quantile `u` in [0, 1)."""
    return remainder(draft, targets, t).draw(u)


def acceptance(draft: Draft, targets: Sequence[Distribution]) -> Iterator[tuple[int, float]]:
    """(i, h_i) from the longest prefix that can be kept down to 1, each computed when asked for."""
    P = _due(draft, targets)
    for i in range(len(P) - 1, 0, -1):
        if P[i] == 1 or i == len(draft):
            yield i, P[i]
        else:
            R = float(targets[i].excess(P[i], _drawn_from(draft, i)).sum())
            yield i, R / (R + 1 - P[i])


def remainder(draft: Draft, targets: Sequence[Distribution], t: int) -> Distribution:
    """What the token after the `t` kept ones is drawn from."""
    p = targets[t]
    if t == len(draft):
        return p
    excess = p.excess(_due(draft, targets)[t], _drawn_from(draft, t))
    total = excess.sum()
    # Zero is reached by rounding alone: below P_t = 1 it makes h_t zero, and at P_t = 1 it means p = q, up
    # to the last bit, where p is also the limit.
    return Distribution(p.ids, excess / total) if total > 0 else p


def accept_by_match(
    draft: Draft, targets: Sequence[Distribution], uniforms: Sequence[float]
) -> tuple[int, TokenId]:
    """For comparison only: draw from the target at each place and keep the draft's tokens while they agree.

    Returns the kept length and the token that follows. As exact as block verification, and what llama.cpp
    and mlx-lm do, but it keeps fewer: a drafted x survives with p(x), not min(1, p(x)/q(x)).
    """
    for t, (p, u) in enumerate(zip(targets, uniforms, strict=True)):
        token = p.draw(u)
        if t == len(draft) or token != draft.tokens[t]:
            return t, token
    raise ValueError("a target and a uniform are needed for the place after the draft's last token")


def _due(draft: Draft, targets: Sequence[Distribution]) -> list[float]:
    """P_0, P_1, ... up to the last that is not zero: no longer prefix can be kept."""
    P = [1.0]
    for i, x in enumerate(draft.tokens):
        q = draft.probs[i]
        q_x = 1.0 if q is None else q.prob(x)
        if q_x == 0:
            raise ValueError(f"token {x} cannot have been drawn from a distribution that gives it 0")
        due = P[-1] * targets[i].prob(x) / q_x
        if due == 0:
            break
        P.append(min(1.0, due))
    return P


def _drawn_from(draft: Draft, i: int) -> Distribution:
    """The q behind draft.tokens[i]."""
    q = draft.probs[i]
    return Distribution.one_hot(draft.tokens[i]) if q is None else q
