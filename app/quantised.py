"""What quantising needs to know of models: which file is meant, where the result goes, whether there is room, and how it
is entered in the inventory. The work itself is the engine's; this module never imports it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from app.errors import AppError, Interrupted
from app.selection import Selector
from app.units import byte_size
from models import BadGguf, DiskFull, DownloadCancelled, Inventory, ModelBusy, read_gguf
from models.file_types import FULL_PRECISION, quantisation_of
from models.inventory import LOCK_SUFFIX, hash_file

FOLDER = "quantised"
"""Under the models directory, beside the hub's owners."""
SPARE_BYTES = 64 << 20
"""Room that must be left when the result is written."""
_FORMAT = re.compile(r"[-._](?:i?q\d\w*|b?f16|fp16|f32|mxfp4)$", re.IGNORECASE)
_PIECE = re.compile(r"-\d{5}-of-\d{5}$")


@dataclass(frozen=True, slots=True)
class Job:
    """A file to quantise, and where the result will lie."""

    source: Path
    source_format: str
    destination: Path
    weight_bytes: int
    """Of the source."""

    @property
    def warning(self) -> str | None:
        """What the user should know about the source."""
        if self.source_format in FULL_PRECISION:
            return None
        return (
            f"{self.source.name} is already quantised ({self.source_format}); what that lost stays lost, so replies will "
            "be no better than its own. Quantise from F16 or BF16 where you can"
        )


def job_for(name: str, type_name: str, selector: Selector, *, for_draft: bool) -> Job:
    """The job that `models quantize NAME` asks for. Raises AppError, ModelsError."""
    selection = selector.select(None, name) if for_draft else selector.select(name, "none")
    choice = selection.draft if for_draft else selection.target
    assert choice is not None
    path = choice.path or (selector.inventory.path_of(choice.file) if choice.file else None)
    if path is None:
        raise AppError(f"{name} is not on this disk; `paceline models pull {name}` fetches it")
    info = read_gguf(path)
    have = quantisation_of(info)
    if have == type_name:
        raise AppError(f"{path.name} is {type_name} already")
    stem = _PIECE.sub("", name if path.name.startswith("sha256-") else path.stem)
    file = f"{_FORMAT.sub('', stem).replace(':', '-')}-{type_name.lower()}.gguf"
    destination = selector.inventory.models_dir / FOLDER / file
    if destination.exists():
        raise AppError(f"{FOLDER}/{file} is there already; `paceline models remove {FOLDER}/{file}` makes way for a new one")
    return Job(path, have, destination, info.weight_bytes)


@contextmanager
def place_for(job: Job, unfinished_suffix: str) -> Iterator[None]:
    """The folder of the result, with the result's lock held; what an earlier run left unfinished is swept away.

    Leaves no trace where no result came. Raises ModelBusy.
    """
    folder = job.destination.parent
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    path = Path(f"{job.destination}{LOCK_SUFFIX}")
    lock = FileLock(path, timeout=0, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        raise ModelBusy(f"{job.destination.name} is being made by another paceline") from None
    try:
        for old in folder.glob(f"*{unfinished_suffix}"):
            _sweep(old, old.with_name(old.name.removesuffix(unfinished_suffix) + LOCK_SUFFIX), path)
        yield
    finally:
        if not job.destination.exists():
            path.unlink(missing_ok=True)
        lock.release()
        with suppress(OSError):  # other results live there
            folder.rmdir()


def check_room(job: Job, size: int | None) -> None:
    """Raises DiskFull where a result of `size` bytes (None: as large as the source) would not fit."""
    needed = (job.weight_bytes if size is None else size) + SPARE_BYTES
    free = shutil.disk_usage(job.destination.parent).free
    if free < needed:
        raise DiskFull(
            f"the result takes {byte_size(needed - SPARE_BYTES)} and {byte_size(free)} are free at {job.destination.parent}; "
            "free some room, choose a smaller format, or set PACELINE_MODELS to a bigger disk"
        )


def checked_hash(path: Path, progress: Callable[[float], None], cancelled: Callable[[], bool]) -> str:
    """SHA-256 of a result whose header is sound. Raises AppError, and Interrupted when asked to stop."""
    try:
        read_gguf(path)
    except BadGguf as error:
        raise AppError(f"llama.cpp wrote a file that is not sound, and it was thrown away: {error}") from None
    size = max(path.stat().st_size, 1)
    try:
        return hash_file(path, progress=lambda done: progress(done / size), cancelled=cancelled)
    except DownloadCancelled:
        raise Interrupted from None


def enter(job: Job, sha256: str, inventory: Inventory) -> str:
    """Enter the result in the inventory; returns the name it goes by from now on."""
    origin = f"quantised from {job.source.name}"
    inventory.record(job.destination, sha256, origin=origin, repo=None, revision=None)
    return job.destination.stem


def _sweep(old: Path, its_lock: Path, ours: Path) -> None:
    if its_lock == ours:
        old.unlink(missing_ok=True)
        return
    with suppress(Timeout), FileLock(its_lock, timeout=0, mode=0o600):
        old.unlink(missing_ok=True)
        its_lock.unlink(missing_ok=True)
