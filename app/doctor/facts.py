"""Everything `doctor` looks at, gathered without changing anything: no directory is made, no model is loaded."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from app import __version__
from app.doctor.cpu import cpu_features
from app.doctor.gpu import PresentGpu, present_gpus
from app.doctor.hub import HubState, ask_hub
from app.doctor.profiles import Learned, learned
from app.engine_build import EngineBuild, ask_engine_build
from app.fit import Fit, fit_pair
from app.machine import machine_with
from app.paths import Paths
from app.selection import STARTER, Selector
from app.tune.store import in_use
from models import BadCatalogue, Catalogue, Hardware, Inventory, ModelsError, load_catalogue
from models.imports import Imports


@dataclass(frozen=True, slots=True)
class Folder:
    """One of Paceline's places."""

    purpose: str
    path: Path
    writable: bool
    """Or could be made."""


@dataclass(frozen=True, slots=True)
class ModelHere:
    """A model file on this disk: whole and verified, in part, unverified, imported, or changed since it was imported."""

    name: str
    state: str
    bytes: int

    @property
    def usable(self) -> bool:
        return self.state in ("whole", "imported")


@dataclass(frozen=True, slots=True)
class Facts:
    """What there is. Judged elsewhere."""

    build: EngineBuild
    present_gpus: tuple[PresentGpu, ...]
    machine: Hardware
    cpu: frozenset[str]
    folders: tuple[Folder, ...]
    models: tuple[ModelHere, ...]
    pairs_here: tuple[str, ...]
    """Pairs of the catalogue whose files are all here and verified."""
    default_fit: Fit | None
    """How the pair that `ask` takes by itself fits; None when its files cannot be read."""
    catalogue_fault: str | None
    profiles: tuple[Learned, ...]
    bad_profiles: tuple[str, ...]
    hub: HubState
    version: str = __version__
    python: str = platform.python_version()
    executable: str = sys.executable
    system: str = f"{platform.system()} {platform.release()} {platform.machine()}"
    tuned: tuple[str, ...] = ()
    """Settings that `paceline tune` found here, in words, by target."""

    def as_json(self) -> dict[str, Any]:
        return {
            "version": self.version, "python": self.python, "executable": self.executable, "system": self.system,
            "llama_cpp": asdict(self.build), "present_gpus": [asdict(gpu) for gpu in self.present_gpus],
            "machine": {**asdict(self.machine), "repacked_types": sorted(self.machine.repacked_types)},
            "cpu_features": sorted(self.cpu), "folders": {f.purpose: {"path": str(f.path), "writable": f.writable} for f in self.folders},
            "models": [asdict(model) for model in self.models],
            "pairs_here": list(self.pairs_here), "default_pair": self.default_fit.as_json() if self.default_fit else None,
            "catalogue_fault": self.catalogue_fault, "profiles": [asdict(profile) for profile in self.profiles],
            "bad_profiles": list(self.bad_profiles), "tuned": list(self.tuned), "hub": asdict(self.hub),
        }


def collect(paths: Paths, *, offline: bool) -> Facts:
    """Look at everything. What is slow (the hub, a process that loads llama.cpp) is asked at the same time."""
    catalogue, fault = _catalogue(paths)
    inventory = Inventory(paths.models)
    with ThreadPoolExecutor() as pool:
        hub = pool.submit(ask_hub, catalogue.pair(STARTER).target, offline=offline)
        build = pool.submit(ask_engine_build).result()
        gpus = pool.submit(present_gpus)
        machine = machine_with(paths.models, build.gpus)
        good, bad = learned(paths.profiles, f"{build.version} {build.system_info}")
        return Facts(
            build=build, present_gpus=tuple(gpus.result()), machine=machine, cpu=cpu_features(),
            folders=tuple(_folders(paths)), models=tuple(_models(inventory)),
            pairs_here=tuple(pair.name for pair in catalogue.pairs if all(inventory.path_of(file) for file in pair.files)),
            default_fit=_default_fit(catalogue, inventory, machine), catalogue_fault=fault,
            profiles=tuple(good), bad_profiles=tuple(bad), hub=hub.result(),
            tuned=in_use(paths, f"{build.version} {build.system_info}"),
        )


def _catalogue(paths: Paths) -> tuple[Catalogue, str | None]:
    """With the user's own entries or, if those are wrong, without, and what is wrong with them."""
    try:
        return load_catalogue(paths.config), None
    except BadCatalogue as error:
        return load_catalogue(), str(error)


def _models(inventory: Inventory) -> Iterator[ModelHere]:
    yield from (ModelHere(model.name, model.state, model.bytes) for model in inventory.list())
    yield from (ModelHere(model.name, model.state, model.bytes) for model in Imports(inventory.models_dir).list())


def _default_fit(catalogue: Catalogue, inventory: Inventory, machine: Hardware) -> Fit | None:
    target = Selector(catalogue, inventory).select(None, None).target.file
    pair = next((pair for pair in catalogue.pairs if pair.target == target), catalogue.pair(STARTER))
    try:
        return fit_pair(pair, inventory, machine)
    except ModelsError:
        return None


def _folders(paths: Paths) -> Iterator[Folder]:
    places = {"models": paths.models, "profiles": paths.profiles, "logs": paths.logs, "config": paths.config}
    for purpose, path in places.items():
        here = next(place for place in (path, *path.absolute().parents) if place.exists())
        yield Folder(purpose, path, here.is_dir() and os.access(here, os.W_OK | os.X_OK))
