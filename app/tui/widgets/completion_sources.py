"""What can complete the word at the cursor: `/` commands and `@` paths. Pure but for reading folders; no widgets.

Folders are read up to fixed numbers of entries, so that a home folder or a monorepo answers as fast as an empty one.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.chat.attachments import quoted
from app.sanitize import sanitize
from app.tui.commands import matching

MOST = 50
"""Candidates to offer."""
MOST_ENTRIES = 5_000
"""Entries of one folder that are looked at."""
MOST_BELOW = 20_000
"""Entries below the working folder that are looked at for a name that is deeper down."""
_SKIPPED = frozenset((
    "node_modules", "__pycache__", "venv", "site-packages", "target", "build", "dist",
))

_COMMAND = re.compile(r"/([a-z]*)\Z")
_PATH = re.compile(r"""(?:^|[\s(\[{"'])(@(?:"([^"\n]*)|([^\s"]*)))\Z""")


@dataclass(frozen=True, slots=True)
class Word:
    """The word at the cursor that can be completed: what is typed after the sign, and the column where the sign stands."""

    kind: str
    """`command` or `path`."""
    typed: str
    start: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """One completion: `insert` replaces the word from its sign on."""

    insert: str
    label: str
    words: str = ""
    goes_on: bool = False
    """There is more to complete or to type after it: a folder, a command that needs an argument."""


def word_at(line: str, column: int, *, first_line: bool) -> Word | None:
    """The word to complete in `line` before `column`, if there is one."""
    before = line[:column]
    if first_line and (command := _COMMAND.fullmatch(before)):
        return Word("command", command[1], 0)
    if path := _PATH.search(before):
        return Word("path", path[2] if path[2] is not None else path[3], path.start(1))
    return None


def commands(typed: str) -> list[Candidate]:
    """The `/` commands that go with what is typed."""
    return [
        Candidate(f"/{command.name} " if command.argument else f"/{command.name}", command.usage, command.words, command.needs_argument)
        for command in matching(typed)
    ]


def paths(typed: str, cwd: Path) -> list[Candidate]:
    """Files and folders for a path as far as it is typed: those of its folder, then deeper ones that have it in their name.

    Hidden ones only when a dot was typed. Reads folders; a folder that cannot be read has nothing to offer.
    """
    folder, name = os.path.split(typed)
    base = cwd / Path(_expanded(folder))
    found = _in_folder(base, folder, name)
    if not folder and len(name) > 1 and len(found) < MOST:
        direct = {candidate.insert for candidate in found}
        found += [candidate for candidate in _below(cwd, name, MOST) if candidate.insert not in direct]
    return found[:MOST]


def _in_folder(base: Path, folder: str, name: str) -> list[Candidate]:
    lowered = name.lower()
    entries = [
        (not entry.name.lower().startswith(lowered), not is_folder, entry.name)
        for entry, is_folder in _entries(base, MOST_ENTRIES)
        if lowered in entry.name.lower() and (name.startswith(".") or not entry.name.startswith("."))
    ]
    if folder in ("", "..") and name == "..":
        entries.append((False, False, ".."))
    return [_candidate(os.path.join(folder, found), is_folder=not is_file) for _, is_file, found in sorted(entries)]


def _below(cwd: Path, name: str, most: int) -> Iterator[Candidate]:
    """Files deeper down with `name` in their path, the shallow ones first."""
    lowered, seen, waiting = name.lower(), 0, deque([""])
    while waiting and seen < MOST_BELOW and most:
        folder = waiting.popleft()
        for entry, is_folder in sorted(_entries(cwd / folder, MOST_ENTRIES), key=lambda found: found[0].name):
            seen += 1
            path = os.path.join(folder, entry.name)
            if entry.name.startswith(".") or entry.name in _SKIPPED:
                continue
            if is_folder and not entry.is_symlink():
                waiting.append(path)
            elif folder and lowered in path.lower():
                yield _candidate(path, is_folder=False)
                most -= 1
                if not most:
                    return


def _entries(folder: Path, most: int) -> Iterator[tuple[os.DirEntry[str], bool]]:
    """The entries of a folder whose names can be written down, each with whether it is a folder."""
    try:
        with os.scandir(folder) as entries:
            for entry, _ in zip(entries, range(most), strict=False):
                if sanitize(entry.name) == entry.name and entry.name.isprintable():
                    try:
                        yield entry, entry.is_dir()
                    except OSError:
                        yield entry, False
    except (OSError, ValueError):
        return


def _candidate(path: str, *, is_folder: bool) -> Candidate:
    if not is_folder:
        return Candidate(quoted(path) + " ", path)
    mention = quoted(f"{path}/")
    return Candidate(mention.removesuffix('"') if mention.startswith('@"') else mention, f"{path}/", goes_on=True)


def _expanded(folder: str) -> str:
    try:
        return os.path.expanduser(folder)
    except RuntimeError:
        return folder
