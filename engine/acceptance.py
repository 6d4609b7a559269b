"""The chance that the target keeps the next candidate, learned as replies go by.

n-gram candidates, by the number of tokens that matched before them: P = sigmoid(b[m] + d). b[m] belongs to the pair
and moves slowly; d is this reply's own, because copying is a property of the task (a rename in a file matches for
lines on end, prose only in phrases). What is known of d is a distribution on a grid, updated by Bayes' rule with
fading memory. Both are learned in every round, drafted or not: the lookup's guess for a plain token costs nothing
to compare.

Model candidates, by the draft's own confidence: the same form, P = sigmoid(b[bin] + d). Confidence tells nearly all that
can be told: over 4,400 recorded places it brings the log loss from 0.43 to 0.28, and neither the mean so far nor the place
before adds anything. What the confidence of a candidate not yet drafted will be is told by that mean: easy and hard text
each have their own spread of confidences, and any text is a mixture of the two.

While the draft model is parked, its acceptance is foretold from the target's own confidence (the running mean of its
top probability, the "ease" of the text): where the target is sure, as in code, a small model agrees.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.values import PairPlace

MATCH_EDGES = (1, 2, 3, 4, 5, 6, 8, 11, 16, 24, 32, 48)
"""Lower ends of the match-length bins."""
CONFIDENCE_EDGES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
"""Lower ends of the confidence bins: finest where drafts live."""
_MATCH_PRIOR = (0.2, 0.45, 0.57, 0.65, 0.66, 0.72, 0.74, 0.8, 0.88, 0.93, 0.97, 0.985)
"""Of replies that are not copies, measured on the starter target over 20 prompts of Spec-Bench; edits are above 0.95
from 5 on and summaries between, which is what d is for."""
_CONFIDENCE_PRIOR = (0.25, 0.4, 0.4, 0.4, 0.5, 0.58, 0.65, 0.7, 0.75, 0.8, 0.86, 0.92, 0.95, 0.98, 0.99)
_HARD = np.array([0.058, 0.048, 0.083, 0.076, 0.059, 0.073, 0.078, 0.073, 0.071, 0.086, 0.056, 0.039, 0.017, 0.014, 0.169])
_EASY = np.array([0.0, 0.001, 0.002, 0.001, 0.004, 0.003, 0.003, 0.007, 0.007, 0.013, 0.015, 0.01, 0.013, 0.092, 0.829])
"""How often confidences fall into each bin where 65 % and where 99.5 % of the candidates are kept. These and the prior:
recorded on the starter pair at temperatures 0, 0.7 and 1."""
_HARD /= _HARD.sum()
_EASY /= _EASY.sum()
EASE_EDGES = (0.0, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.93, 0.96)
"""Lower ends of the ease bins."""
_EASE_PRIOR = (0.45, 0.52, 0.65, 0.7, 0.75, 0.83, 0.9, 0.92, 0.95, 0.98)
"""Both measured on the starter draft, greedy, over nine prompts from translation (ease 0.62, 0.52 kept) to code (0.99,
0.98 kept)."""
SLOW = 0.02
"""Learning rate of b, in log-odds per unit of surprise."""
MEAN_RATE = 0.05
"""How far one candidate moves the running mean."""
EVIDENCE_MOST = 64.0
TRUST_AFTER, TRUST_SHARE, TRUST_MEMORY = 20, 0.85, 0.99
"""A draft is trusted when so many of its candidates were judged and, the last hundred or so counted, so much was kept of
what its confidence foretold."""
EASE_MEMORY = 24
MEMORY = 0.99
"""Old evidence about d counts this much less with every candidate, as a reply can change its subject."""
SHIFTS = np.linspace(-3.0, 3.0, 9)
_SHIFT_SPREAD = 1.2
_SHIFT_PRIOR = np.exp(-0.5 * (SHIFTS / _SHIFT_SPREAD) ** 2)
_SHIFT_PRIOR /= _SHIFT_PRIOR.sum()


def _sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-x)), dtype=np.float64)


class Estimator:
    """P(kept) by bin, with a per-reply shift d known only as weights on a grid."""

    def __init__(self, prior: tuple[float, ...]) -> None:
        self._base: NDArray[np.float64] = np.array([math.log(p / (1 - p)) for p in prior])
        self._weights = _SHIFT_PRIOR.copy()

    def begin(self) -> None:
        """A new reply: half of what the last one showed is kept, as conversations stay on their subject."""
        self._weights = 0.5 * (self._weights + _SHIFT_PRIOR)

    def chance(self, index: int) -> float:
        """P(kept) for a candidate of this bin."""
        return float(self._weights @ _sigmoid(self._base[index] + SHIFTS))

    def chances(self) -> NDArray[np.float64]:
        """(bins,): P(kept) for each bin."""
        return np.asarray(self._weights @ _sigmoid(self._base[None, :] + SHIFTS[:, None]), dtype=np.float64)

    def survival(self, bins: NDArray[np.intp]) -> NDArray[np.float64]:
        """(len(bins),): the chance that candidates of these bins are kept one after the other, up to each.

        The mean over the shifts of the product, not the product of the means: candidates of one reply share
        their fate, so long runs are likelier than their single chances suggest.
        """
        chances = _sigmoid(self._base[bins][None, :] + SHIFTS[:, None])
        return np.asarray(self._weights @ np.cumprod(chances, axis=1), dtype=np.float64)

    def observe(self, index: int, kept: float) -> None:
        """One candidate was kept (1), refused (0), or had that chance of being kept."""
        chances = _sigmoid(self._base[index] + SHIFTS)
        self._base[index] += SLOW * (kept - float(self._weights @ chances))
        weights = self._weights**MEMORY * (kept * chances + (1 - kept) * (1 - chances)) + 1e-6
        self._weights = weights / weights.sum()

    def to_json(self) -> list[float]:
        return [round(float(b), 4) for b in self._base]

    def load_json(self, data: list[float]) -> None:
        if len(data) == len(self._base) and all(math.isfinite(x) and abs(x) < 12 for x in data):
            self._base = np.array(data, dtype=np.float64)


class AcceptanceModel:
    """Both estimators, and the running means that a decision before the first draft needs."""

    def __init__(self) -> None:
        self.by_match = Estimator(_MATCH_PRIOR)
        self.by_confidence = Estimator(_CONFIDENCE_PRIOR)
        self.by_ease = Estimator(_EASE_PRIOR)
        self.model_mean = 0.7
        """Running mean of P(kept) over drafted model candidates: what the next one is worth before it is drawn."""
        self.model_evidence = 0.0
        """Judged model candidates of this pair, half forgotten with every reply; not kept on disk."""
        self.ngram_evidence = 0.0
        """Judged guesses of the lookup in this reply."""
        self.model_judged, self.model_foretold, self.model_kept = 0.0, 0.0, 0.0
        """Model candidates of this pair: how many were judged, were to be kept by their chances, and were kept; old ones fade."""

    @property
    def model_trusted(self) -> bool:
        """Whether what is foretold of this pair's draft has come true: enough of it was seen, and hardly less was kept."""
        return self.model_judged >= TRUST_AFTER and self.model_kept >= TRUST_SHARE * self.model_foretold

    def begin(self) -> None:
        self.model_evidence *= 0.5
        self.ngram_evidence = 0.0
        self.by_match.begin()
        self.by_confidence.begin()
        self.by_ease.begin()

    def learn(self, places: Sequence[PairPlace]) -> None:
        """What engine.agreement saw of the pair."""
        ease = 0.0
        for i, (confidence, top, kept) in enumerate(places):
            ease += (top - ease) / min(i + 1, EASE_MEMORY)
            self.observe_model(confidence, kept)
            self.observe_ease(ease, kept)

    def ngram_survival(self, match_length: int, length: int) -> NDArray[np.float64]:
        """(length,): the chance that the first i + 1 of a looked-up block are all kept."""
        return self.by_match.survival(match_bin(match_length + np.arange(length)))

    def observe_ngram(self, match_length: int, kept: float) -> None:
        self.ngram_evidence += 1
        self.by_match.observe(int(match_bin(np.array([match_length]))[0]), kept)

    def model_chance(self, confidence: float) -> float:
        return self.by_confidence.chance(confidence_bin(confidence))

    def observe_model(self, confidence: float, kept: float) -> None:
        self.model_mean += MEAN_RATE * (kept - self.model_mean)
        self.model_evidence = min(self.model_evidence + 1, EVIDENCE_MOST)
        self.model_judged = TRUST_MEMORY * self.model_judged + 1
        self.model_foretold = TRUST_MEMORY * self.model_foretold + self.model_chance(confidence)
        self.model_kept = TRUST_MEMORY * self.model_kept + kept
        self.by_confidence.observe(confidence_bin(confidence), kept)

    def left_out(self, confidence: float) -> None:
        """A drafted candidate was not checked: all that is known of it is its confidence."""
        self.model_mean += MEAN_RATE * (self.model_chance(confidence) - self.model_mean)

    def next_model(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """(bins,), (bins,): what the next candidate's chance may turn out to be, and how likely each is, for text in
        which model_mean of them are kept."""
        chances = self.by_confidence.chances()
        hard, easy = float(_HARD @ chances), float(_EASY @ chances)
        share = min(max((self.model_mean - hard) / max(easy - hard, 1e-3), 0.0), 1.0)
        weights = (1 - share) * _HARD + share * _EASY
        mean = float(weights @ chances)
        return chances * min(1.0, self.model_mean / mean), weights

    def observe_ease(self, ease: float, kept: float) -> None:
        """A model candidate met this fate while the target's running confidence was `ease`."""
        self.by_ease.observe(ease_bin(ease), kept)

    def expect(self, ease: float) -> None:
        """No candidate was drafted this round: move the expectation towards what `ease` foretells."""
        self.model_mean += 0.2 * (self.by_ease.chance(ease_bin(ease)) - self.model_mean)

    def to_json(self) -> dict[str, Any]:
        return {
            "by_match": self.by_match.to_json(), "by_confidence": self.by_confidence.to_json(),
            "by_ease": self.by_ease.to_json(), "model_mean": round(self.model_mean, 4),
            "model_judged": round(self.model_judged, 4), "model_foretold": round(self.model_foretold, 4),
            "model_kept": round(self.model_kept, 4),
        }

    def load_json(self, data: dict[str, Any]) -> None:
        """Raises KeyError, TypeError or ValueError when the data is not what to_json wrote."""
        self.by_match.load_json(data["by_match"])
        self.by_confidence.load_json(data["by_confidence"])
        self.by_ease.load_json(data["by_ease"])
        self.model_mean = min(max(float(data["model_mean"]), 0.05), 0.99)
        most = 1 / (1 - TRUST_MEMORY)
        self.model_judged, self.model_foretold, self.model_kept = (
            min(max(float(data[name]), 0.0), most) for name in ("model_judged", "model_foretold", "model_kept")
        )


def match_bin(match_length: NDArray[np.int_]) -> NDArray[np.intp]:
    return np.searchsorted(MATCH_EDGES, np.maximum(match_length, 1), side="right") - 1


def confidence_bin(confidence: float) -> int:
    return bisect.bisect_right(CONFIDENCE_EDGES, confidence) - 1


def ease_bin(ease: float) -> int:
    return bisect.bisect_right(EASE_EDGES, ease) - 1
