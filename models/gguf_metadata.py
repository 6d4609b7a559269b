"""The key-value section of a GGUF header: what is read of it, what is kept, and what llama.cpp takes on trust.

Long arrays (merges, token types) are passed over and only their lengths kept. Every length is checked against the file
and against what real models have; see gguf.py for the bounds as a whole.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from models.byte_cursor import ByteCursor
from models.errors import BadGguf

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...]

MAX_STRINGS = 4 << 20
MAX_TOKENS = 1 << 19
MAX_TEXT_BYTES = 4 << 20
MAX_KEPT_BYTES = 16 << 20
MAX_KEPT_ELEMENTS = 4096
MAX_ALIGNMENT = 1 << 20

_STRING, _ARRAY = 8, 9
_SCALARS = {number: struct.Struct(f"<{code}") for number, code in enumerate("BbHhIif?")} | {
    number: struct.Struct(f"<{code}") for number, code in ((10, "Q"), (11, "q"), (12, "d"))
}
_KIND = dict(enumerate(["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string"])) | {
    10: "u64",
    11: "i64",
    12: "f64",
}

TOKENS = "tokenizer.ggml.tokens"

# Arrays whose element type or length llama.cpp takes on trust.
_TRUSTED_ARRAYS = {
    TOKENS: ("string",),
    "tokenizer.ggml.merges": ("string",),
    "tokenizer.ggml.scores": ("f32", "i32"),
    "tokenizer.ggml.token_type": ("i32", "u32"),
}


@dataclass(frozen=True, slots=True)
class ArrayShape:
    """What is kept of an array too long to keep."""

    kind: str
    length: int


class MetadataReader:
    """The key-value section, with a budget for what is kept and for how many strings are passed over."""

    def __init__(self, cursor: ByteCursor) -> None:
        self._cursor = cursor
        self._kept_bytes = 0
        self._strings = 0

    def read(self, count: int) -> tuple[dict[str, Value], dict[str, ArrayShape]]:
        values: dict[str, Value] = {}
        arrays: dict[str, ArrayShape] = {}
        for number in range(count):
            key = self._text(65_535, f"key {number + 1}")
            if not key or key in values or key in arrays:
                raise BadGguf(f"key {number + 1} is empty" if not key else f"the key {key!r} comes twice")
            kind = self._cursor.u32(f"the type of {key}")
            if kind == _ARRAY:
                element, length = (
                    self._cursor.u32(f"the type of {key}"),
                    self._cursor.u64(f"the length of {key}"),
                )
                if element not in _KIND:
                    raise BadGguf(f"the array {key!r} has elements of unknown type {element}")
                arrays[key] = ArrayShape(_KIND[element], length)
                if (kept := self._array(key, element, length)) is not None:
                    values[key] = kept
            elif kind in _KIND:
                values[key] = self._scalar(key, kind)
            else:
                raise BadGguf(f"the key {key!r} has the unknown type {kind}")
        return values, arrays

    def _scalar(self, key: str, kind: int) -> Scalar:
        if kind == _STRING:
            return self._text(MAX_TEXT_BYTES, key)
        value: Scalar = _SCALARS[kind].unpack(self._cursor.bytes(_SCALARS[kind].size, key))[0]
        return value

    def _array(self, key: str, element: int, length: int) -> tuple[Scalar, ...] | None:
        smallest = 8 if element == _STRING else _SCALARS[element].size
        if length > self._cursor.remaining // smallest:
            raise BadGguf(f"the array {key!r} claims {length:,} elements and the file is too short for them")
        if element == _STRING:
            self._strings += length
            if self._strings > MAX_STRINGS:
                raise BadGguf(f"the array {key!r} claims {length:,} texts, more than any real model has")
        if key == TOKENS and element == _STRING:
            if length > MAX_TOKENS:
                raise BadGguf(f"it claims {length:,} tokens, more than any real model has")
            if not self._cursor.distinct_texts(length, key):
                raise BadGguf("two of its tokens have the same text")  # llama.cpp would abort() over it
            return None
        if length <= MAX_KEPT_ELEMENTS:
            self._keep(64 * length, key)
            return tuple(self._scalar(key, element) for _ in range(length))
        if element == _STRING:
            self._cursor.skip_texts(length, key)
        else:
            self._cursor.skip(length * smallest, key)
        return None

    def _text(self, most: int, what: str) -> str:
        text = self._cursor.text(most, what)
        self._keep(len(text) + 64, what)
        return text

    def _keep(self, size: int, what: str) -> None:
        self._kept_bytes += size
        if self._kept_bytes > MAX_KEPT_BYTES:
            raise BadGguf(f"its metadata (up to {what}) is larger than any real model's")


def check_metadata(metadata: Mapping[str, Value], arrays: Mapping[str, ArrayShape]) -> int:
    """What llama.cpp relies on without looking; returns the alignment."""
    for key, kinds in _TRUSTED_ARRAYS.items():
        if (key in metadata and key not in arrays) or (key in arrays and arrays[key].kind not in kinds):
            raise BadGguf(f"{key} is not an array of {kinds[0]}")
    tokens = arrays.get(TOKENS)
    for key in ("tokenizer.ggml.scores", "tokenizer.ggml.token_type"):
        if tokens and key in arrays and arrays[key].length < tokens.length:
            raise BadGguf(f"{key} has {arrays[key].length:,} entries for {tokens.length:,} tokens")
    alignment = metadata.get("general.alignment", 32)
    if type(alignment) is not int or not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise BadGguf(f"general.alignment is {alignment!r}, not a power of two")
    return alignment
