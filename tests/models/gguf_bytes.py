"""Builds GGUF files byte by byte, sound or broken in exactly one place."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

U8, U16, U32, I32, F32, BOOL, STRING, ARRAY, U64, F64 = 0, 2, 4, 5, 6, 7, 8, 9, 10, 12
_CODES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def text(value: str | bytes, length: int | None = None) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data) if length is None else length) + data


def scalar(kind: int, value: Any) -> bytes:
    return text(value) if kind == STRING else struct.pack("<" + _CODES[kind], value)


def key(name: str, kind: int, value: Any) -> bytes:
    return text(name) + struct.pack("<I", kind) + scalar(kind, value)


def array(name: str, kind: int, values: Sequence[Any], length: int | None = None) -> bytes:
    head = text(name) + struct.pack("<IIQ", ARRAY, kind, len(values) if length is None else length)
    return head + b"".join(scalar(kind, value) for value in values)


@dataclass(frozen=True)
class T:
    """A tensor to write; `offset` None means where it is due."""

    name: str | bytes = "token_embd.weight"
    shape: tuple[int, ...] = (32, 4)
    type: int = 0
    size: int = 512
    offset: int | None = None
    dimensions: int | None = None


ARCHITECTURE = key("general.architecture", STRING, "llama")


def gguf(
    keys: Sequence[bytes] = (ARCHITECTURE,),
    tensors: Sequence[T] = (T(),),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    key_count: int | None = None,
    tensor_count: int | None = None,
    alignment: int = 32,
    cut: int = 0,
) -> bytes:
    out = magic + struct.pack(
        "<IQQ",
        version,
        len(tensors) if tensor_count is None else tensor_count,
        len(keys) if key_count is None else key_count,
    )
    out += b"".join(keys)
    due = 0
    for t in tensors:
        out += text(t.name) + struct.pack("<I", len(t.shape) if t.dimensions is None else t.dimensions)
        out += struct.pack(f"<{len(t.shape)}Q", *t.shape)
        out += struct.pack("<IQ", t.type, due if t.offset is None else t.offset)
        due += -(-t.size // alignment) * alignment
    out += b"\0" * (-len(out) % alignment) + b"\1" * due
    return out[: len(out) - cut]
