"""`paceline models`: what exists, what is on this disk, fetching and removing it."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from app.selection import Selector

as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def models() -> None:
    """List, fetch and remove model files."""


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
    from rich.filesize import decimal

    from app.terminal import print_table, say, write_out

    inventory = _selector().inventory
    found = inventory.list()
    if as_json:
        write_out(json.dumps([{**asdict(model), "path": str(model.path)} for model in found]) + "\n")
    elif not found:
        say(f"no models in {inventory.models_dir} yet; `paceline models pull starter` fetches the starter pair")
    else:
        print_table(_table(("model", "size", "state"), [(m.name, decimal(m.bytes), m.state) for m in found]))


@models.command()
@as_json_option
def pairs(as_json: bool) -> None:
    """Show the catalogue: targets, and the draft that goes with each."""
    from app.downloads import total_size
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
    print_table(_table(("pair", "target", "draft", "size", ""), rows))


@models.command()
@click.argument("name")
@as_json_option
def remove(name: str, as_json: bool) -> None:
    """Delete a pair or a file, named as in `pull` or as in `list`."""
    from rich.filesize import decimal

    from app.errors import AppError
    from app.terminal import write_out

    selector = _selector()
    inventory = selector.inventory
    listed = [model for model in inventory.list() if model.name == name]
    if listed:
        freed = sum(inventory.remove_local(model) for model in listed)
    else:
        freed = sum(inventory.remove(file) for file in selector.files_named(name))
    if not freed:
        raise AppError(f"nothing of {name} is on this disk")
    write_out(json.dumps({"freed_bytes": freed}) + "\n" if as_json else f"{name} is gone; {decimal(freed)} freed\n")


def _selector() -> Selector:
    from app.paths import Paths
    from app.selection import Selector

    return Selector.at(Paths.find())


def _table(headings: tuple[str, ...], rows: list[Any]) -> Any:
    from rich import box
    from rich.table import Table

    table = Table(*headings, box=box.SIMPLE_HEAD, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    return table
