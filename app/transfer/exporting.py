"""Chats of the store to text and files."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from app.atomic import write_atomically
from app.store import ChatStore
from app.transfer.markdown import to_markdown
from app.transfer.own_json import to_json
from app.transfer.values import TransferError

Format = Literal["markdown", "json"]
FORMATS: dict[str, Format] = {".md": "markdown", ".markdown": "markdown", ".json": "json"}
"""By what a file's name ends in."""
_LONGEST_NAME = 60


def export_chats(store: ChatStore, chat_ids: Sequence[int], form: Format) -> str:
    """The chats as one text: Markdown of the branches shown, or JSON of everything. Raises StoreError."""
    if form == "json":
        return to_json([(store.chat(i), store.tree(i)) for i in chat_ids])
    return "\n".join(to_markdown(store.chat(i), store.path(i)) for i in chat_ids)


def format_of(path: Path) -> Format:
    """Raises TransferError for a name that does not tell."""
    if (form := FORMATS.get(path.suffix.lower())) is None:
        raise TransferError(f"{path}: a name that ends in .md (to read) or .json (to import again) is needed")
    return form


def save_export(store: ChatStore, chat_ids: Sequence[int], path: Path, *, replace: bool = False) -> Path:
    """The chats into a file, in the format its name tells; the path that was written. A folder gets a Markdown file named
    after the first chat. What is there already is only replaced with `replace`. Raises TransferError, StoreError."""
    path = path.absolute()
    try:
        if path.is_dir():
            path = _free(path / suggested_name(store.chat(chat_ids[0]).title))
        text = export_chats(store, chat_ids, format_of(path))
        if path.exists() and not replace:
            raise TransferError(f"{path} is there already; choose another name")
        write_atomically(path, text)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise TransferError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    return path


def suggested_name(title: str, suffix: str = ".md") -> str:
    """A file name made of a chat's title, fit for every file system."""
    plain = unicodedata.normalize("NFC", title)
    name = re.sub(r"[^\w]+", "-", plain).strip("-_").lower()[:_LONGEST_NAME].strip("-_")
    while len(os.fsencode(name)) > 3 * _LONGEST_NAME:
        name = name[:-1]
    return f"{name or 'chat'}{suffix}"


def _free(path: Path) -> Path:
    """`path`, or with a number if that is taken."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return free
