"""`paceline models import`: use the GGUF files that other programs keep, where they are."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from app.importing import Outcome


@click.command("import")
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path))
@click.option("--hash", "hashes", is_flag=True, help="Also compute each file's SHA-256, and check it where the store names it.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def import_(paths: tuple[Path, ...], hashes: bool, as_json: bool) -> int:
    """Use GGUF files where they are: files, folders, or another program's models.

    Without PATHS the folders of LM Studio, Ollama, the Hugging Face hub's cache and llama.cpp are searched. Nothing is
    copied. The names that are printed can be given to --target and --draft.
    """
    import os

    from app.errors import AppError
    from app.importing import import_models
    from app.paths import Paths, typed_path
    from app.selection import Selector
    from app.terminal import say, write_out
    from models.importer import standard_folders

    selector = Selector.at(Paths.find())
    folders = [typed_path(str(path)) for path in paths] or standard_folders(os.environ, Path.home())
    if not folders:
        raise AppError("no models of LM Studio, Ollama, the Hugging Face hub or llama.cpp here; give a file or folder")
    outcome = import_models(folders, selector.inventory, selector.catalogue, hashes=hashes)
    if as_json:
        write_out(json.dumps(_as_json(outcome)) + "\n")
        return int(not outcome.imported)
    for path, reason in outcome.refused:
        say(f"left out {path}: {reason}")
    if outcome.imported:
        _print(outcome)
    else:
        say(f"nothing to import in {', '.join(map(str, folders))}")
    return int(not outcome.imported)


def _as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "imported": [{**asdict(one.model), "catalogue_name": one.catalogue_name} for one in outcome.imported],
        "refused": [{"path": str(path), "reason": reason} for path, reason in outcome.refused],
        "pairings": [asdict(pair) for pair in outcome.pairings],
    }


def _print(outcome: Outcome) -> None:
    from app.sanitize import sanitize
    from app.tables import table
    from app.terminal import print_table, say
    from app.units import byte_size

    drafts = defaultdict(list)
    for pair in outcome.pairings:
        drafts[pair.target].append(pair.draft)
    rows = []
    for one in sorted(outcome.imported, key=lambda one: one.model.name):
        model = one.model
        kind = f"{model.quantisation}, the catalogue's {one.catalogue_name}" if one.catalogue_name else model.quantisation
        rows.append((
            model.name, byte_size(model.bytes), kind, sanitize(model.architecture), model.origin,
            ", ".join(drafts.pop(model.name, [])) or "-",
        ))
    print_table(table(("model", "size", "quantisation", "kind", "from", "drafts for it"), rows))
    for target, names in drafts.items():
        say(f"{', '.join(names)} can draft for {target}, which was here already")
    example = next(iter(outcome.pairings), None)
    if example:
        say(f"try: paceline ask --target {example.target} --draft {example.draft} \"...\"")
