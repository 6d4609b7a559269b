"""Which of a set of models can draft for which: same vocabulary, and small enough that drafting can pay.

Reading its weights is what a token costs a model, so a draft is worth a try from half the target's bytes down; whether
it pays on this machine the engine measures. A second, smaller quantisation of the target itself qualifies too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from models.imports import ImportedModel
from models.vocabulary import mismatch

LARGEST_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Pairing:
    """`draft` can write ahead for `target`."""

    draft: str
    target: str
    share: float
    """Bytes of the draft's weights for each of the target's."""


def pairings(models: Iterable[ImportedModel]) -> list[Pairing]:
    """Every pair that could work, by target, its smallest draft first."""
    known = [model for model in models if model.vocabulary is not None and model.weight_bytes]
    found = [
        Pairing(draft.name, target.name, draft.weight_bytes / target.weight_bytes)
        for target in known
        for draft in known
        if draft.weight_bytes <= LARGEST_SHARE * target.weight_bytes
        and draft.vocabulary is not None
        and target.vocabulary is not None
        and mismatch(draft.vocabulary, target.vocabulary) is None
    ]
    return sorted(found, key=lambda pair: (pair.target, pair.share))
