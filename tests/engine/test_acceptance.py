"""Chances of being kept: sensible before anything is seen, learned from what is, and of one reply more than of all."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.acceptance import AcceptanceModel


@given(st.integers(0, 200), st.integers(1, 63))
def test_longer_blocks_survive_less_often(match_length: int, length: int) -> None:
    survival = AcceptanceModel().ngram_survival(match_length, length)
    assert survival.shape == (length,)
    assert np.all((survival > 0) & (survival < 1))
    assert np.all(np.diff(survival) <= 1e-12)


def test_longer_matches_and_surer_drafts_are_trusted_more() -> None:
    model = AcceptanceModel()
    firsts = [float(model.ngram_survival(m, 1)[0]) for m in (1, 2, 4, 8, 16, 48, 500)]
    assert firsts == sorted(firsts)
    assert firsts[-1] - firsts[0] > 0.3
    chances = [model.model_chance(c) for c in (0.0, 0.3, 0.6, 0.9, 1.0)]
    assert chances == sorted(chances)
    assert all(0 < c < 1 for c in chances)


@pytest.mark.parametrize("kept", [0.05, 0.5, 0.95])
def test_the_chance_of_a_match_goes_to_what_is_seen(kept: float) -> None:
    model, rng = AcceptanceModel(), np.random.default_rng(0)
    for _ in range(1500):
        model.observe_ngram(6, float(rng.random() < kept))
    assert float(model.ngram_survival(6, 1)[0]) == pytest.approx(kept, abs=0.12)


@pytest.mark.parametrize("kept", [0.05, 0.5, 0.95])
def test_the_chance_of_a_draft_goes_to_what_is_seen(kept: float) -> None:
    model, rng = AcceptanceModel(), np.random.default_rng(0)
    for _ in range(1500):
        model.observe_model(0.85, float(rng.random() < kept))
    assert model.model_chance(0.85) == pytest.approx(kept, abs=0.12)
    assert model.model_mean == pytest.approx(kept, abs=0.2)


def test_chances_between_0_and_1_teach_as_outcomes_do() -> None:
    model = AcceptanceModel()
    for _ in range(1500):
        model.observe_ngram(6, 0.3)
    assert float(model.ngram_survival(6, 1)[0]) == pytest.approx(0.3, abs=0.12)


def test_a_reply_that_copies_is_believed_after_a_few_tokens_and_the_next_one_less() -> None:
    model = AcceptanceModel()
    before = float(model.ngram_survival(6, 8)[-1])
    for i in range(10):
        model.observe_ngram(6 + i, 1.0)
    during = float(model.ngram_survival(6, 8)[-1])
    model.begin()
    model.begin()
    after = float(model.ngram_survival(6, 8)[-1])
    assert during > before + 0.1
    assert before < after < during


def test_one_failure_moves_other_matches_of_the_reply_too() -> None:
    model = AcceptanceModel()
    before = float(model.ngram_survival(20, 4)[-1])
    for _ in range(4):
        model.observe_ngram(4, 0.0)
    assert float(model.ngram_survival(20, 4)[-1]) < before - 0.05


def test_easy_text_raises_what_is_expected_of_a_parked_draft() -> None:
    easy, hard = AcceptanceModel(), AcceptanceModel()
    for _ in range(60):
        easy.expect(0.97)
        hard.expect(0.15)
    assert hard.model_mean + 0.3 < easy.model_mean
    for _ in range(200):
        hard.observe_ease(0.97, 0.0)
        hard.expect(0.97)
    assert hard.model_mean < 0.3, "what the target's confidence foretells is learned as well"


def test_what_was_learned_comes_back_from_json() -> None:
    model = AcceptanceModel()
    for i in range(50):
        model.observe_ngram(i, 1.0)
        model.observe_model(i / 50, 0.0)
        model.observe_ease(i / 50, 0.5)
    again = AcceptanceModel()
    again.load_json(json.loads(json.dumps(model.to_json())))
    assert again.to_json() == model.to_json()


def test_damaged_figures_are_refused_or_left_out() -> None:
    data = AcceptanceModel().to_json()
    for broken in ({}, data | {"by_match": None}, data | {"model_mean": "high"}):
        with pytest.raises((KeyError, TypeError, ValueError)):
            AcceptanceModel().load_json(broken)
    for odd in (data | {"by_match": [1.0]}, data | {"by_match": [float("nan")] * len(data["by_match"])}, data | {"model_mean": 7}):
        model = AcceptanceModel()
        model.load_json(odd)
        assert 0 < float(model.ngram_survival(4, 1)[0]) < 1
        assert 0 < model.model_mean < 1


@pytest.mark.parametrize("mean", [0.1, 0.4, 0.7, 0.9, 0.98])
def test_the_next_candidates_chance_is_spread_around_the_mean(mean: float) -> None:
    model = AcceptanceModel()
    model.model_mean = mean
    chances, weights = model.next_model()
    assert weights.sum() == pytest.approx(1.0)
    assert np.all((chances > 0) & (chances < 1))
    assert float(weights @ chances) == pytest.approx(mean, abs=0.03)


def test_candidates_left_unchecked_count_for_what_their_confidence_says() -> None:
    """Or a draft that is never worth checking would be asked for ever."""
    model = AcceptanceModel()
    for _ in range(60):
        model.left_out(0.02)
    assert model.model_mean < 0.35


def test_evidence_about_a_draft_fades_with_every_reply() -> None:
    model = AcceptanceModel()
    for _ in range(40):
        model.observe_model(0.9, 1.0)
        model.observe_ngram(4, 1.0)
    assert model.model_evidence == model.ngram_evidence == 40
    model.begin()
    assert (model.model_evidence, model.ngram_evidence) == (20, 0)
