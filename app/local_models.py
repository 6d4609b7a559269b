"""Names for models that no catalogue knows: imported from other programs, or made here (`models quantize`)."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from app.errors import AppError
from models import Inventory
from models.imports import Imports


def local_path(name: str, inventory: Inventory) -> Path | None:
    """The file that goes by `name` on this disk, or None.

    An imported model has the name that `models import` gave it; a file of the models directory is known as `models
    list` shows it, by its file name, and without `.gguf`. Raises AppError where a name is ambiguous, or where an
    imported file is no longer what was imported: it is never loaded in the old one's place.
    """
    if imported := Imports(inventory.models_dir).find(name):
        if fault := imported.fault():
            raise AppError(
                f"{name} cannot be used: {fault}; `paceline models import PATH` takes it in again as it is now, "
                f"`paceline models remove {name}` forgets it"
            )
        return imported.path
    whole = [model for model in inventory.list() if model.state == "whole"]
    found = [model for model in whole if model.name == name]
    found = found or [model for model in whole if name in _short_names(model.name)]
    if len(found) > 1:
        raise AppError(f"{name!r} could be any of {', '.join(model.name for model in found)}; use one of those names")
    return found[0].path if found else None


def _short_names(name: str) -> tuple[str, str]:
    path = PurePosixPath(name)
    return path.name, path.stem
