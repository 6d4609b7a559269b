"""Files that are either the old one or the new one, never half of it."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path

from app.errors import AppError


def check_output(path: Path, *, overwrite: bool, otherwise: str = "") -> None:
    """Before the work whether its result can be written, so that none is done in vain and nothing is lost. `otherwise` is
    said after what `--overwrite` does. Raises AppError."""
    try:
        folder = path.resolve().parent
    except RuntimeError:
        raise AppError(f"{path} is a link that leads to itself") from None
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise AppError(f"cannot write to {folder}")
    if path.exists() and not path.is_file():
        raise AppError(f"{path} is not a file that can be replaced")
    if path.exists() and not overwrite:
        raise AppError(f"{path} is there already; --overwrite replaces it{otherwise}")


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` by `text`. Raises OSError naming `path`; the old content is untouched then."""
    path = path.resolve()  # a link keeps pointing where it did
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)
        raise OSError(error.errno, error.strerror, str(path)) from None
