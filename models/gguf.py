"""Reading a GGUF header: metadata and tensor table, never weights. Used before llama.cpp sees a file.

llama.cpp trusts much of what it reads, and answers some lies with abort(), which no caller survives. So a file is
accepted here only if every count, length, type and offset is in bounds and consistent; anything else is a BadGguf that
says what is wrong. Bounds on the work: 256 MB of header, 4 million strings, 32,768 tensors, well under 64 MB of memory.
Long arrays (vocabularies, merges) are passed over and only their lengths kept.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from models.byte_cursor import ByteCursor
from models.errors import BadGguf
from models.ggml_types import GGML_TYPES, WEIGHT_TYPES
from models.gguf_metadata import TOKENS, ArrayShape, MetadataReader, Value, check_metadata

MAX_HEADER_BYTES = 256 << 20
MAX_KEYS = 16_384
MAX_TENSORS = 32_768
MAX_PIECES = 1024
_INT64_MAX = (1 << 63) - 1
_PIECE = re.compile(r"^(?P<stem>.+)-(?P<index>\d{5})-of-(?P<total>\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    type: str
    bytes: int
    offset: int
    """From the start of its file's data section."""


@dataclass(frozen=True, slots=True)
class GgufInfo:
    """A model's header; of a split model, the first piece's metadata and the tensors of all."""

    paths: tuple[Path, ...]
    metadata: Mapping[str, Value]
    arrays: Mapping[str, ArrayShape]
    """Every array by key, kept in `metadata` or not."""
    tensors: tuple[Tensor, ...]
    file_bytes: int

    @property
    def architecture(self) -> str:
        return str(self.metadata["general.architecture"])

    @property
    def vocabulary(self) -> int | None:
        """Number of tokens, padding included."""
        tokens = self.arrays.get(TOKENS)
        return tokens.length if tokens else None

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors)


def read_gguf(path: Path) -> GgufInfo:
    """The header of a model, of a split one from all its pieces; raises BadGguf naming the file and the fault."""
    try:
        first = _read_file(path)
        if not isinstance(first.metadata.get("general.architecture"), str):
            raise BadGguf(
                "general.architecture, the name of the model's architecture, is missing or not a text"
            )
        total = first.metadata.get("split.count", 1)
        if not isinstance(total, int) or isinstance(total, bool) or not 0 <= total <= MAX_PIECES:
            raise BadGguf(f"split.count is {total!r}")
        return first if total <= 1 else _join(first, path, total)
    except BadGguf as error:
        raise BadGguf(
            f"{path.name} is not a sound GGUF file: {error}; fetch it again or use another"
        ) from None
    except OSError as error:
        raise BadGguf(f"{path} cannot be read: {error.strerror or error}") from None


def _join(first: GgufInfo, path: Path, total: int) -> GgufInfo:
    match = _PIECE.match(path.name)
    if match is None or int(match["total"]) != total or int(match["index"]) != 1:
        raise BadGguf(
            f"it is split in {total}, and its name is not that of piece 1 (…-00001-of-{total:05d}.gguf)"
        )
    pieces = [first]
    for number in range(2, total + 1):
        other = path.with_name(f"{match['stem']}-{number:05d}-of-{total:05d}.gguf")
        if not other.is_file():
            raise BadGguf(f"piece {number} of {total} is missing ({other.name})")
        try:
            pieces.append(_read_file(other))
        except BadGguf as error:
            raise BadGguf(f"piece {number}: {error}") from None
    for number, piece in enumerate(pieces):
        if (piece.metadata.get("split.no"), piece.metadata.get("split.count")) != (number, total):
            raise BadGguf(f"piece {number + 1} says it is another piece, or of another model")
    tensors = tuple(tensor for piece in pieces for tensor in piece.tensors)
    if len(tensors) > MAX_TENSORS or len({tensor.name for tensor in tensors}) != len(tensors):
        raise BadGguf("two pieces hold the same tensor")
    if first.metadata.get("split.tensors.count") not in (None, len(tensors)):
        raise BadGguf("the pieces do not hold as many tensors as the first one says")
    paths = tuple(piece.paths[0] for piece in pieces)
    return GgufInfo(paths, first.metadata, first.arrays, tensors, sum(piece.file_bytes for piece in pieces))


def _read_file(path: Path) -> GgufInfo:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):  # looked at first: to open a pipe waits for whoever writes to it
        raise BadGguf("it is not a regular file")
    with path.open("rb") as source:
        cursor = ByteCursor(source, status.st_size, MAX_HEADER_BYTES)
        if cursor.bytes(min(4, status.st_size), "the first four bytes") != b"GGUF":
            raise BadGguf("it does not begin with the letters GGUF")
        version = cursor.u32("the version")
        if version not in (2, 3):
            swapped = " (written on a big-endian machine)" if version & 0xFFFF == 0 else ""
            raise BadGguf(f"its version is {version}{swapped}; versions 2 and 3 are understood")
        tensor_count, key_count = cursor.u64("the tensor count"), cursor.u64("the key count")
        if tensor_count > MAX_TENSORS or key_count > MAX_KEYS:
            raise BadGguf(
                f"it claims {tensor_count:,} tensors and {key_count:,} keys, more than any real model has"
            )
        metadata, arrays = MetadataReader(cursor).read(key_count)
        alignment = check_metadata(metadata, arrays)
        tensors = [_read_tensor(cursor, number) for number in range(tensor_count)]
        _check_layout(tensors, alignment, -(-cursor.position // alignment) * alignment, status.st_size)
        return GgufInfo((path,), metadata, arrays, tuple(tensors), status.st_size)


def _read_tensor(cursor: ByteCursor, number: int) -> Tensor:
    name = cursor.text(63, f"the name of tensor {number + 1}")
    what = f"tensor {name!r}"
    dimensions = cursor.u32(what)
    if dimensions > 4:
        raise BadGguf(f"{what} has {dimensions} dimensions, and at most 4 are allowed")
    shape = tuple(cursor.u64(what) for _ in range(dimensions))
    kind, offset = cursor.u32(what), cursor.u64(what)
    if kind not in GGML_TYPES:
        raise BadGguf(
            f"{what} has the unknown number format {kind}; the file is damaged or newer than this program"
        )
    if kind not in WEIGHT_TYPES:
        raise BadGguf(f"{what} holds {GGML_TYPES[kind].name} numbers, which llama.cpp cannot compute with")
    elements = 1
    for extent in shape:
        elements *= extent
        if extent == 0 or elements > _INT64_MAX:
            raise BadGguf(f"{what} has the impossible shape {shape}")
    ggml = GGML_TYPES[kind]
    row = shape[0] if shape else 1
    if row % ggml.block_elements:
        raise BadGguf(
            f"{what} has rows of {row}, not a multiple of {ggml.name}'s block of {ggml.block_elements}"
        )
    return Tensor(name, shape, ggml.name, ggml.row_bytes(row) * (elements // row), offset)


def _check_layout(tensors: Sequence[Tensor], alignment: int, data_start: int, file_bytes: int) -> None:
    """Names differ, and each tensor starts where the one before it ends, as llama.cpp demands; the last ends in the file."""
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise BadGguf("two tensors have the same name")
    due = 0
    for tensor in tensors:
        if tensor.offset != due:
            raise BadGguf(f"tensor {tensor.name!r} starts at {tensor.offset:,} where {due:,} is due")
        end = data_start + due + tensor.bytes
        if end > file_bytes:
            raise BadGguf(
                f"the file is cut short: tensor {tensor.name!r} ends at byte {end:,} and the file has {file_bytes:,}"
            )
        due += -(-tensor.bytes // alignment) * alignment
