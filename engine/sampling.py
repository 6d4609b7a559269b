"""Sampling settings, sparse distributions, and drawing from them. Pure numpy; the filters that make a
distribution from logits are llama.cpp's own sampler chain (engine/llama/sampler.py)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import BadRequest

_Places = slice | NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Settings of llama.cpp's sampler chain, with llama.cpp's meanings and neutral values.

    temperature 0 is greedy. top_k 0, top_p 1, min_p 0, typical_p 1, repeat_penalty 1, the other penalties 0
    and dry_multiplier 0 switch a filter off. `grammar` is GBNF text; `json_schema` is JSON text and becomes a
    grammar. At most one of the two.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    typical_p: float = 1.0
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_last_n: int = -1
    logit_bias: tuple[tuple[int, float], ...] = ()
    grammar: str | None = None
    json_schema: str | None = None

    def __post_init__(self) -> None:
        """Raise BadRequest naming the first setting that is out of range."""
        checks: tuple[tuple[str, Any, bool, str], ...] = (
            ("temperature", self.temperature, 0 <= self.temperature <= 100, "from 0 to 100"),
            ("top_k", self.top_k, self.top_k >= 0, "0 (off) or more"),
            ("top_p", self.top_p, 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("min_p", self.min_p, 0 <= self.min_p <= 1, "from 0 to 1"),
            ("typical_p", self.typical_p, 0 < self.typical_p <= 1, "above 0 and at most 1"),
            ("repeat_penalty", self.repeat_penalty, 0.01 <= self.repeat_penalty <= 10, "from 0.01 to 10"),
            ("frequency_penalty", self.frequency_penalty, -10 <= self.frequency_penalty <= 10, "from -10 to 10"),
            ("presence_penalty", self.presence_penalty, -10 <= self.presence_penalty <= 10, "from -10 to 10"),
            ("penalty_last_n", self.penalty_last_n, self.penalty_last_n >= -1, "-1 (whole context) or more"),
            ("dry_multiplier", self.dry_multiplier, 0 <= self.dry_multiplier <= 100, "0 (off) or more"),
            ("dry_base", self.dry_base, self.dry_base >= 1, "1 or more"),
            ("dry_allowed_length", self.dry_allowed_length, self.dry_allowed_length >= 0, "0 or more"),
            ("dry_last_n", self.dry_last_n, self.dry_last_n >= -1, "-1 (whole context) or more"),
        )
        for name, value, ok, meaning in checks:
            if not ok:
                raise BadRequest(f"{name} is {value}; it must be {meaning}")
        if self.grammar is not None and self.json_schema is not None:
            raise BadRequest("give a grammar or a JSON schema, not both")

    @property
    def greedy(self) -> bool:
        """True at temperature 0: the distribution is one-hot at the highest logit."""
        return self.temperature == 0


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """A sparse probability distribution over token ids.

    ids: int32 array (m,), strictly ascending. probs: float64 array (m,), non-negative, summing to 1.
    Every id not listed has probability 0.
    """

    ids: NDArray[np.int32]
    probs: NDArray[np.float64]

    @classmethod
    def one_hot(cls, token: int) -> Distribution:
        """All mass on `token`."""
        return cls(np.array([token], dtype=np.int32), np.array([1.0]))

    @classmethod
    def from_logits(cls, ids: NDArray[np.int32], logits: NDArray[np.float32]) -> Distribution:
        """Softmax over the listed tokens, in any order; the rest get 0, as does a logit of -inf.

        Raises ValueError when nothing is left, or when a logit is NaN or +inf.
        """
        if len(ids) == 0:
            raise ValueError("no token is left to sample from")
        if np.any(ids[1:] < ids[:-1]):
            order = np.argsort(ids, kind="stable")
            ids, logits = ids[order], logits[order]
        weights = logits.astype(np.float64)
        top = weights.max()
        if not np.isfinite(top):
            raise ValueError(f"no token can be sampled: the highest logit is {top}")
        weights -= top
        np.exp(weights, out=weights)
        weights /= weights.sum()
        return cls(np.ascontiguousarray(ids), weights)

    def prob(self, token: int) -> float:
        """Probability of `token`; 0.0 when it is not listed."""
        # The cast keeps numpy from widening a copy of all ids to the 64 bits of a Python int.
        i = int(self.ids.searchsorted(np.int32(token)))
        return float(self.probs[i]) if i < len(self.ids) and self.ids[i] == token else 0.0

    def draw(self, u: float) -> int:
        """The token at quantile `u` in [0, 1) of the ids in ascending order (inverse transform).

        Never a token of probability 0, not even where rounding puts `u` at the very end.
        """
        cumulative = self.probs.cumsum()
        total = cumulative[-1]
        i = cumulative.searchsorted(u * total, side="right")
        return int(self.ids[min(i, cumulative.searchsorted(total))])

    def excess(self, scale: float, other: Distribution) -> NDArray[np.float64]:
        """max(0, scale * self - other) for each of this distribution's ids."""
        result = self.probs * scale
        mine, theirs = _common(self.ids, other.ids)
        result[mine] -= other.probs[theirs]
        return np.maximum(result, 0.0, out=result)


def _common(a: NDArray[np.int32], b: NDArray[np.int32]) -> tuple[_Places, _Places]:
    """Where the ids that two ascending arrays share are in each: the shorter is looked up in the longer."""
    if len(a) > len(b):
        theirs, mine = _common(b, a)
        return mine, theirs
    if _is_whole(b):
        shared = slice(a.searchsorted(np.int32(len(b))))
        return shared, shared if _is_whole(a) else a[shared]
    place = b.searchsorted(a)
    hit = np.flatnonzero(b.take(place, mode="clip") == a)
    return hit, place[hit]


def _is_whole(ids: NDArray[np.int32]) -> bool:
    """True for 0, 1, 2, ...: a whole vocabulary, where an id is its own place."""
    return bool(ids[-1] == len(ids) - 1)
