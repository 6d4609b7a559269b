"""Numbers of bytes in words: decimal units everywhere, as the hub and the disk's maker count."""

from __future__ import annotations

_UNITS = (("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def byte_size(count: float) -> str:
    """`2.1 GB`, `530 MB`, `8.4 kB`, `812 bytes`."""
    for unit, bytes_ in _UNITS:
        amount = count / bytes_
        if round(amount, 1) >= 1:
            return f"{amount:.1f} {unit}" if amount < 9.95 or unit == "GB" else f"{amount:.0f} {unit}"
    return "1 byte" if count == 1 else f"{count:.0f} bytes"


def gb(count: float, digits: int = 1) -> str:
    """Billions of bytes without the unit, for columns and sums that name it once."""
    return f"{count / 1e9:.{digits}f}"
