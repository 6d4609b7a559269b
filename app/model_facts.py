"""Everything known about one model file: its own header where it is on this disk, the catalogue where it is not.

The result is one JSON object; a fact that nobody knows is absent. Texts from headers are as they are in the file, so
whoever prints them strips control characters first.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import AppError
from app.paths import typed_path
from app.selection import Selector
from models import BadGguf, GgufInfo, ModelFile, Pair, UnknownModel, parse_hub_reference, read_gguf, shape_of
from models.file_types import parameters_of, quantisation_of
from models.imports import ImportedModel, Imports
from models.inventory import current_record

TEMPLATES = {
    "<|im_start|>": "chatml", "<|start_header_id|>": "llama-3", "<start_of_turn>": "gemma", "[INST]": "mistral",
    "<|start|>": "harmony", "<|user|>": "user/assistant markers",
}
"""A text that a chat template contains, and what templates with it are called."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What a name turned out to mean."""

    name: str
    file: ModelFile | None = None
    path: Path | None = None
    imported: ImportedModel | None = None


def subjects_named(name: str, selector: Selector) -> tuple[Pair | None, list[Subject]]:
    """The files behind a pair's or a model's name, a path, or hf:owner/repo/file.gguf. Raises AppError, UnknownModel."""
    pair = next((pair for pair in selector.catalogue.pairs if pair.name == name), None)
    if pair is not None:
        return pair, [_of_catalogue(file, selector) for file in pair.files]
    if name.startswith("hf:"):
        return None, [_of_catalogue(parse_hub_reference(name), selector)]
    path = typed_path(name)
    if path.is_file():
        located = {selector.inventory.location(file).resolve(): file for file in selector.catalogue.files}
        return None, [Subject(name, located.get(path.resolve()), path)]
    if imported := Imports(selector.inventory.models_dir).find(name):
        return None, [Subject(name, path=None if imported.fault() else imported.path, imported=imported)]
    listed = [m for m in selector.inventory.list() if name in (m.name, Path(m.name).name, Path(m.name).stem)]
    try:
        return None, [_of_catalogue(selector.catalogue.find_file(name), selector)]
    except UnknownModel:
        if not listed:
            raise
    if len({model.name for model in listed}) > 1:
        raise AppError(f"{name!r} could be any of {', '.join(model.name for model in listed)}; use one of those names")
    return None, [Subject(listed[0].name, path=listed[0].path)]


def facts_of(subject: Subject, selector: Selector) -> dict[str, Any]:
    """The object to print. A file whose header is broken is described as far as the rest goes, with the fault."""
    file, imported = subject.file, subject.imported
    facts: dict[str, Any] = {"name": subject.name}
    if file is not None:
        facts |= _catalogue_facts(file)
    facts |= _state(subject, selector)
    header: dict[str, Any] = {}
    if subject.path is not None and facts["state"] != "partial":
        try:
            header = _header_facts(read_gguf(subject.path))
        except BadGguf as error:
            facts["fault"] = str(error)
    elif imported is not None:
        facts |= {
            "bytes": imported.bytes, "quantisation": imported.quantisation, "architecture": imported.architecture,
            "parameters": imported.parameters,
        }
    kept = {"licence": facts["licence"]} if facts.get("licence") else {}  # the hub's word, with its case and gate
    facts |= header | kept
    facts["facts_from"] = "the file's header" if header else "the catalogue" if file else "the import"
    facts["pairs"] = _pairs(file, selector) if file is not None else []
    return {key: value for key, value in facts.items() if value is not None and value != ""}


def _of_catalogue(file: ModelFile, selector: Selector) -> Subject:
    location = selector.inventory.location(file.pieces()[0])
    return Subject(file.name, file, location if location.is_file() else None)


def _catalogue_facts(file: ModelFile) -> dict[str, Any]:
    return {
        "title": file.title, "repo": file.repo, "file": file.file, "revision": file.revision, "bytes": file.bytes,
        "sha256": file.sha256, "quantisation": file.quant, "licence": file.licence, "gated": file.gated,
        "parameters": file.parameters, "layers": file.layers, "kv_heads": file.kv_heads, "head_dim": file.head_dim,
        "context": file.context, "vocabulary": file.vocabulary, "template": file.template, "thinking": file.thinking,
        "attention": file.attention.kind if file.attention else None,
        "window": file.attention.window if file.attention else None,
        "unusable": file.unusable, "notes": file.notes,
    }


def _header_facts(info: GgufInfo) -> dict[str, Any]:
    shape = shape_of(info)

    def number(key: str) -> int | list[int] | None:
        value = info.metadata.get(f"{info.architecture}.{key}")
        if isinstance(value, tuple):
            return sorted({one for one in value if type(one) is int})
        return value if type(value) is int else None

    recurrent = any(layer.state_bytes for layer in shape.layers)
    windowed = sum(layer.window for layer in shape.layers)
    heads = shape.heads or 1
    licence = info.metadata.get("general.license")
    template = info.metadata.get("tokenizer.chat_template")
    return {
        "bytes": info.file_bytes, "pieces": len(info.paths) if len(info.paths) > 1 else None,
        "architecture": info.architecture, "quantisation": quantisation_of(info), "parameters": parameters_of(info),
        "layers": len(shape.layers), "heads": heads, "kv_heads": number("attention.head_count_kv") or heads,
        "head_dim": number("attention.key_length") or (shape.embedding // heads or None),
        "embedding": shape.embedding, "context": shape.trained_context or None, "vocabulary": shape.vocabulary or None,
        "attention": "recurrent" if recurrent else "sliding-window" if windowed else "full",
        "window": shape.window if windowed else None, "window_layers": windowed or None,
        "licence": licence if isinstance(licence, str) else None,
        "template": _template_name(template) if isinstance(template, str) else "none",
        "template_characters": len(template) if isinstance(template, str) else None,
    }


def _template_name(template: str) -> str:
    return next((name for text, name in TEMPLATES.items() if text in template), "its own")


def _state(subject: Subject, selector: Selector) -> dict[str, Any]:
    """On this disk or not, and how far that is to be trusted."""
    inventory, imported, path = selector.inventory, subject.imported, subject.path
    if imported is not None:
        hashes = [file.sha256 for file in imported.files]
        return {
            "state": imported.state, "fault": imported.fault(), "path": str(imported.path),
            "origin": imported.origin, "sha256": hashes[0] if len(hashes) == 1 else None,
        }
    if path is None:
        partial = inventory.partial_bytes(subject.file) if subject.file else 0
        return {"state": "partial" if partial else "absent", "bytes_here": partial or None}
    if path.name.endswith(".part"):
        return {"state": "partial", "path": str(path), "bytes_here": path.stat().st_size}
    record = current_record(path)
    if record is None:
        return {"state": "unverified", "path": str(path)}
    facts = {
        "state": "whole", "path": str(path), "sha256": record.sha256, "verified_at": record.verified_at,
        "origin": record.origin,
    }
    asked = subject.file
    if asked is not None and asked.sha256 not in (None, record.sha256):
        facts |= {"state": "unverified", "fault": "it is another version than the catalogue's; pull it again"}
    return facts


def _pairs(file: ModelFile, selector: Selector) -> list[dict[str, Any]]:
    found = []
    for pair in selector.catalogue.pairs:
        if file not in pair.files:
            continue
        is_target = file == pair.target
        other = pair.draft if is_target else pair.target
        entry = {"name": pair.name, "role": "target" if is_target else "draft", "with": other.name if other else None}
        found.append({**entry, "unusable": pair.unusable} if pair.unusable else entry)
    return found
