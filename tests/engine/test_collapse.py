"""Faults in mid-reply, on tiny real models and in the replay: nothing but time may be lost, and of that little."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Engine, LoadConfig, RoundDone, SamplingParams
from engine.drafters.model import ModelDrafter
from engine.guard import MOST, MOST_SHARE, WON_MOST
from tests.engine.helpers import CLEAR, costs, question

FAULT_AT = 60


@pytest.fixture(scope="module")
def pair(target: Path, drafts: dict[str, Path]) -> Iterator[Engine]:
    with Engine(LoadConfig(target, drafts["good"], context=512, threads=1)) as engine:
        # Checking is nearly free here, so that the draft is worth using; a seeded reply decides by these, not by the clock.
        engine._profile.calibrated = costs(row=0.0005, first=0.03, step=0.002)
        yield engine


def rounds(engine: Engine, **how: Any) -> tuple[str, list[RoundDone]]:
    engine.forget()
    events = list(engine.generate(question(CLEAR, max_tokens=240, seed=1, sampling=SamplingParams(temperature=0), **how)))
    return events[-1].text, [event for event in events if isinstance(event, RoundDone)]  # type: ignore[union-attr]


def test_a_draft_that_turns_into_noise_is_parked_and_the_text_stays(pair: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """From one token on it proposes what the target never says, as sure of itself as before."""
    plain, _ = rounds(pair, mode="plain")
    text, before = rounds(pair, mode="draft")
    assert text == plain
    draw, rng = ModelDrafter._draw, np.random.default_rng(0)

    def noise(self: ModelDrafter, chain: Any, logits: Any) -> Any:
        token, q, trust = draw(self, chain, logits)
        return (int(rng.integers(128, 250)), None, 0.99) if len(self._tokens) - self._prompt_length > FAULT_AT else (token, q, trust)

    monkeypatch.setattr(ModelDrafter, "_draw", noise)
    text, after = rounds(pair, mode="draft")
    assert text == plain
    place = 0
    drafted: list[int] = []
    for event in after:
        if place > FAULT_AT:
            drafted.append(len(event.round.candidates))
        place += len(event.round.emitted)
    # A round of n candidates takes (30 + 2.5 n) ms here, a plain token 30.5.
    lost = sum(n * 2.5 / 30.5 for n in drafted)
    assert 0 < sum(drafted) < sum(len(event.round.candidates) for event in before) / 2
    assert lost < max(MOST, MOST_SHARE * 240) + WON_MOST
    assert any(event.action and "refused" in event.action for event in after)
    assert sum(n > 0 for n in drafted[-40:]) <= 12, "and it stays parked but for small change"


def test_actions_are_sentences(pair: Engine) -> None:
    _, events = rounds(pair, mode="auto")
    for event in events:
        assert event.action is None or (len(event.action) > 20 and event.action[-1] != ".")
