"""What the first load sees of a pair: a draft that means what it says is trusted, another is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Engine, LoadConfig
from engine.acceptance import AcceptanceModel
from engine.agreement import FEWEST, MOST_SECONDS, PLACES, TEXT, agreement
from engine.cost import CostModel
from tests.engine.helpers import costs


def loaded(target: Path, draft: Path, folder: Path | None = None) -> Engine:
    return Engine(LoadConfig(target, draft, context=512, threads=1, profile_dir=folder))


def test_a_draft_that_foretells_the_target_is_trusted_and_noise_is_not(target: Path, drafts: dict[str, Path]) -> None:
    with loaded(target, drafts["good"]) as engine:
        places = engine._profile.agreement
        assert len(places) == PLACES
        assert all(0 <= x <= 1 for place in places for x in place)
        assert engine._profile.acceptance.model_trusted
    with loaded(target, drafts["poor"]) as engine:
        assert sum(kept for *_, kept in engine._profile.agreement) < 0.5 * sum(kept for *_, kept in places)
        assert not engine._profile.acceptance.model_trusted


def test_it_is_the_target_s_chance_of_the_draft_s_likeliest_token(target: Path) -> None:
    """A model agrees with itself wherever it is read in one block and token by token."""
    with loaded(target, target) as engine:
        for confidence, top, kept in engine._profile.agreement:
            assert confidence == pytest.approx(top, abs=1e-3)
            assert kept == pytest.approx(1, abs=0.02)


def test_both_caches_are_left_empty_and_it_is_remembered(target: Path, draft: Path, tmp_path: Path) -> None:
    with loaded(target, draft, tmp_path) as engine:
        assert engine._draft_model is not None
        assert engine._draft_model.context.length() == 0
        first, acceptance = engine._profile.agreement, engine._profile.first_acceptance().to_json()
    with loaded(target, draft, tmp_path) as engine:
        assert engine._profile.agreement == first
        assert engine._profile.first_acceptance().to_json() == acceptance


def test_where_it_would_take_too_long_nothing_is_read(target: Path, draft: Path) -> None:
    with loaded(target, draft) as engine:
        assert engine._draft_model is not None
        tokens, pair = engine.target.encode(TEXT, special=False), (engine._session._cache.context, engine._draft_model.context)
        slow: CostModel = costs(row=2 * MOST_SECONDS / FEWEST, first=1.0, step=0.01)
        assert agreement(*pair, tokens, slow) == []


def test_trust_goes_when_what_is_foretold_does_not_come_and_is_kept_on_disk() -> None:
    model = AcceptanceModel()
    assert not model.model_trusted
    model.learn([(0.95, 0.9, 0.93)] * PLACES)
    assert model.model_trusted
    again = AcceptanceModel()
    again.load_json(model.to_json())
    assert again.model_trusted
    for _ in range(12):
        model.observe_model(0.95, 0.0)
    assert not model.model_trusted
