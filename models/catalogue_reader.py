"""Reads catalogue files: our own `assets/catalogue.toml`, then a user's, whose entries replace ours by name.

Both have one schema: `[[files]]`, and `[[pairs]]` that name a target and a draft among them. A mistake is a BadCatalogue
with the file, line and field.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, ValidationError

from models.catalogue import Catalogue, Facts, ModelFile, Pair, PublishedSpeed, SharedVocabulary, describe
from models.errors import BadCatalogue
from models.toml_lines import line_of

CATALOGUE = Path(__file__).resolve().parent.parent / "assets" / "catalogue.toml"

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=96)]


class _PairEntry(Facts):
    name: Name
    title: str
    target: Name
    draft: Name | None = None
    vocabulary: SharedVocabulary = SharedVocabulary()
    published: tuple[PublishedSpeed, ...] = ()
    unusable: str | None = None
    notes: str = ""


class _FileEntry(ModelFile):
    name: Name


class _Document(Facts):
    files: tuple[_FileEntry, ...] = ()
    pairs: tuple[_PairEntry, ...] = ()


def load_catalogue(user_dir: Path | None = None) -> Catalogue:
    """The built-in catalogue, then each `catalogue*.toml` in user_dir, whose entries replace ours of the same name."""
    paths = [CATALOGUE]
    if user_dir is not None:
        paths += sorted(user_dir.glob("catalogue*.toml"))
    read = [(path, *_read(path)) for path in paths]
    files: dict[str, ModelFile] = {entry.name: entry for _, _, document in read for entry in document.files}
    pairs = {
        entry.name: _resolve(entry, files, path, text, index)
        for path, text, document in read
        for index, entry in enumerate(document.pairs)
    }
    return Catalogue(files.values(), pairs.values())


def _read(path: Path) -> tuple[str, _Document]:
    try:
        text = path.read_text(encoding="utf-8")
        data: Mapping[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadCatalogue(f"{path}: not valid TOML: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadCatalogue(f"{path} cannot be read: {error}") from None
    try:
        document = _Document.model_validate(data)
    except ValidationError as error:
        line = line_of(text, error.errors(include_url=False)[0]["loc"])
        raise BadCatalogue(f"{path}, line {line}: {': '.join(describe(error))}") from None
    _refuse_duplicates(path, text, document)
    return text, document


def _refuse_duplicates(path: Path, text: str, document: _Document) -> None:
    tables: dict[str, Sequence[_FileEntry | _PairEntry]] = {"files": document.files, "pairs": document.pairs}
    for table, entries in tables.items():
        seen: set[str] = set()
        for index, entry in enumerate(entries):
            if entry.name in seen:
                line = line_of(text, (table, index, "name"))
                raise BadCatalogue(f"{path}, line {line}: {table}.name: {entry.name!r} is there twice")
            seen.add(entry.name)


def _resolve(entry: _PairEntry, files: Mapping[str, ModelFile], path: Path, text: str, index: int) -> Pair:
    facts = entry.model_dump(exclude={"target", "draft"})
    for role in ("target", "draft"):
        name = getattr(entry, role)
        if name is not None and name not in files:
            line = line_of(text, ("pairs", index, role))
            raise BadCatalogue(
                f"{path}, line {line}: pairs.{role}: no entry under [[files]] is named {name!r}"
            )
        facts[role] = None if name is None else files[name]
    return Pair(**facts)
