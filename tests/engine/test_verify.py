"""Block verification against the target's own chain: every block enumerated, the uniforms integrated exactly.

A chain maps a prefix to the distribution of the next token. The law of what a round emits, continued by the
target's chain to a fixed length, must be the target's law of that length, to 1e-12.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.sampling import Distribution
from engine.values import Draft
from engine.verify import accept_block, accept_by_match, acceptance, remainder, resample

Prefix = tuple[int, ...]
Chain = Callable[[Prefix], Distribution]
Law = dict[Prefix, float]
NEARLY_1 = float(np.nextafter(1, 0))


def weighted(*weights: float, listed: Sequence[int] | None = None) -> Distribution:
    """Token i with weight i; only `listed` ids are kept in the sparse form (default: those above 0)."""
    ids = [i for i, w in enumerate(weights) if w > 0] if listed is None else list(listed)
    probs = np.array([weights[i] for i in ids], dtype=np.float64)
    return Distribution(np.array(ids, dtype=np.int32), probs / probs.sum())


def blocks(q: Chain, n: int, more: Callable[[Prefix], bool]) -> Iterator[tuple[Prefix, float]]:
    """Every block of at most n tokens the draft can draw, with its chance; `more` decides to go on."""
    stack: list[tuple[Prefix, float]] = [((), 1.0)]
    while stack:
        block, chance = stack.pop()
        if len(block) == n or not more(block):
            yield block, chance
            continue
        q_next = q(block)
        stack += [
            ((*block, int(x)), chance * float(c)) for x, c in zip(q_next.ids, q_next.probs, strict=True) if c
        ]


def as_draft(block: Prefix, q: Chain, point_mass: bool = False) -> Draft:
    probs = tuple(None if point_mass else q(block[:i]) for i in range(len(block)))
    return Draft(block, probs, (0.0,) * len(block))


def targets_of(block: Prefix, p: Chain) -> list[Distribution]:
    return [p(block[:i]) for i in range(len(block) + 1)]


def lengths(draft: Draft, targets: Sequence[Distribution]) -> list[float]:
    """Chance of each accepted length: h_t times (1 - h_i) for every longer i."""
    chances, left = [0.0] * (len(draft) + 1), 1.0
    for i, h in acceptance(draft, targets):
        assert 0 <= h <= 1
        chances[i] = left * h
        left *= 1 - h
    chances[0] = left
    return chances


def extend(p: Chain, prefix: Prefix, chance: float, length: int, law: Law) -> None:
    """Add to `law` every continuation of `prefix` by p's chain to `length` tokens."""
    if len(prefix) == length:
        law[prefix] = law.get(prefix, 0.0) + chance
        return
    p_next = p(prefix)
    for x, c in zip(p_next.ids, p_next.probs, strict=True):
        if c:
            extend(p, (*prefix, int(x)), chance * float(c), length, law)


def check_round(
    p: Chain, q: Chain, n: int, point_mass: bool = False, more: Callable[[Prefix], bool] = lambda _: True
) -> float:
    """Assert that one round emits the target's law and keeps no fewer than token-by-token rejection.

    Returns the expected accepted length.
    """
    emitted: Law = {}
    expected: Law = {}
    extend(p, (), 1.0, n + 1, expected)
    kept = kept_by_token = 0.0
    for block, chance in blocks(q, n, more):
        draft, targets = as_draft(block, q, point_mass), targets_of(block, p)
        ratios = [min(1.0, p(block[:i]).prob(x) / q(block[:i]).prob(x)) for i, x in enumerate(block)]
        kept_by_token += chance * sum(np.cumprod(ratios))
        for t, c in enumerate(lengths(draft, targets)):
            if c == 0:
                continue
            kept += chance * c * t
            rest = remainder(draft, targets, t)
            for x, r in zip(rest.ids, rest.probs, strict=True):
                extend(p, (*block[:t], int(x)), chance * c * float(r), n + 1, emitted)
    worst = max(abs(emitted.get(s, 0.0) - expected.get(s, 0.0)) for s in emitted | expected)
    assert worst < 1e-12
    assert kept > kept_by_token - 1e-12
    return kept


def random_chain(seed: int, vocab: int, shape: str) -> Chain:
    """A chain whose every next-token distribution has the given shape."""

    @cache
    def chain(prefix: Prefix) -> Distribution:
        rng = np.random.default_rng([seed, *prefix])
        weights = rng.exponential(size=vocab) ** 2
        kept = np.sort(rng.permutation(vocab)[: rng.integers(1, vocab)])
        match shape:
            case "one-hot":
                return Distribution.one_hot(int(weights.argmax()))
            case "sparse":
                return weighted(*weights, listed=kept.tolist())
            case "listed zeros":
                weights[kept] = 0
                return weighted(*weights, listed=range(vocab))
            case "low":
                return weighted(*weights[: vocab // 2])
            case "high":
                return weighted(*[0.0] * (vocab // 2), *weights[vocab // 2 :])
            case "mixed":
                shape_here = rng.choice(["one-hot", "sparse", "listed zeros", "dense"])
                return random_chain(seed, vocab, shape_here)(prefix)
        return weighted(*weights)

    return chain


SHAPES = ("dense", "sparse", "one-hot", "listed zeros", "low", "high", "mixed")


@pytest.mark.parametrize(("vocab", "n"), [(3, 1), (3, 2), (3, 3), (4, 2)])
@pytest.mark.parametrize(("of_p", "of_q"), list(itertools.product(SHAPES, SHAPES)))
def test_a_round_emits_exactly_the_targets_law(vocab: int, n: int, of_p: str, of_q: str) -> None:
    check_round(random_chain(1, vocab, of_p), random_chain(2, vocab, of_q), n)


@pytest.mark.parametrize("of_p", SHAPES)
def test_a_point_mass_draft_is_exact_and_equals_a_one_hot(of_p: str) -> None:
    p, q = random_chain(3, 3, of_p), random_chain(4, 3, "one-hot")
    assert check_round(p, q, 3, point_mass=True) == check_round(p, q, 3)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_draft_equal_to_the_target_is_kept_whole(shape: str) -> None:
    p = random_chain(5, 3, shape)
    assert check_round(p, p, 3) == pytest.approx(3, abs=1e-12)


def test_the_papers_example() -> None:
    """The motivating one of arXiv 2403.10444: 11/9 tokens kept, where token-by-token rejection keeps 10/9."""
    kept = check_round(lambda _: weighted(1, 2), lambda _: weighted(2, 1), 2)
    assert kept == pytest.approx(11 / 9, abs=1e-12)


def test_a_length_chosen_from_the_tokens_kept_so_far_stays_exact() -> None:
    p, q = random_chain(6, 3, "dense"), random_chain(7, 3, "dense")
    check_round(p, q, 3, more=lambda block: not block or block[-1] != 2)
    check_round(p, q, 3, more=lambda block: q(block).probs.max() > 0.5)


def test_dropping_a_drawn_token_for_what_it_is_would_bias_the_text() -> None:
    """Why the contract forbids it: with p = q = (1/2, 1/2), dropping every 1 makes 0 come out with 3/4."""
    half = weighted(1, 1)
    kept, dropped = as_draft((0,), lambda _: half), Draft()
    assert lengths(kept, [half, half]) == [0.0, 1.0]
    zero = 0.5 * 1 + 0.5 * remainder(dropped, [half], 0).prob(0)
    assert zero == 0.75


chains = st.lists(
    st.tuples(*[st.integers(0, 4)] * 3).filter(any), min_size=40, max_size=40
)  # for the 1 + 3 + 9 + 27 prefixes of at most three out of three tokens


def chain_from(table: Sequence[tuple[int, ...]]) -> Chain:
    places = {s: i for i, s in enumerate(s for k in range(4) for s in itertools.product(range(3), repeat=k))}
    return cache(lambda prefix: weighted(*table[places[prefix]]))


@settings(max_examples=60, deadline=None)
@given(chains, chains)
def test_any_pair_of_chains(p_table: list[tuple[int, ...]], q_table: list[tuple[int, ...]]) -> None:
    check_round(chain_from(p_table), chain_from(q_table), 3)


Exact = Sequence[Sequence[Fraction]]


def paper_h(block: Prefix, p: Exact, q: Exact) -> list[Fraction]:
    """h_1..h_n in rational arithmetic, straight from the paper."""
    P, h = [Fraction(1)], []
    for i, x in enumerate(block):
        P.append(min(Fraction(1), P[-1] * p[i][x] / q[i][x]))
    for i in range(1, len(block)):
        R = sum((max(Fraction(0), P[i] * a - b) for a, b in zip(p[i], q[i], strict=True)), Fraction(0))
        h.append(R / (R + 1 - P[i]) if R + 1 - P[i] else Fraction(1))
    return [*h, P[-1]]


@settings(max_examples=40, deadline=None)
@given(
    st.tuples(*[st.integers(0, 2)] * 3),
    st.lists(st.tuples(*[st.integers(1, 5)] * 3), min_size=7, max_size=7),
)
def test_the_uniforms_decide_with_the_papers_chances(block: Prefix, rows: list[tuple[int, ...]]) -> None:
    """accept_block over a grid of midpoints: as many of each length as the exact h allow."""
    exact = [[Fraction(w, sum(row)) for w in row] for row in rows]
    h = paper_h(block, exact[:4], exact[4:])
    targets, probs = [weighted(*row) for row in rows[:4]], [weighted(*row) for row in rows[4:]]
    draft = Draft(block, tuple(probs), (0.0,) * 3)
    steps = 7
    grid = [Fraction(2 * k + 1, 2 * steps) for k in range(steps)]
    below = [sum(u < h_i for u in grid) for h_i in h]
    left, expected = 1, [0] * 4
    for i in (3, 2, 1):
        expected[i] = left * below[i - 1] * steps ** (i - 1)
        left *= steps - below[i - 1]
    expected[0] = left
    counts = [0] * 4
    for us in itertools.product(grid, repeat=3):
        # u = h rejects; the nudge keeps a midpoint that equals h there when h comes out a bit high.
        counts[accept_block(draft, targets, [float(u) + 1e-12 for u in us])] += 1
    assert counts == expected


def test_extreme_uniforms() -> None:
    sure, never = as_draft((0,), lambda _: weighted(1, 1)), as_draft((1,), lambda _: weighted(0, 1))
    assert accept_block(sure, [weighted(1, 1)] * 2, [NEARLY_1]) == 1
    assert accept_block(never, [weighted(1)] * 2, [0.0]) == 0
    # P_1 = 1/2 and the same p and q after it: h_1 = 0, and only the whole block can be kept.
    half = weighted(1, 1)
    assert accept_block(Draft((0, 0), (half, half)), [weighted(1, 3), half, half], [0.0, 0.5]) == 0
    for u in (0.0, NEARLY_1):
        assert resample(never, [weighted(1, 0, 0, listed=range(3))] * 2, 0, u) == 0


def test_resample_draws_the_remainder_by_quantile() -> None:
    p, q = weighted(4, 3, 1), weighted(1, 1, 6)  # what is left of p: 3/8 - 0/8 of a shared 5/8
    draft = as_draft((2,), lambda _: q)
    draws = [resample(draft, [p, p], 0, u) for u in (0.0, 0.59, 0.61, NEARLY_1)]
    assert draws == [0, 0, 1, 1]
    assert resample(draft, [p, weighted(0, 0, 1)], 1, 0.5) == 2  # the bonus token


def test_a_remainder_lost_to_rounding_falls_back_to_the_target() -> None:
    p = weighted(0.1, 0.2, 0.7)
    assert remainder(as_draft((0,), lambda _: p), [p, p], 0) is p


def test_an_empty_block_draws_from_the_target() -> None:
    assert accept_block(Draft(), [weighted(0, 1)], []) == 0
    assert resample(Draft(), [weighted(0, 1)], 0, 0.3) == 1


def test_arguments_that_do_not_fit_are_refused() -> None:
    p = weighted(1, 1)
    draft = as_draft((0,), lambda _: p)
    with pytest.raises(ValueError, match="do not fit"):
        accept_block(draft, [p], [0.5])
    with pytest.raises(ValueError, match="token 2 cannot have been drawn"):
        accept_block(as_draft((2,), lambda _: p), [p, p], [0.5])


def test_matching_is_exact_but_keeps_less() -> None:
    """Over a grid of midpoints, exact for quarters: the target's law, with p(x) as the chance to keep x."""
    p = weighted(1, 1, 2)
    grid = [(k + 0.5) / 4 for k in range(4)]
    law: Law = {}
    kept = 0.0
    for us in itertools.product(grid, repeat=2):
        t, token = accept_by_match(as_draft((2,), lambda _: p), [p, p], us)
        kept += t / 16
        extend(lambda _: p, (*(2,) * t, token), 1 / 16, 2, law)
    assert kept == 0.5
    assert law == {(a, b): p.prob(a) * p.prob(b) for a in range(3) for b in range(3)}
