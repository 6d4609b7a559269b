"""A file of byte blocks, and behind them a trailer that says what they are. Owns the format; knows nothing of caches.

    MAGIC, block, ..., block, trailer (JSON), SHA-256 of the trailer, its length (8 bytes, little-endian), MAGIC

The trailer comes last, so that blocks are written as they are made and a file that was cut anywhere has none. It holds
every block's place, length and SHA-256, and whatever facts the writer wants to find again.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.errors import StateNotSaved

MAGIC = b"PACEKV01"
_TAIL = 32 + 8 + len(MAGIC)
_TRAILER_LIMIT = 64 << 20

Facts = dict[str, Any]
Bytes = bytes | memoryview


@dataclass(frozen=True, slots=True)
class StateFile:
    """An open file whose trailer is whole. Blocks are looked at where they lie; none is copied."""

    facts: Facts
    _blocks: list[Facts]
    _bytes: memoryview

    def find(self, role: str) -> Facts | None:
        """The facts of the first block with this `role`."""
        return next((block for block in self._blocks if block.get("role") == role), None)

    def read(self, block: Facts) -> memoryview | None:
        """The block's bytes; None if they are not those that were written. Valid while the file is open."""
        start, size = block["start"], block["size"]
        if not len(MAGIC) <= start <= start + size <= len(self._bytes) - _TAIL:
            return None
        content = self._bytes[start : start + size]
        if hashlib.sha256(content).hexdigest() == block["sha256"]:
            return content
        content.release()
        return None


def write_state(path: Path, facts: Facts, blocks: Iterable[tuple[Facts, Bytes]]) -> int:
    """Replace `path` by a file of these blocks, each given with its facts (a `role` among them); the bytes written.

    Raises StateNotSaved; `path` is what it was then, and nothing is left beside it.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
        with os.fdopen(descriptor, "wb") as file:
            file.write(MAGIC)
            written = []
            for block, content in blocks:
                place = {"start": file.tell(), "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
                file.write(content)
                written.append({**block, **place})
            trailer = json.dumps({"facts": facts, "blocks": written}).encode()
            file.write(trailer + hashlib.sha256(trailer).digest() + len(trailer).to_bytes(8, "little") + MAGIC)
            size = file.tell()
        # No fsync: what a power cut leaves half written has no right checksum, and the state can be had again.
        os.replace(temporary, path)
    except BaseException as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        if isinstance(error, OSError):
            raise StateNotSaved(f"what was read of this chat cannot be kept in {path}: {error.strerror}") from None
        raise
    return size


@contextmanager
def open_state(path: Path) -> Iterator[StateFile | None]:
    """The file at `path`; None if there is none, or it was cut, or its trailer is damaged."""
    with _mapped(path) as content:
        yield None if content is None else _parse(content)


@contextmanager
def _mapped(path: Path) -> Iterator[memoryview | None]:
    try:
        file = path.open("rb")
    except OSError:
        yield None
        return
    with file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # empty, a folder, or a file system that cannot
            yield None
            return
        # A view that somebody still holds keeps the mapping alive until it is gone.
        with suppress(BufferError), mapped, memoryview(mapped) as content:
            yield content


def _parse(content: memoryview) -> StateFile | None:
    size = len(content)
    if size < len(MAGIC) + _TAIL or content[: len(MAGIC)] != MAGIC or content[size - len(MAGIC) :] != MAGIC:
        return None
    tail = bytes(content[size - _TAIL :])
    length = int.from_bytes(tail[32:40], "little")
    if length > min(size - len(MAGIC) - _TAIL, _TRAILER_LIMIT):
        return None
    trailer = bytes(content[size - _TAIL - length : size - _TAIL])
    if hashlib.sha256(trailer).digest() != tail[:32]:
        return None
    parsed = json.loads(trailer)
    return StateFile(parsed["facts"], parsed["blocks"], content)
