"""Simulated machines: what a decode costs there (scripts/replay/profiles.toml), and a clock that is not exact."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from engine.calibrate import DRAFT_ROWS, TARGET_ROWS
from engine.cost import CostModel

PROFILES = Path(__file__).with_name("profiles.toml")
MOST_ROWS = 64


@dataclass(frozen=True, slots=True, eq=False)
class Machine:
    """True costs, in seconds."""

    name: str
    title: str
    kind: str
    source: str
    target: Mapping[int, float]
    draft: Mapping[int, float]
    context: float
    """Share of a one-row decode that 1,000 tokens of context add to every decode."""
    overhead: float
    """Of every checked row beside the decode: sampler chain, numpy."""
    _target: tuple[float, ...] = field(init=False, repr=False, default=())
    _draft: tuple[float, ...] = field(init=False, repr=False, default=())

    def __post_init__(self) -> None:
        curve = tuple(_read(self.target, n) + n * self.overhead for n in range(MOST_ROWS + 1))
        object.__setattr__(self, "_target", curve)
        object.__setattr__(self, "_draft", tuple(_read(self.draft, n) for n in range(MOST_ROWS + 1)))

    def verify(self, rows: int, context: int) -> float:
        """Decoding `rows` rows of the target and sampling from them."""
        return self._target[rows] + self._target[1] * self.context * context / 1000

    def draft_read(self, tokens: int, context: int) -> float:
        """The draft model reading `tokens` and proposing one."""
        seconds = self._draft[tokens] if tokens <= MOST_ROWS else _read(self.draft, tokens)
        return seconds + self.draft[1] * self.context * context / 1000

    def calibrated(self, noise: float = 0.0, rng: np.random.Generator | None = None) -> CostModel:
        """What measuring this machine at the first start would have noted, each reading off by a random `noise`."""
        costs, rng = CostModel(), rng or np.random.default_rng(0)
        for rows in TARGET_ROWS:
            costs.target.set(rows, 64, self.verify(rows, 64) * float(np.exp(noise * rng.standard_normal())))
        for rows in DRAFT_ROWS:
            costs.draft.set(rows, 64, self.draft_read(rows, 64) * float(np.exp(noise * rng.standard_normal())))
        return costs


def _read(figures: Mapping[int, float], rows: int) -> float:
    """A straight line between figures, and on at the last slope."""
    known = sorted(figures)
    if rows <= known[-1]:
        return float(np.interp(rows, known, [figures[n] for n in known]))
    a, b = known[-2:]
    return figures[b] + (figures[b] - figures[a]) / (b - a) * (rows - b)


def load_machines(path: Path = PROFILES) -> dict[str, Machine]:
    """By name, in the file's order."""
    machines = {}
    for entry in tomllib.loads(path.read_text(encoding="utf-8"))["profile"]:
        target = {int(n): ms / 1000 for n, ms in entry["target"].items()}
        draft = {1: entry["draft_step"] / 1000, **{int(n): ms / 1000 for n, ms in entry["draft_rows"].items()}}
        machines[entry["name"]] = Machine(
            entry["name"], entry["title"], entry["kind"], entry["source"], target, draft, entry["context"],
            entry.get("overhead", 0.0),
        )
    return machines


@dataclass(slots=True)
class Clock:
    """What a rule is shown of true seconds: readings that scatter, and a stall now and then."""

    scatter: float = 0.0
    stall_chance: float = 0.0
    stall_factor: float = 3.0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))

    def read(self, seconds: float) -> float:
        if self.scatter:
            seconds *= float(np.exp(self.scatter * self.rng.standard_normal()))
        if self.stall_chance and self.rng.random() < self.stall_chance:
            seconds *= self.stall_factor
        return seconds
