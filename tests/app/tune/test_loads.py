"""Ways of running that need a load of their own, with recorded replies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from app.tune.loads import Replies, compare
from engine import LoadConfig

NOW = LoadConfig(Path("t.gguf"), Path("d.gguf"))
OTHER = replace(NOW, draft=Path("e.gguf"))


def recorded(ratio: float, took: float = 5.0) -> tuple[Callable[[LoadConfig, Callable[[], bool]], Replies], list[str]]:
    rng, loads = np.random.default_rng(0), []

    def replies(config: LoadConfig, cancelled: Callable[[], bool]) -> Replies:
        assert config.draft is not None
        loads.append(config.draft.stem)
        level = 0.05 * (ratio if config == OTHER else 1.0)
        return Replies([level * float(rng.lognormal(0, 0.03)) for _ in range(4)], took)

    return replies, loads


def test_a_faster_draft_is_found_by_loads_in_turns() -> None:
    replies, loads = recorded(0.8)
    gain = compare(NOW, OTHER, 0.99, 60, lambda: False, lambda what: None, replies)
    assert gain is not None
    assert gain.beats_the_noise
    assert loads == ["d", "e", "d", "e", "e", "d", "d", "e", "e", "d", "d", "e"]


def test_one_like_the_other_is_no_gain_and_little_time_no_answer() -> None:
    gain = compare(NOW, OTHER, 0.99, 60, lambda: False, lambda what: None, recorded(1.0)[0])
    assert gain is not None
    assert not gain.beats_the_noise
    assert compare(NOW, OTHER, 0.99, 15, lambda: False, lambda what: None, recorded(0.5)[0]) is None
