"""Sparse distributions: softmax, look-up, drawing and the part of one that another cannot supply."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import BadRequest
from engine.sampling import Distribution, SamplingParams

NEARLY_1 = float(np.nextafter(1, 0))
weights_by_id = st.dictionaries(st.integers(0, 12), st.integers(0, 4), min_size=1).filter(
    lambda d: any(d.values())
)


def make(weights: dict[int, float]) -> Distribution:
    ids = sorted(weights)
    probs = np.array([weights[i] for i in ids], dtype=np.float64)
    return Distribution(np.array(ids, dtype=np.int32), probs / probs.sum())


def test_from_logits_is_a_softmax_in_id_order() -> None:
    d = Distribution.from_logits(
        np.array([7, 2, 5], dtype=np.int32), np.log(np.array([2, 1, 5], dtype=np.float32))
    )
    assert d.ids.tolist() == [2, 5, 7]
    assert d.probs == pytest.approx([0.125, 0.625, 0.25], rel=1e-6)
    assert d.ids.dtype == np.int32
    assert d.probs.dtype == np.float64


def test_from_logits_survives_large_logits_and_masked_tokens() -> None:
    d = Distribution.from_logits(
        np.arange(3, dtype=np.int32), np.array([-np.inf, 3e38, 3e38], dtype=np.float32)
    )
    assert d.probs.tolist() == [0, 0.5, 0.5]


def test_from_logits_leaves_its_arguments_alone() -> None:
    """They are views into llama.cpp's buffers."""
    ids, logits = np.arange(3, dtype=np.int32), np.ones(3, dtype=np.float32)
    d = Distribution.from_logits(ids, logits)
    assert not np.shares_memory(d.probs, logits)
    assert logits.tolist() == [1, 1, 1]


@pytest.mark.parametrize("logits", [[], [-np.inf], [np.nan, 1.0], [np.inf, 1.0]])
def test_from_logits_refuses_what_cannot_be_sampled(logits: list[float]) -> None:
    with pytest.raises(ValueError, match="no token"):
        Distribution.from_logits(np.arange(len(logits), dtype=np.int32), np.array(logits, dtype=np.float32))


@given(weights_by_id)
def test_prob_looks_up_every_token(weights: dict[int, float]) -> None:
    d = make(weights)
    total = sum(weights.values())
    assert [d.prob(i) for i in range(14)] == [weights.get(i, 0) / total for i in range(14)]


@given(weights_by_id)
def test_draw_gives_each_token_its_share_of_the_quantiles(weights: dict[int, float]) -> None:
    """Midpoints of a grid of `total` steps: token i is drawn exactly weight-many times."""
    d = make(weights)
    total = sum(weights.values())
    drawn = [d.draw((k + 0.5) / total) for k in range(total)]
    assert drawn == sorted(i for i, w in weights.items() for _ in range(w))


@given(weights_by_id)
def test_draw_never_gives_a_token_of_probability_zero(weights: dict[int, float]) -> None:
    d = make(weights)
    for u in (0.0, 0.5, NEARLY_1, 1.0):
        assert weights[d.draw(u)] > 0


@settings(max_examples=300)
@given(weights_by_id, weights_by_id, st.sampled_from([0.0, 0.3, 1.0]))
def test_excess_is_the_positive_part_of_the_difference(
    a: dict[int, float], b: dict[int, float], scale: float
) -> None:
    d, other = make(a), make(b)
    before = d.probs.copy()
    expected = [max(0.0, scale * d.prob(i) - other.prob(i)) for i in sorted(a)]
    assert d.excess(scale, other).tolist() == pytest.approx(expected, abs=1e-15)
    assert d.probs.tolist() == before.tolist()


@pytest.mark.parametrize(("m", "n"), [(5, 5), (5, 3), (3, 5)])
def test_excess_of_whole_vocabularies(m: int, n: int) -> None:
    """The short cut for ids 0, 1, 2, ...: also where one vocabulary is padded."""
    d, other = make(dict.fromkeys(range(m), 1.0)), make(dict.fromkeys(range(n), 1.0))
    expected = [max(0.0, d.prob(i) - other.prob(i)) for i in range(m)]
    assert d.excess(1.0, other).tolist() == expected


def test_settings_out_of_range_are_named() -> None:
    with pytest.raises(BadRequest, match=r"top_p is 0; it must be above 0"):
        SamplingParams(top_p=0)
    with pytest.raises(BadRequest, match="not both"):
        SamplingParams(grammar='root ::= "a"', json_schema="{}")


def test_temperature_zero_is_greedy() -> None:
    assert SamplingParams(temperature=0).greedy
