"""Which other models on this disk could draft for a target: the same vocabulary, and clearly smaller."""

from __future__ import annotations

from pathlib import Path

from models import BadGguf, Inventory
from models.importer import Found
from models.imports import ImportedModel, Imports, inspect
from models.vocabulary import mismatch

LARGEST_SHARE = 0.6
"""Of the target's size in bytes; a draft is read once for every token it writes."""
MOST = 3


def other_drafts(target: Path, present: Path | None, models_dir: Path) -> list[Path]:
    """The smallest few first. A file that cannot be read is nobody's draft."""
    mine = _look(target)
    if mine is None or mine.vocabulary is None:
        return []
    paths = [model.path for model in Inventory(models_dir).list() if model.state == "whole"]
    paths += [model.path for model in Imports(models_dir).list() if not model.fault()]
    found: dict[Path, int] = {}
    for path in paths:
        size = path.stat().st_size
        if size > LARGEST_SHARE * target.stat().st_size or (present and path.resolve() == present.resolve()):
            continue
        model = _look(path)
        if model and model.vocabulary and mismatch(model.vocabulary, mine.vocabulary) is None:
            found.setdefault(path.resolve(), size)
    return sorted(found, key=lambda path: found[path])[:MOST]


def _look(path: Path) -> ImportedModel | None:
    try:
        return inspect(Found(path, path.stem, "here"))
    except (BadGguf, OSError):
        return None
