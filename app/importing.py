"""Importing models of other programs: find, read headers, keep in the registry, and work out who can draft for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.errors import AppError, Interrupted
from app.interrupt import Interrupt
from app.terminal import FractionBar
from models import BadGguf, Catalogue, ChecksumMismatch, DownloadCancelled, Inventory
from models.importer import Found, find_models
from models.imports import ImportedModel, Imports, inspect, with_hashes
from models.pairing import Pairing, pairings

ENCODERS = frozenset(
    ["bert", "modern-bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "neo-bert", "eurobert", "t5encoder", "clip"]
)
"""Architectures that read text or images and write none."""


@dataclass(frozen=True, slots=True)
class Import:
    """One model that was taken in."""

    model: ImportedModel
    catalogue_name: str | None
    """The catalogue's file with the same SHA-256."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of an import."""

    imported: list[Import]
    refused: list[tuple[Path, str]]
    """Files that look like models and cannot be used, with the reason."""
    pairings: list[Pairing]
    """Among these and every model that was here before; each has one of the newly imported in it."""


def import_models(paths: Sequence[Path], inventory: Inventory, catalogue: Catalogue, *, hashes: bool) -> Outcome:
    """Take in every model under `paths` that is not in the models directory already. Nothing is copied.

    hashes: also compute each file's SHA-256. Raises AppError for a path that is not there, Interrupted after Ctrl-C
    (what was read by then is kept).
    """
    for path in paths:
        if not path.exists():
            raise AppError(f"there is no {path}")
    home = inventory.models_dir.resolve()
    found = [one for one in find_models(paths) if home not in one.path.resolve().parents]
    imports = Imports(inventory.models_dir)
    taken = {file.name for file in catalogue.files} | {pair.name for pair in catalogue.pairs}
    taken |= {model.path.stem for model in inventory.list()}
    imported, refused = [], []
    with Interrupt() as interrupt, FractionBar() as bar:
        for number, one in enumerate(found):
            if interrupt.seen:
                raise Interrupted
            bar.show(f"reading {one.name}", number / len(found))
            try:
                model = _take_in(one, bar, interrupt, hashes=hashes)
            except DownloadCancelled:
                raise Interrupted from None
            except (BadGguf, ChecksumMismatch) as error:
                refused.append((one.path, str(error)))
            else:
                if model.architecture in ENCODERS:
                    refused.append((one.path, f"a model of kind {model.architecture} writes no text"))
                else:
                    imported.append(_known(imports.add(model, taken), one, catalogue))
        names = {one.model.name for one in imported}
        others = [m for m in imports.list() if m.name not in names and not m.fault()] if imported else []
        downloaded = _downloaded(inventory, bar) if imported else []
    found_pairs = pairings(distinct([*(one.model for one in imported), *others, *downloaded]))
    return Outcome(imported, refused, [pair for pair in found_pairs if {pair.draft, pair.target} & names])


def _take_in(found: Found, bar: FractionBar, interrupt: Interrupt, *, hashes: bool) -> ImportedModel:
    model = inspect(found)
    if not hashes:
        return model
    total = max(model.bytes, 1)
    return with_hashes(
        model, found.claimed_sha256,
        progress=lambda done: bar.show(f"checking {model.name}", done / total), cancelled=lambda: interrupt.seen,
    )


def _known(model: ImportedModel, found: Found, catalogue: Catalogue) -> Import:
    sha256 = model.files[0].sha256 or found.claimed_sha256
    same = (file.name for file in catalogue.files if file.sha256 is not None and file.sha256 == sha256)
    return Import(model, next(same, None))


def distinct(models: Sequence[ImportedModel]) -> list[ImportedModel]:
    """Each model once, by its first name: a file that was downloaded here and by another program is one draft."""
    kept: dict[tuple[object, ...], ImportedModel] = {}
    for model in models:
        kept.setdefault((model.bytes, model.weight_bytes, model.architecture, model.quantisation, model.vocabulary), model)
    return list(kept.values())


def _downloaded(inventory: Inventory, bar: FractionBar) -> list[ImportedModel]:
    """What was fetched or made here, for pairing. A file that cannot be read is not this command's business."""
    models = []
    whole = [model for model in inventory.list() if model.state == "whole"]
    for number, model in enumerate(whole):
        bar.show(f"comparing with {model.name}", number / len(whole))
        try:
            models.append(inspect(Found(model.path, model.path.stem, "here")))
        except BadGguf:
            continue
    return models
