"""`paceline models show`: one model or pair in full."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from models import Pair


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(name: str, as_json: bool) -> None:
    """Show a pair or a model: a name from `pairs`, `list` or `import`, a path, or hf:owner/repo/file.gguf."""
    from app.model_facts import facts_of, subjects_named
    from app.paths import Paths
    from app.sanitize import sanitize
    from app.selection import Selector
    from app.tables import facts_table
    from app.terminal import print_table, write_out

    selector = Selector.at(Paths.find())
    pair, subjects = subjects_named(name, selector)
    models = [facts_of(subject, selector) for subject in subjects]
    if as_json:
        about = {"pair": pair.model_dump(mode="json", exclude_none=True, exclude={"target", "draft"})} if pair else {}
        write_out(json.dumps({**about, "models": models}) + "\n")
        return
    blocks = [*([_pair_lines(pair)] if pair else []), *map(_model_lines, models)]
    for number, lines in enumerate(blocks):
        if number:
            write_out("\n")
        print_table(facts_table((label, sanitize(value)) for label, value in lines))


def _pair_lines(pair: Pair) -> list[tuple[str, str]]:
    shared = {True: "shared", False: "not shared", None: "not known to be shared"}[pair.vocabulary.shared]
    published = [
        f"{speed.gain} on {speed.hardware}" if speed.hardware else speed.gain for speed in pair.published
    ]
    lines = [
        ("pair", f"{pair.name} ({pair.title})"),
        ("vocabulary", f"{shared}; {pair.vocabulary.evidence}" if pair.vocabulary.evidence else shared),
        ("published", "; ".join(published)),
        ("cannot be used", pair.unusable or ""),
        ("notes", pair.notes),
    ]
    return [(label, value) for label, value in lines if value]


def _model_lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """What is known, a fact a line; a fact that is not known has no line."""
    from app.units import byte_size

    def text(key: str, unit: str = "") -> str:
        value = facts.get(key)
        if isinstance(value, list):
            value = " or ".join(map(str, value))
        return "" if value is None else f"{value:,}{unit}" if isinstance(value, int) else f"{value}{unit}"

    def beside(first: str, *more: str) -> str:
        return ", ".join(part for part in (first, *more) if part)

    window = f"window {text('window')}" if facts.get("window") else ""
    lines = [
        ("model", f"{facts['name']} ({facts['title']})" if facts.get("title") else facts["name"]),
        ("state", _state_line(facts)),
        ("fault", text("fault")),
        ("cannot be used", text("unusable")),
        ("file", text("path")),
        ("hub", f"{facts['repo']}/{facts['file']}" if facts.get("repo") else ""),
        ("size", beside(byte_size(facts["bytes"]) if facts.get("bytes") else "", text("pieces", " files"))),
        ("quantisation", text("quantisation")),
        ("licence", beside(text("licence"), "to be accepted on the hub first" if facts.get("gated") else "")),
        ("architecture", text("architecture")),
        ("parameters", _parameters(facts.get("parameters"))),
        ("layers", text("layers")),
        ("attention", beside(text("attention"), window, text("heads", " heads"))),
        ("KV heads", beside(text("kv_heads"), text("head_dim", " numbers each"))),
        ("context", text("context", " tokens")),
        ("vocabulary", text("vocabulary", " tokens")),
        ("chat template", beside(text("template"), text("template_characters", " characters"))),
        ("thinks aloud", text("thinking")),
        ("SHA-256", text("sha256")),
        ("pairs", "; ".join(_pair_line(pair) for pair in facts["pairs"])),
        ("notes", text("notes")),
        ("facts from", facts["facts_from"]),
    ]
    return [(label, value) for label, value in lines if value]


def _state_line(facts: dict[str, Any]) -> str:
    from app.units import byte_size

    match facts["state"]:
        case "whole":
            return f"on this disk, verified {facts['verified_at'][:10]} ({facts['origin']})"
        case "partial":
            return f"partly here: {byte_size(facts['bytes_here'])}; `paceline models pull` goes on"
        case "imported":
            return f"imported ({facts['origin']}), " + ("SHA-256 computed" if facts.get("sha256") else "SHA-256 not computed")
        case "changed":
            return "imported, and no longer what it was"
        case "unverified":
            return "on this disk, not verified"
    return "not on this disk"


def _parameters(value: int | str | None) -> str:
    if isinstance(value, int):
        return f"{value / 1e9:.2f} billion" if value >= 1e9 else f"{value / 1e6:.1f} million"
    return value or ""


def _pair_line(pair: dict[str, Any]) -> str:
    partner = f" with {pair['with']}" if pair["with"] else ""
    return f"{pair['name']} ({pair['role']}{partner}{', cannot be used' if pair.get('unusable') else ''})"
