"""What can be loaded here, and what loading it would take: the pairs of the catalogue and the models on this disk.

No widgets, and nothing is fetched. The catalogue's pairs are quick to look at; files of other programs have their headers
read one by one, a tenth of a second each, so both come as iterators for a thread to walk through.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from app.errors import AppError
from app.options import LoadChoices
from app.paths import Paths

if TYPE_CHECKING:
    from app.fit import Fit
    from app.selection import Selection
    from app.settings import Settings
    from models import Hardware, ModelFile
    from models.importer import Found
    from models.imports import ImportedModel

USUAL_CONTEXTS = (2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""Tokens to choose from."""


@dataclass(frozen=True, slots=True)
class Offer:
    """A pair, or one model, that somebody may want to load."""

    name: str
    """What LoadChoices calls the target."""
    title: str
    fit: Fit
    draft: str | None = None
    """What LoadChoices calls the draft; None for the target's usual one."""
    origin: str = ""
    """The program that keeps it, for what is on this disk and not in the catalogue."""
    licence: str = ""
    partial_bytes: int = 0
    """Of an unfinished download."""
    files: tuple[ModelFile, ...] = ()
    """Those that are to be fetched."""
    gated: tuple[str, ...] = ()
    """Repositories that ask for their licence to be accepted first."""
    unregistered: tuple[ImportedModel, ...] = ()
    """Models of other programs that have no name here yet."""

    @property
    def here(self) -> bool:
        return not self.files

    @property
    def usable(self) -> bool:
        """Worth a try: it fits, or only the load can tell."""
        return self.fit.verdict not in ("no", "unusable")

    def choices(self, given: LoadChoices, context: int | None) -> LoadChoices:
        """How to load it, with all else as it was given."""
        return replace(given, target=self.name, draft=self.draft, ctx=context)


def nothing_here(paths: Paths, choices: LoadChoices) -> bool:
    """True if nothing was chosen and there is no model at all: a first start. Cheap; looks at names only."""
    if choices.target is not None or choices.yes or (paths.models / "imported.json").exists():
        return False
    return next(paths.models.rglob("*.gguf"), None) is None


def is_offline(choices: LoadChoices) -> str | None:
    """Why going online is ruled out, in words; None if it is not."""
    if choices.offline:
        return "--offline"
    return "HF_HUB_OFFLINE is set" if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"} else None


def held_by_engine() -> int:
    """Bytes of memory that this process's children would give back by ending; mapped files, which count as free, aside."""
    import psutil

    held = 0
    for child in psutil.Process().children():
        with suppress(psutil.Error):
            memory = child.memory_info()
            held += memory.rss - getattr(memory, "shared", 0)
    return held


def with_choice(settings: Settings, choices: LoadChoices) -> Settings:
    """The settings that take these models at the next start."""
    from app.settings import LoadSettings

    return settings.model_copy(update={"load": LoadSettings(target=choices.target, draft=choices.draft, ctx=choices.ctx)})


class Models:
    """The models there are to choose from, against one state of the machine. Use it on one thread; the first use costs a
    second, for llama.cpp and the catalogue."""

    def __init__(self, paths: Paths, given: LoadChoices, *, loaded: bool = False) -> None:
        """`given` is what is chosen now. If it is `loaded`, its memory counts as free: it goes before the next load.

        Raises AppError where the catalogue cannot be read.
        """
        from app.selection import Selector
        from app.wiring import this_machine
        from models import ModelsError

        try:
            self._selector = Selector.at(paths)
        except ModelsError as error:
            raise AppError(str(error)) from None
        self._paths = paths
        self._given = given
        self.machine: Hardware = this_machine(paths.models)
        self._local: dict[str, ImportedModel] = {}
        self._unregistered: set[str] = set()
        self._drafts: dict[str, list[str]] = {}
        """Names that can draft, by target, the smallest first."""
        if loaded:
            self.machine = self._emptied(self.machine)

    def all(self, context: int | None, extra: Sequence[str]) -> Iterator[Offer]:
        """Everything: the catalogue, then this disk, then what goes by the `extra` names, if it is something else again."""
        names = set()
        for offer in chain(self.catalogue(context), self.local(context)):
            names.add(offer.name)
            yield offer
        for name in extra:
            if name and name not in names:
                with suppress(AppError):
                    yield self.offer(name, self._given.draft if name == self._given.target else None, context)

    def catalogue(self, context: int | None) -> Iterator[Offer]:
        """The catalogue's pairs, what is here first."""
        inventory = self._selector.inventory
        pairs = sorted(self._selector.catalogue.pairs, key=lambda pair: inventory.path_of(pair.target) is None)
        for pair in pairs:
            yield self.offer(pair.name, None, context)

    def local(self, context: int | None) -> Iterator[Offer]:
        """Models on this disk that are not the catalogue's: of other programs, copied in or made here. Each with the smallest
        that can draft for it."""
        from app.selection import NO_DRAFT
        from models.pairing import pairings

        known, fresh = self._local_models()
        self._local = {model.name: model for model in [*known, *fresh]}
        self._unregistered = {model.name for model in fresh}
        self._drafts = {}
        for pairing in pairings(self._local.values()):
            self._drafts.setdefault(pairing.target, []).append(pairing.draft)
        in_catalogue = {file.name for file in self._selector.catalogue.files}
        for name in self._local:
            if name not in in_catalogue:
                yield self.offer(name, next(iter(self._drafts.get(name, ())), NO_DRAFT), context)

    def current(self) -> str | None:
        """The name of what a load takes now; None where that is not on this disk."""
        if self._given.target is not None:
            return self._given.target
        target = self._selection(None, None).target.file
        pairs = [pair for pair in self._selector.catalogue.pairs if pair.target == target]
        return pairs[0].name if pairs and target and self._selector.inventory.path_of(target) else None

    def offer(self, name: str, draft: str | None, context: int | None) -> Offer:
        """The pair or model of a name, with another draft than its usual one if that is said (`none` for none).

        Raises AppError where a name means nothing.
        """
        from app.fit import fit_pair

        pair = next((pair for pair in self._selector.catalogue.pairs if pair.name == name), None)
        if pair is not None and draft is None:
            given = replace(self._given, target=name, draft=None, ctx=context)
            fit = fit_pair(pair, self._selector.inventory, self.machine, given, self._paths)
            return self._described(name, pair.title, fit, None, () if fit.verdict == "unusable" else pair.files)
        selection = self._selection(name, draft)
        models = [selection.target, *([selection.draft] if selection.draft else [])]
        fit = self._fit(name, selection, context)
        local = [self._local[one] for one in (name, draft) if one in self._local]
        if name in self._local:
            fit = replace(fit, target=name, draft=draft if selection.draft else None)
        origin = self._local[name].origin if name in self._local else ""
        made = self._described(name, self._title(name, fit), fit, draft, [m.file for m in models if m.file])
        return replace(made, origin=origin, unregistered=tuple(one for one in local if one.name in self._unregistered))

    def drafts_for(self, offer: Offer) -> list[tuple[str, str]]:
        """Names of models that may draft for the target, each with what is known of it: those here whose vocabulary is the
        same, and the catalogue's drafts for the same target."""
        catalogue = [p.draft for p in self._selector.catalogue.pairs if p.target.name == offer.fit.target and p.draft and not p.unusable]
        known = {draft.name: draft.title or draft.name for draft in catalogue if not draft.unusable}
        for name in (offer.name, offer.fit.target):
            known |= {draft: draft for draft in self._drafts.get(name, ()) if draft not in known}
        return list(known.items())

    def register(self, offer: Offer) -> Offer:
        """Give the models of other programs that the offer is made of the names they were offered by."""
        from models.imports import Imports

        imports = Imports(self._paths.models)
        names = {model.name: imports.add(model).name for model in offer.unregistered}
        return replace(offer, name=names.get(offer.name, offer.name), draft=names.get(offer.draft or "", offer.draft), unregistered=())

    # ---- parts

    def _emptied(self, machine: Hardware) -> Hardware:
        """The machine without the engine. What the driver of a GPU holds for it nobody says; the plan does."""
        devices, left = [], 0
        if machine.devices:
            with suppress(AppError):
                plan = self._fit("", self._selection(self._given.target, self._given.draft), self._given.ctx, roomy=True).plan
                left = plan.device_bytes if plan else 0
        for device in machine.devices:
            back = min(left, device.total_bytes - device.free_bytes)
            left -= back
            devices.append(replace(device, free_bytes=device.free_bytes + back))
        available = min(machine.ram_bytes, machine.available_bytes + held_by_engine())
        return replace(machine, available_bytes=available, devices=tuple(devices))

    def _described(self, name: str, title: str, fit: Fit, draft: str | None, files: Sequence[ModelFile]) -> Offer:
        inventory = self._selector.inventory
        missing = tuple(file for file in files if inventory.path_of(file) is None)
        pieces = [piece for file in missing for piece in file.pieces()]
        licences = dict.fromkeys(file.licence for file in files if file.licence)
        return Offer(
            name, title, fit, draft, licence=", ".join(licences), files=missing,
            partial_bytes=sum(inventory.partial_bytes(piece) for piece in pieces),
            gated=tuple(dict.fromkeys(file.repo for file in missing if file.gated)),
        )

    def _title(self, name: str, fit: Fit) -> str:
        pair = next((pair for pair in self._selector.catalogue.pairs if pair.name == name), None)
        target = pair.target.title or pair.target.name if pair is not None else Path(name).name if os.sep in name else name
        return f"{target} + {fit.draft}" if fit.draft else target

    def _local_models(self) -> tuple[list[ImportedModel], list[ImportedModel]]:
        """Models with a name here, and those of other programs without one."""
        from app.importing import ENCODERS, distinct
        from models import BadCatalogue
        from models.importer import Found, find_models, standard_folders
        from models.imports import Imports

        inventory = self._selector.inventory
        try:
            imports = [model for model in Imports(self._paths.models).list() if not model.fault()]
        except BadCatalogue as error:
            raise AppError(str(error)) from None
        names = {str(inventory.location(file)): file.name for file in self._selector.catalogue.files}
        whole = [model for model in inventory.list() if model.state == "whole"]
        own = _inspected(Found(m.path, names.get(str(m.path), m.path.stem), "downloaded") for m in whole)
        known = [*own, *imports]
        places = {model.path.resolve() for model in known}
        folders = standard_folders(os.environ, Path.home())
        others = _inspected(one for one in find_models(folders) if one.path.resolve() not in places)
        others = [model for model in distinct([*known, *others])[len(distinct(known)) :] if model.architecture not in ENCODERS]
        taken = {*names.values(), *(pair.name for pair in self._selector.catalogue.pairs), *(model.name for model in known)}
        return known, list(_with_free_names(others, taken))

    def _selection(self, target: str | None, draft: str | None) -> Selection:
        """As a load would select, but that names of models that are not registered yet mean something too."""
        from models import ModelsError

        try:
            return self._selector.select(self._place(target), self._place(draft))
        except ModelsError as error:
            raise AppError(str(error)) from None

    def _place(self, name: str | None) -> str | None:
        model = self._local.get(name) if name is not None else None
        return str(model.path) if model is not None else name

    def _fit(self, name: str, selection: Selection, context: int | None = None, *, roomy: bool = False) -> Fit:
        from app.fit import fit_selection
        from app.plan import without_limits
        from models import BadGguf

        machine = without_limits(self.machine) if roomy else self.machine
        try:
            given = replace(self._given, ctx=context)
            return fit_selection(name, selection, self._selector.inventory, machine, given, self._paths)
        except BadGguf as error:
            raise AppError(str(error)) from None


def _inspected(found: Iterable[Found]) -> list[ImportedModel]:
    """What their headers say; files that cannot be read are no offer."""
    from models import BadGguf
    from models.imports import inspect

    models = []
    for one in found:
        with suppress(BadGguf):
            models.append(inspect(one))
    return models


def _with_free_names(models: Iterable[ImportedModel], taken: set[str]) -> Iterator[ImportedModel]:
    for model in models:
        number, name = 2, model.name
        while name in taken:
            name, number = f"{model.name}-{number}", number + 1
        taken = taken | {name}
        yield replace(model, name=name)
