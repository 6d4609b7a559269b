"""What is tried, in which order, and what is taken, with recorded costs in place of a model's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from app.tune.search import Dimension, Search, dimensions_for
from engine import EngineDied, LoadConfig, LoadFailed
from engine.trial import Part

Cost = Callable[[LoadConfig, Part], float]


@dataclass
class Recorded:
    """A timer that plays back `cost` with noise, on a clock of its own."""

    cost: Cost
    noise: float = 0.02
    full: Callable[[LoadConfig], bool] = lambda config: False
    deadly: Callable[[LoadConfig], bool] = lambda config: False
    now: float = 0.0
    opened: list[LoadConfig] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    open_now: set[int] = field(default_factory=set)
    most_open: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def open(self, config: LoadConfig, depth: int, longest: int) -> int:
        if self.deadly(config):
            raise EngineDied("llama.cpp's process ended")
        if self.full(config):
            raise LoadFailed("it needs 3.0 GB more and 1.0 GB are free")
        self.now += depth / 128 * self.cost(config, "prompt")
        self.opened.append(config)
        self.depths.append(depth)
        self.open_now.add(len(self.opened) - 1)
        self.most_open = max(self.most_open, len(self.open_now))
        return len(self.opened) - 1

    def sample(self, number: int, parts: Sequence[Part], prompt_tokens: int = 128) -> dict[Part, float]:
        assert number in self.open_now
        found = {
            part: self.cost(self.opened[number], part) * (prompt_tokens / 128 if part == "prompt" else 1)
            * float(self.rng.lognormal(0, self.noise))
            for part in parts
        }
        self.now += sum(found.values())
        return found

    def close(self, number: int) -> None:
        self.open_now.remove(number)


FLAT: dict[Part, float] = {"row": 0.03, "block": 0.25, "prompt": 1.0}


def search(timer: Recorded, seconds: float = 180, **config: object) -> Search:
    """A whole run over what a machine of 8 cores has to try."""
    base = LoadConfig(Path("t.gguf"), **config)  # type: ignore[arg-type]
    found = Search(base, dimensions_for(base, 8, 16, [], gpu=False), seconds, lambda: timer.now, lambda what: None)
    while not found.done:
        try:
            found.run(timer)
        except EngineDied as error:
            found.broken(str(error))
            timer.open_now.clear()
    return found


def taken(found: Search) -> dict[str, object]:
    return {name: value for outcome in found.outcomes if outcome.status == "taken" for name, value in outcome.tried.items()}


def test_where_nothing_is_faster_nothing_changes() -> None:
    timer = Recorded(lambda config, part: FLAT[part])
    found = search(timer)
    assert taken(found) == {}
    assert found.config == LoadConfig(Path("t.gguf"))
    assert all(outcome.gain is None or not outcome.gain.beats_the_noise for outcome in found.outcomes)
    assert timer.now <= 1.2 * 180


def test_the_best_of_several_is_taken_and_stands_for_what_follows() -> None:
    def cost(config: LoadConfig, part: Part) -> float:
        threads = {4: 0.9, 6: 0.7, 7: 0.85}.get(config.threads or 8, 1.0) if part == "row" else 1.0
        flash = {"row": 1.0, "block": 0.7, "prompt": 1.05}[part] if config.flash_attention is False else 1.0
        return FLAT[part] * threads * flash

    found = search(Recorded(cost), 600)
    assert taken(found) == {"threads": 6, "flash_attention": False}
    assert (found.config.threads, found.config.flash_attention) == (6, False)
    threads = {outcome.tried["threads"]: outcome.status for outcome in found.outcomes if outcome.name == "threads"}
    assert [threads[n] for n in (4, 6, 7)] == ["another gains more", "taken", "another gains more"]
    flash = next(outcome for outcome in found.outcomes if outcome.name == "flash_attention")
    assert flash.gain is not None
    assert flash.gain.low < 0.92 < 1 > flash.gain.high
    assert flash.parts["block"] == pytest.approx(0.7, abs=0.05)
    assert flash.parts["prompt"] == pytest.approx(1.05, abs=0.05)
    kv = next(outcome for outcome in found.outcomes if outcome.name == "kv_type")
    assert (kv.status, kv.reason) == ("not tried", "a quantised KV cache needs flash attention")


def test_a_gain_within_the_noise_is_left_alone() -> None:
    timer = Recorded(lambda config, part: FLAT[part] * (0.985 if config.kv_type == "q8_0" else 1.0), noise=0.15)
    assert taken(search(timer)) == {}


def test_what_does_not_fit_is_passed_over() -> None:
    timer = Recorded(lambda config, part: FLAT[part] * (0.5 if config.threads == 4 else 1.0), full=lambda c: c.threads == 4)
    found = search(timer)
    assert "threads" not in taken(found)
    outcome = next(outcome for outcome in found.outcomes if outcome.tried == {"threads": 4})
    assert (outcome.status, outcome.reason) == ("does not fit", "it needs 3.0 GB more and 1.0 GB are free")


def test_a_way_that_ends_the_process_is_named_and_the_rest_goes_on() -> None:
    def cost(config: LoadConfig, part: Part) -> float:
        return FLAT[part] * (0.6 if config.kv_type == "q8_0" else 1.0)

    found = search(Recorded(cost, deadly=lambda config: config.flash_attention is False), 600)
    failed = [outcome for outcome in found.outcomes if outcome.status == "failed"]
    assert [(outcome.tried, outcome.reason) for outcome in failed] == [({"flash_attention": False}, "llama.cpp's process ended")]
    assert taken(found) == {"kv_type": "q8_0"}


def test_few_caches_are_open_at_once_and_a_slow_machine_reads_less() -> None:
    fast, slow = Recorded(lambda config, part: FLAT[part] / 50), Recorded(lambda config, part: FLAT[part] * 3)
    search(fast)
    search(slow)
    assert fast.most_open <= 3
    assert max(fast.depths) == 1536
    assert max(slow.depths) == 512
    assert slow.now <= 1.5 * 180


def test_a_budget_too_small_decides_nothing() -> None:
    timer = Recorded(lambda config, part: FLAT[part] * (0.5 if config.flash_attention is False else 1.0))
    found = search(timer, 10)
    assert taken(found) == {}
    assert {outcome.status for outcome in found.outcomes} <= {"no time", "no gain", "another gains more"}
    assert timer.now < 40


def test_what_was_not_tried_in_time_is_listed() -> None:
    base = LoadConfig(Path("t.gguf"))
    found = Search(base, dimensions_for(base, 8, 16, [], gpu=False), 180, lambda: 0.0, print)
    found.out_of_time()
    assert found.done
    assert {outcome.status for outcome in found.outcomes} == {"no time"}
    assert len(found.outcomes) == 4 + 2 + 1 + 1 + 2


def test_what_the_user_fixed_is_not_tried() -> None:
    base = LoadConfig(Path("t.gguf"))
    assert [d.name for d in dimensions_for(base, 8, 16, ["threads", "kv_type"], gpu=False)] == [
        "batch_threads", "flash_attention", "batch"
    ]
    off = LoadConfig(Path("t.gguf"), flash_attention=False)
    assert not {"flash_attention", "kv_type"} & {d.name for d in dimensions_for(off, 8, 8, [], gpu=False)}
    assert {d.name for d in dimensions_for(base, 8, 16, [], gpu=True)} == {"batch", "flash_attention", "kv_type"}
    two = {d.name: d for d in dimensions_for(base, 2, 2, [], gpu=False)}
    assert two["threads"].candidates == ({"threads": 1},)
    assert "batch_threads" not in two


def test_the_risk_is_shared_by_all_comparisons() -> None:
    base = LoadConfig(Path("t.gguf"))
    dimension = Dimension("threads", ({"threads": 4},), ("row",))
    assert Search(base, [dimension], 10, lambda: 0.0, print, tests=5).confidence == pytest.approx(0.99)
