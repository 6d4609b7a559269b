"""Models that other programs keep on this disk: where they are and what they were when they were imported.

Nothing is copied and nothing is written beside them: `<models_dir>/imported.json` holds each file's path, size,
modification time, header facts and, once somebody asked for it, SHA-256. A file that is gone or has another size or
time is no longer what was imported, and `ImportedModel.fault` says so; importing it again takes it as it is now.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from filelock import FileLock

from models.errors import BadCatalogue, ChecksumMismatch
from models.file_types import parameters_of, quantisation_of
from models.gguf import read_gguf
from models.importer import Found
from models.inventory import hash_file
from models.vocabulary import Vocabulary, read_vocabulary

REGISTRY = "imported.json"


@dataclass(frozen=True, slots=True)
class FileStamp:
    """One file as it was when it was imported."""

    path: str
    bytes: int
    mtime_ns: int
    sha256: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedModel:
    """A model somewhere on this disk, and what its header said."""

    name: str
    origin: str
    imported_at: str
    """ISO 8601, UTC."""
    files: tuple[FileStamp, ...]
    """Of a split GGUF all pieces, in order."""
    architecture: str
    quantisation: str
    parameters: int
    weight_bytes: int
    vocabulary: Vocabulary | None

    @property
    def path(self) -> Path:
        """What to load."""
        return Path(self.files[0].path)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def state(self) -> str:
        """`imported`, or `changed` once the files are not what they were."""
        return "changed" if self.fault() else "imported"

    def fault(self) -> str | None:
        """What has happened to the files since, in words; None if they are as they were."""
        for file in self.files:
            try:
                status = os.stat(file.path)
            except OSError:
                return f"{file.path} is gone"
            if (status.st_size, status.st_mtime_ns) != (file.bytes, file.mtime_ns):
                return f"{file.path} has changed since it was imported"
        return None


def inspect(found: Found) -> ImportedModel:
    """Read the header of a file that was found. Raises BadGguf."""
    info = read_gguf(found.path)
    stamps = []
    for path in info.paths:
        status = path.stat()
        stamps.append(FileStamp(str(path.absolute()), status.st_size, status.st_mtime_ns))
    return ImportedModel(
        name=found.name,
        origin=found.origin,
        imported_at=datetime.now(UTC).isoformat(timespec="seconds"),
        files=tuple(stamps),
        architecture=info.architecture,
        quantisation=quantisation_of(info),
        parameters=parameters_of(info),
        weight_bytes=info.weight_bytes,
        vocabulary=read_vocabulary(info),
    )


def with_hashes(
    model: ImportedModel,
    claimed: str | None,
    *,
    progress: Callable[[int], None],
    cancelled: Callable[[], bool],
) -> ImportedModel:
    """The model with the SHA-256 of each file. `claimed` is what another program's store says the one file has.

    Raises ChecksumMismatch where that is not so, and DownloadCancelled.
    """
    hashed, done = [], 0
    for file in model.files:
        before = done

        def report(count: int, before: int = before) -> None:
            progress(before + count)

        digest = hash_file(Path(file.path), progress=report, cancelled=cancelled)
        if claimed is not None and len(model.files) == 1 and digest != claimed:
            raise ChecksumMismatch(
                f"{file.path} is damaged: its SHA-256 is not the one it is stored under; fetch it again with the "
                "program that keeps it"
            )
        hashed.append(replace(file, sha256=digest))
        done += file.bytes
    return replace(model, files=tuple(hashed))


Models = list[ImportedModel]


class Imports:
    """The imported models of one models directory."""

    def __init__(self, models_dir: Path) -> None:
        self._registry = models_dir / REGISTRY

    def list(self) -> Models:
        """By name. Raises BadCatalogue where the registry is damaged."""
        return sorted(self._read(), key=lambda model: model.name)

    def find(self, name: str) -> ImportedModel | None:
        return next((model for model in self._read() if model.name == name), None)

    def add(self, model: ImportedModel, taken: Collection[str] = ()) -> ImportedModel:
        """Keep `model`, under its name or, where that belongs to another or is among `taken`, with a number after it.

        A model whose file was imported before replaces that entry and keeps its name, and its hashes while the files
        are the same. Returns what was kept.
        """
        with self._locked():
            models = self._read()
            old = next((known for known in models if _same_file(known.path, model.path)), None)
            others = [known for known in models if known is not old]
            if old is not None:
                model = replace(model, name=old.name, files=_keep_hashes(model.files, old.files))
            else:
                model = replace(model, name=_free_name(model.name, {m.name for m in others} | set(taken)))
            self._write([*others, model])
        return model

    def remove(self, name: str) -> bool:
        """Forget an import; its file stays where it is. False if there was none of that name."""
        if not self._registry.exists():
            return False
        with self._locked():
            models = self._read()
            left = [model for model in models if model.name != name]
            if len(left) < len(models):
                self._write(left)
        return len(left) < len(models)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._registry.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with FileLock(self._registry.with_name(self._registry.name + ".lock"), mode=0o600):
            yield

    def _read(self) -> Models:
        try:
            entries = json.loads(self._registry.read_text(encoding="utf-8"))
            return [_from_json(entry) for entry in entries]
        except FileNotFoundError:
            return []
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise BadCatalogue(
                f"{self._registry} is damaged ({error}); delete it and import again"
            ) from None

    def _write(self, models: Models) -> None:
        fresh = self._registry.with_name(f"{REGISTRY}.{os.getpid()}.tmp")
        try:
            with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
                out.write(json.dumps(models, default=_fields))  # `indent` and `asdict` take several times as long
            os.replace(fresh, self._registry)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise OSError(error.errno, error.strerror, str(self._registry)) from None


def _fields(part: Any) -> dict[str, Any]:
    return {field.name: getattr(part, field.name) for field in fields(part)}


def _from_json(entry: dict[str, Any]) -> ImportedModel:
    files = tuple(FileStamp(**file) for file in entry.pop("files"))
    vocabulary = entry.pop("vocabulary")
    if not files or not all(isinstance(file.path, str) for file in files):
        raise ValueError("an entry has no file")
    return ImportedModel(
        files=files, vocabulary=Vocabulary.from_json(vocabulary) if vocabulary else None, **entry
    )


def _keep_hashes(files: tuple[FileStamp, ...], old: tuple[FileStamp, ...]) -> tuple[FileStamp, ...]:
    known = {(file.path, file.bytes, file.mtime_ns): file.sha256 for file in old}
    return tuple(
        replace(file, sha256=file.sha256 or known.get((file.path, file.bytes, file.mtime_ns)))
        for file in files
    )


def _free_name(name: str, taken: Collection[str]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}-{number}", number + 1
    return free


def _same_file(one: Path, other: Path) -> bool:
    with suppress(OSError):
        if not os.path.samefile(one, other):  # much the quicker answer
            return False
    return os.path.realpath(one) == os.path.realpath(other)  # `resolve` raises at a link that leads to itself
