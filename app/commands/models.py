"""`paceline models`: what exists, what is on this disk, fetching and removing it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from app.commands.fit import fit, recommend
from app.commands.models_compare import compare
from app.commands.models_import import import_
from app.commands.models_quantize import quantize
from app.commands.models_show import show

if TYPE_CHECKING:
    from app.selection import Selector

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def models() -> None:
    """List, fetch, make and remove model files."""


for _command in (fit, recommend, show, import_, quantize, compare):
    models.add_command(_command)


@models.command()
@click.argument("name")
@click.option("--offline", is_flag=True, help="Only check what is on this disk.")
@as_json_option
def pull(name: str, offline: bool, as_json: bool) -> None:
    """Fetch a pair (`starter`), one file of the catalogue, or hf:owner/repo/file.gguf.

    Goes on where an earlier download stopped; nothing counts as here before its SHA-256 is right.
    """
    from app.downloads import fetch
    from app.terminal import say, write_out

    selector = _selector()
    paths = fetch(selector.files_named(name), selector.inventory.models_dir, offline=offline)
    if as_json:
        write_out(json.dumps({"files": [str(path) for path in paths]}) + "\n")
    else:
        say(f"{name} is ready")
        write_out("".join(f"{path}\n" for path in paths))


@models.command("list")
@as_json_option
def list_(as_json: bool) -> None:
    """Show the model files on this disk."""
    from app.tables import table
    from app.terminal import print_table, say, write_out
    from app.units import byte_size
    from models.imports import Imports

    inventory = _selector().inventory
    found, imported = inventory.list(), Imports(inventory.models_dir).list()
    if as_json:
        ours = [{**asdict(model), "path": str(model.path)} for model in found]
        theirs = [{**asdict(model), "path": str(model.path), "bytes": model.bytes, "state": model.state} for model in imported]
        write_out(json.dumps([*ours, *theirs]) + "\n")
    elif not found and not imported:
        say(f"no models in {inventory.models_dir} yet; `paceline models pull starter` fetches the starter pair")
    else:
        rows = [(model.name, byte_size(model.bytes), str(model.state)) for model in found]
        rows += [(model.name, byte_size(model.bytes), model.state) for model in imported]
        print_table(table(("model", "size", "state"), rows))


@models.command()
@as_json_option
def pairs(as_json: bool) -> None:
    """Show the catalogue: targets, and the draft that goes with each."""
    from app.downloads import total_size
    from app.tables import table
    from app.terminal import print_table, write_out

    selector = _selector()
    if as_json:
        catalogue = [pair.model_dump(mode="json", exclude_none=True) for pair in selector.catalogue.pairs]
        write_out(json.dumps(catalogue) + "\n")
        return
    rows = []
    for pair in selector.catalogue.pairs:
        here = all(selector.inventory.path_of(file) for file in pair.files)
        note = "here" if here else f"cannot be used: {pair.unusable}" if pair.unusable else ""
        rows.append((pair.name, pair.target.name, pair.draft.name if pair.draft else "-", total_size(pair.files), note))
    print_table(table(("pair", "target", "draft", "size", ""), rows))


@models.command()
@click.argument("name")
@as_json_option
def remove(name: str, as_json: bool) -> None:
    """Delete a pair or a file, named as in `pull` or as in `list`. Of an imported model only the entry goes."""
    from app.errors import AppError
    from app.quantised import FOLDER as QUANTISED
    from app.terminal import write_out
    from app.units import byte_size
    from models.imports import Imports

    selector = _selector()
    inventory = selector.inventory
    if Imports(inventory.models_dir).remove(name):
        write_out(json.dumps({"freed_bytes": 0}) + "\n" if as_json else f"{name} is forgotten; its file stays where it is\n")
        return
    listed = [model for model in inventory.list() if model.name in (name, f"{QUANTISED}/{name}.gguf")]
    if listed:
        freed = sum(inventory.remove_local(model) for model in listed)
    else:
        freed = sum(inventory.remove(file) for file in selector.files_named(name))
    if not freed:
        raise AppError(f"nothing of {name} is on this disk")
    write_out(json.dumps({"freed_bytes": freed}) + "\n" if as_json else f"{name} is gone; {byte_size(freed)} freed\n")


def _selector() -> Selector:
    from app.paths import Paths
    from app.selection import Selector

    return Selector.at(Paths.find())
