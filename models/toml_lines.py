"""Finds the line of a value in TOML text, which tomllib does not tell. Understands the layout catalogues are written
in (`[[table]]`, `[table.sub]`, `key = value`); for anything else the nearest enclosing table's line is the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"^\s*(\[\[?)\s*([A-Za-z0-9_.\-\s]+?)\s*\]\]?\s*(#.*)?$")
_KEY = re.compile(r"^\s*([A-Za-z0-9_\-]+)\s*=")


def line_of(text: str, location: Sequence[str | int]) -> int:
    """The 1-based line of the value at `location`, as pydantic gives it: ("pairs", 1, "target")."""
    best_line, best_depth = 1, 0
    table: list[str | int] = []
    counts: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = _open(header[2], header[1] == "[[", counts)
            here = table
        elif key := _KEY.match(line):
            here = [*table, key[1]]
        else:
            continue
        depth = len(here) if list(location[: len(here)]) == here else 0
        if depth > best_depth:
            best_line, best_depth = number, depth
    return best_line


def _open(dotted: str, is_array: bool, counts: dict[str, int]) -> list[str | int]:
    """The location a header opens; counts the elements of each array of tables on the way."""
    names = [name.strip() for name in dotted.split(".")]
    path: list[str | int] = []
    for depth, name in enumerate(names, start=1):
        path.append(name)
        key = ".".join(names[:depth])
        if is_array and depth == len(names):
            counts[key] = counts.get(key, -1) + 1
            for inner in [other for other in counts if other.startswith(f"{key}.")]:
                del counts[inner]
        if key in counts:
            path.append(counts[key])
    return path
