"""Which pairs fit this machine, and which of them to recommend. Reads the headers of files that are here; of the others
it takes the catalogue's facts. Prints nothing, fetches nothing.

The rule of `recommend`: the largest target that fits with its draft and nothing given up and can be read from memory
FAST times a second; where there is none, the smallest pair that fits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

from app.local_pair import LocalModel, LocalPair
from app.options import LoadChoices
from app.paths import Paths
from app.plan import plan_pair, plan_tuned
from app.selection import Choice, Selection, Selector
from app.tune.store import tuned_draft, tuned_settings
from app.units import gb
from models import (
    DoesNotFit,
    Hardware,
    Inventory,
    LoadPlan,
    ModelShape,
    Pair,
    read_gguf,
    shape_from_facts,
    shape_of,
)

FAST = 8
"""Tokens a second without drafting: a little above reading speed."""
CORE_BYTES, CPU_BYTES, SHARED_BYTES, GPU_BYTES = 12e9, 40e9, 100e9, 250e9
"""Bytes of weights read in a second: by one core (measured: 31 GB/s by two), by a whole CPU with two channels of memory,
by a GPU that shares it, by one with its own. Rough on purpose; they only tell small from large."""
ESTIMATE_MARGIN = 1.2
"""Estimates from catalogue facts are good to about a tenth."""

Verdict = Literal["gpu", "split", "cpu", "no", "unknown", "unusable"]


@dataclass(frozen=True, slots=True)
class Fit:
    """Whether one pair runs here, and how."""

    name: str
    title: str
    target: str
    draft: str | None
    verdict: Verdict
    reason: str
    answer: LoadPlan | DoesNotFit | None = None
    target_bytes: int = 0
    pair_bytes: int = 0
    download_bytes: int = 0
    """Of the files that are not here."""
    enough_disk: bool = True
    pair: Pair | None = None
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """What a load takes of the settings that `paceline tune` found here."""

    @property
    def fits(self) -> bool:
        return self.verdict in ("gpu", "split", "cpu")

    @property
    def plan(self) -> LoadPlan | None:
        """The way to load it; of one that does not fit, the smallest that was tried."""
        return self.answer.smallest if isinstance(self.answer, DoesNotFit) else self.answer

    def as_json(self) -> dict[str, Any]:
        plan, no = self.plan, self.answer if isinstance(self.answer, DoesNotFit) else None
        return {
            "name": self.name, "target": self.target, "draft": self.draft, "fits": self.verdict, "reason": self.reason,
            "here": self.download_bytes == 0 and self.verdict not in ("unknown", "unusable"),
            "download_bytes": self.download_bytes, "enough_disk": self.enough_disk,
            "plan": None if plan is None else {
                "context": plan.context, "kv_type": plan.kv_type, "batch": plan.batch, "use_draft": plan.use_draft,
                "target_gpu_layers": plan.target_gpu_layers, "draft_gpu_layers": plan.draft_gpu_layers,
                "host_needed_bytes": plan.host_needed_bytes, "host_peak_bytes": plan.host_peak_bytes,
                "device_bytes": plan.device_bytes, "given_up": list(plan.given_up), "estimated": plan.estimated, "tuned": dict(self.tuned),
            },
            "lacking": None if no is None else {
                "where": no.where, "needed_bytes": no.needed_bytes, "available_bytes": no.available_bytes,
            },
        }


def fit_pair(
    pair: Pair, inventory: Inventory, machine: Hardware, choices: LoadChoices | None = None, paths: Paths | None = None
) -> Fit:
    """How a pair of the catalogue fits. paths: where `paceline tune` keeps what it found, which a load starts from; asks
    llama.cpp where there is something. None leaves it out."""
    names: dict[str, Any] = {
        "name": pair.name, "title": pair.title, "target": pair.target.name, "draft": pair.draft.name if pair.draft else None,
    }
    if reason := next((f"{file.name}: {file.unusable}" for file in pair.files if file.unusable), pair.unusable):
        return Fit(**names, verdict="unusable", reason=reason, pair=pair)
    draft = Choice(file=pair.draft) if pair.draft else None
    return _fit(names, Selection(Choice(file=pair.target), draft), inventory, machine, choices or LoadChoices(), pair, paths)


def fit_selection(
    name: str, selection: Selection, inventory: Inventory, machine: Hardware, choices: LoadChoices, paths: Paths | None = None
) -> Fit:
    """How two models that somebody named fit. paths: as for fit_pair."""
    names: dict[str, Any] = {
        "name": name, "title": selection.remark or "", "target": _name(selection.target),
        "draft": _name(selection.draft) if selection.draft else None,
    }
    return _fit(names, selection, inventory, machine, choices, None, paths)


def recommend(fits: Iterable[Fit], machine: Hardware) -> Fit | None:
    """The pair to take on this machine, by the rule above; None when none fits."""
    usable = [fit for fit in fits if fit.fits and fit.enough_disk and not needs_patience(fit)]
    quick = [fit for fit in usable if is_whole(fit, machine) and tokens_per_second(fit, machine) >= FAST]
    if quick:
        return max(quick, key=lambda fit: (fit.target_bytes, -fit.pair_bytes))
    return min(usable, key=lambda fit: (fit.pair_bytes, fit.name), default=None)


def something_that_fits(selector: Selector, machine: Hardware) -> str | None:
    """A pair to take instead, in words; one that is here already before one to fetch."""
    fits = [fit_pair(pair, selector.inventory, machine) for pair in selector.catalogue.pairs]
    best = recommend([fit for fit in fits if fit.fits and not fit.download_bytes], machine) or recommend(fits, machine)
    return f"--target {best.name} would fit" if best else None


def doubt_before_fetching(fit: Fit) -> tuple[str | None, bool]:
    """Why a pair may not be worth downloading, None if it fits; and whether that is certain, estimates being rough."""
    no = fit.answer
    if isinstance(no, DoesNotFit):
        certain = no.needed_bytes > ESTIMATE_MARGIN * no.available_bytes
        return f"{fit.target} {no.reason} (an estimate, before it is downloaded)", certain
    return (f"{fit.target} {fit.reason}", True) if fit.verdict == "no" else (None, False)


def needs_patience(fit: Fit) -> bool:
    """True for what one command cannot fetch (a licence to accept first), and for what always thinks aloud."""
    return fit.pair is not None and (
        any(file.gated for file in fit.pair.files) or fit.pair.target.thinking == "always"
    )


def is_whole(fit: Fit, machine: Hardware) -> bool:
    """With its draft, nothing given up, and not cut in two between CPU and GPU."""
    plan = fit.plan
    place = "gpu" if machine.devices else "cpu"
    return plan is not None and plan.draft is not None and not plan.given_up and fit.verdict == place


def tokens_per_second(fit: Fit, machine: Hardware) -> float:
    """A rough guess, without drafting: each token reads every weight once."""
    if fit.verdict != "gpu":
        rate = min(CORE_BYTES * machine.physical_cores, CPU_BYTES)
    else:
        rate = SHARED_BYTES if any(device.unified for device in machine.devices) else GPU_BYTES
    return rate / max(fit.target_bytes, 1)


def _fit(
    names: dict[str, Any], selection: Selection, inventory: Inventory, machine: Hardware, choices: LoadChoices,
    pair: Pair | None, paths: Paths | None,
) -> Fit:
    models = [selection.target, *([selection.draft] if selection.draft else [])]
    files = [model.file for model in models if model.file]
    missing = [piece for file in files if not inventory.path_of(file) for piece in file.pieces()]
    download = sum(piece.bytes or 0 for piece in missing)
    shapes = [_shape(model, inventory) for model in models]
    facts = {**names, "pair": pair, "download_bytes": download, "enough_disk": download <= machine.disk_free_bytes}
    target, draft = shapes[0], shapes[1] if selection.draft else None
    if target is None or (selection.draft and draft is None):
        return Fit(**facts, **_by_size_alone(sum(file.bytes or 0 for file in files), machine))
    sizes = [shape.file_bytes for shape in (target, draft) if shape]
    facts |= {"target_bytes": target.file_bytes, "pair_bytes": sum(sizes)}
    asked_for = selection.draft is not None and not selection.draft_implied and pair is None
    tuned: Mapping[str, Any] = {}
    if paths is not None and (local := _on_disk(models, inventory)):
        if draft is not None and not asked_for and (better := tuned_draft(paths, local)):
            local, draft = replace(local, draft=LocalModel(better)), _read(better.resolve())
            facts |= {"draft": better.name, "pair_bytes": target.file_bytes + draft.file_bytes}
        tuned = tuned_settings(paths, local, choices.fixed())
    plan_with = partial(plan_pair, target, draft, machine, choices, keep_draft=asked_for)
    answer, in_use = plan_tuned(plan_with, tuned, draft=draft is not None)
    if isinstance(answer, DoesNotFit):
        return Fit(**facts, verdict="no", reason=answer.reason, answer=answer)
    return Fit(**facts, verdict=answer.placement, reason=", ".join(answer.given_up), answer=answer, tuned=in_use)


def _by_size_alone(size: int, machine: Hardware) -> dict[str, Any]:
    """What can be said of files whose layers nobody wrote down."""
    free = machine.available_bytes + sum(device.free_bytes for device in machine.devices if not device.unified)
    if size > free:
        return {"verdict": "no", "reason": f"has files of {gb(size)} GB and {gb(free)} GB of memory are free"}
    return {"verdict": "unknown", "reason": "known only once it is here"}


def _shape(model: Choice, inventory: Inventory) -> ModelShape | None:
    path = _path(model, inventory)
    if path is not None:
        return _read(path.resolve())
    return shape_from_facts(model.file) if model.file else None


def _path(model: Choice, inventory: Inventory) -> Path | None:
    return model.path or (inventory.path_of(model.file) if model.file else None)


_read: Callable[[Path], ModelShape] = cache(lambda path: shape_of(read_gguf(path)))
"""One draft serves many pairs."""


def _on_disk(models: Sequence[Choice], inventory: Inventory) -> LocalPair | None:
    """None unless all of them are."""
    files = [path for model in models if (path := _path(model, inventory))]
    if len(files) < len(models):
        return None
    return LocalPair(LocalModel(files[0]), LocalModel(files[1]) if len(files) > 1 else None)


def _name(model: Choice) -> str:
    return model.path.name if model.path else model.file.name if model.file else ""
