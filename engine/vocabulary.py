"""Whether a draft model speaks the target's vocabulary, and for which ids.

Sizes alone decide nothing: Llama 2 and Mistral both have 32,000 ids with 31,730 different texts, while Pythia 70M
and 12B differ by 384 rows of padding and agree in every text (measured from public files).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.errors import IncompatibleDraft
from engine.llama.model import Model

_PADDING = re.compile(rb"^(\[PAD\d*\]|<\|?(unused|pad|extra|dummy|reserved)[^>]*>|)$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SharedVocabulary:
    """Ids 0 ... size - 1 mean the same in both models; above are only unused ids of the larger one."""

    size: int


def check_vocabularies(target: Model, draft: Model) -> SharedVocabulary:
    """Compare every token text and the special tokens. Raises IncompatibleDraft saying what differs and what would work.

    About 0.16 s for 151,936 texts (measured, 2 cores).
    """
    size = min(target.n_vocab, draft.n_vocab)
    differing = [i for i in range(size) if target.token_text(i) != draft.token_text(i)]
    remedy = f"use a draft of the same family as {target.path.name}, from the same converter"
    if differing:
        i = differing[0]
        raise IncompatibleDraft(
            f"{draft.path.name} cannot draft for {target.path.name}: {len(differing)} of {size} token texts differ, "
            f"first id {i} ({_show(draft, i)} against {_show(target, i)}); {remedy}"
        )
    larger = target if target.n_vocab > size else draft
    used = [i for i in range(size, larger.n_vocab) if not (larger.is_unused(i) or _PADDING.match(larger.token_text(i)))]
    if used:
        raise IncompatibleDraft(
            f"{draft.path.name} cannot draft for {target.path.name}: only {larger.path.name} has ids {used[0]} to "
            f"{used[-1]}, and they are in use ({_show(larger, used[0])}); {remedy}"
        )
    ours, theirs = target.special_ids(), draft.special_ids()
    for role, token in ours.items():
        if theirs[role] != token:
            raise IncompatibleDraft(
                f"{draft.path.name} cannot draft for {target.path.name}: its {role} token is {theirs[role]}, "
                f"the target's {token}; {remedy}"
            )
    if target.add_bos != draft.add_bos:
        raise IncompatibleDraft(
            f"{draft.path.name} cannot draft for {target.path.name}: only one of them starts texts with BOS; {remedy}"
        )
    return SharedVocabulary(size)


def _show(model: Model, token: int) -> str:
    return repr(model.token_text(token).decode("utf-8", errors="replace"))
