"""Reads little-endian values from a file that may be hostile: every length is checked before anything is done with it.

Bounds: a value never reaches past the end of the file, the cursor never past `limit`, and only what `text` and `bytes`
return is kept in memory (plus one buffer). Everything wrong is a BadGguf that says what was being read.
"""

from __future__ import annotations

import struct
from array import array
from itertools import pairwise
from typing import BinaryIO

from models.errors import BadGguf

_BUFFER_BYTES = 1 << 18
_U64 = struct.Struct("<Q")
_U32 = struct.Struct("<I")


class ByteCursor:
    def __init__(self, source: BinaryIO, size: int, limit: int) -> None:
        self._source = source
        self._size = size
        self._limit = limit
        self._buffer = b""
        self._start = 0  # file offset of the buffer
        self._at = 0  # position inside it

    @property
    def position(self) -> int:
        return self._start + self._at

    @property
    def remaining(self) -> int:
        return self._size - self.position

    def u32(self, what: str) -> int:
        self._need(4, what)
        (value,) = _U32.unpack_from(self._buffer, self._at)
        self._at += 4
        return int(value)

    def u64(self, what: str) -> int:
        self._need(8, what)
        (value,) = _U64.unpack_from(self._buffer, self._at)
        self._at += 8
        return int(value)

    def bytes(self, count: int, what: str) -> bytes:
        self._need(count, what)
        self._at += count
        return self._buffer[self._at - count : self._at]

    def text(self, most: int, what: str) -> str:
        """A length and so many bytes of UTF-8, at most `most`."""
        length = self.u64(what)
        if length > most:
            raise BadGguf(f"{what} is {length:,} bytes long, more than the {most:,} any real model has")
        try:
            return self.bytes(length, what).decode("utf-8")
        except UnicodeDecodeError:
            raise BadGguf(f"{what} is not UTF-8 text") from None

    def skip(self, count: int, what: str) -> None:
        """Pass over bytes without reading them."""
        if count > self.remaining:
            raise BadGguf(f"{what} reaches {count - self.remaining:,} bytes past the end of the file")
        self._at += count
        if self._at > len(self._buffer):
            self._start, self._at, self._buffer = self.position, 0, b""
        self._check_limit(what)

    def skip_texts(self, count: int, what: str) -> None:
        """Pass over `count` strings. A vocabulary has hundreds of thousands, hence the tight loop."""
        unpack = _U64.unpack_from
        for _ in range(count):
            if self._at + 8 > len(self._buffer):
                self._need(8, what)
            (length,) = unpack(self._buffer, self._at)
            self._at += 8
            if self._at + length <= len(self._buffer):
                self._at += length
            else:
                self.skip(length, what)

    def distinct_texts(self, count: int, what: str) -> bool:
        """Pass over `count` strings; whether no two of them (empty ones aside) are the same.

        Keeps one 64-bit hash each. Equal hashes of different texts would be mistaken for a repetition: for half a
        million texts the odds are 7e-9.
        """
        hashes = array("q")
        unpack = _U64.unpack_from
        for _ in range(count):
            if self._at + 8 > len(self._buffer):
                self._need(8, what)
            (length,) = unpack(self._buffer, self._at)
            self._at += 8
            end = self._at + length
            if end > len(self._buffer):
                if length > _BUFFER_BYTES:
                    raise BadGguf(f"{what} has a text of {length:,} bytes, more than any real model's")
                self._need(length, what)
                end = self._at + length
            if length:
                hashes.append(hash(self._buffer[self._at : end]))
            self._at = end
        ordered = sorted(hashes)
        return all(one != other for one, other in pairwise(ordered))

    def _need(self, count: int, what: str) -> None:
        """Have the next `count` bytes in the buffer."""
        if count > self.remaining:
            raise BadGguf(f"the file ends in the middle of {what}")
        if self._at + count > len(self._buffer):
            self._start, self._at = self.position, 0
            self._check_limit(what)
            self._source.seek(self._start)
            self._buffer = self._source.read(max(_BUFFER_BYTES, count))
            if len(self._buffer) < count:
                raise BadGguf(f"the file ends in the middle of {what}")  # it shrank while it was read

    def _check_limit(self, what: str) -> None:
        if self.position > self._limit:
            raise BadGguf(f"{what} lies {self.position:,} bytes into the file; no real header is that long")
