"""What to measure: the configurations of a run, one variable at a time. Pure.

The base is the first of everything given: target, draft, longest reply, batch. With it every mode is run, `plain` (the
target alone) first. Then each other draft, target, length and batch is put in its place alone, everything else as in the
base: a draft in the first mode that uses one, the others in that mode and in `plain`, because a speed-up needs the plain
speed of the very same target, length and batch.

So `modes plain,auto,fixed:4`, `drafts a,b`, `max_tokens 128,512` give
plain, auto, fixed:4 (draft a, 128), auto@draft=b, plain@max-tokens=512, auto@max-tokens=512.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

PLAIN = "plain"


@dataclass(frozen=True, slots=True)
class Variations:
    """What the user wants varied. Names of models as `--target` takes them; None: the usual one."""

    modes: tuple[str, ...] = (PLAIN, "auto")
    targets: tuple[str | None, ...] = (None,)
    drafts: tuple[str | None, ...] = (None,)
    max_tokens: tuple[int, ...] = (128,)
    batch: tuple[int | None, ...] = (None,)
    """Prompt tokens read by one decode; None leaves it to the engine."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """One way to reply. Its name is unique in a run: the mode, and `@variable=value` where it is not the base's."""

    mode: str
    target: str | None = None
    draft: str | None = None
    """Not used by a mode without a draft model, and None there."""
    max_tokens: int = 128
    batch: int | None = None
    varied: str = ""
    """`variable=value`; empty in the base."""

    @property
    def name(self) -> str:
        return f"{self.mode}@{self.varied}" if self.varied else self.mode

    @property
    def baseline(self) -> str | None:
        """The name of what its speed is compared with: plain decoding of the same target, length and batch; for that one,
        if it is a variation, plain decoding of the base; for the base's plain decoding nothing."""
        if self.mode == PLAIN:
            return PLAIN if self.varied else None
        return PLAIN if not self.varied or self.varied.startswith("draft=") else f"{PLAIN}@{self.varied}"


def uses_draft(mode: str) -> bool:
    """Whether a draft model has to be loaded for this mode."""
    return mode not in (PLAIN, "ngram")


def configurations(wanted: Variations) -> tuple[Configuration, ...]:
    """All of a run, baselines before what is compared with them. `wanted.modes` has `plain` among them."""
    base = Configuration(PLAIN, wanted.targets[0], wanted.drafts[0], wanted.max_tokens[0], wanted.batch[0])
    modes = (PLAIN, *(mode for mode in wanted.modes if mode != PLAIN))
    found = [_in_mode(base, mode) for mode in modes]
    main = next((mode for mode in modes if mode != PLAIN), None)
    drafting = next((mode for mode in modes if uses_draft(mode)), None)
    if drafting:
        found += [replace(base, mode=drafting, draft=draft, varied=f"draft={name}") for draft, name in _named(wanted.drafts)]
    both = [PLAIN, *([main] if main else [])]
    for target, name in _named(wanted.targets):
        found += [_in_mode(replace(base, target=target, varied=f"target={name}"), mode) for mode in both]
    for tokens in wanted.max_tokens[1:]:
        found += [_in_mode(replace(base, max_tokens=tokens, varied=f"max-tokens={tokens}"), mode) for mode in both]
    for batch in wanted.batch[1:]:
        found += [_in_mode(replace(base, batch=batch, varied=f"batch={batch}"), mode) for mode in both]
    return tuple(found)


def in_turns(categories: Sequence[str]) -> list[int]:
    """An order of prompts, given the category of each, that takes one of each category in turn, so that a run that is cut
    short has measured some of all."""
    seen: dict[str, int] = {}
    places = []
    for index, category in enumerate(categories):
        seen[category] = seen.get(category, 0) + 1
        places.append((seen[category], index))
    return [index for _, index in sorted(places)]


def _named(models: Sequence[str | None]) -> list[tuple[str | None, str]]:
    """All models but the base's, each with a name for people: of a path the file's, unless two would be called the same."""
    short = [PurePath(model).stem if model and model.lower().endswith(".gguf") else str(model) for model in models]
    return [(model, name if short.count(name) == 1 else str(model)) for model, name in zip(models, short, strict=True)][1:]


def _in_mode(configuration: Configuration, mode: str) -> Configuration:
    return replace(configuration, mode=mode, draft=configuration.draft if uses_draft(mode) else None)
