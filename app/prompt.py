"""From a question, files and piped input to the text of one user message.

The material comes first and the question last, so that a second question about the same file shares its prefix.
Whatever is not UTF-8 text is refused by name, before a model is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from app.errors import AppError
from app.units import byte_size

LIMIT_BYTES = 32_000_000
"""More than the longest context any model has; stops `-f /dev/zero` and a mistaken `-f model.gguf` early."""


@dataclass(frozen=True, slots=True)
class Material:
    """One piece of text the question is about."""

    label: str
    text: str


def read_file(path: Path) -> Material:
    """A text file. Raises AppError saying what is wrong with it."""
    try:
        with path.open("rb") as file:
            return _decode(file, str(path), f"File {path.name}")
    except IsADirectoryError:
        raise AppError(f"{path} is a directory; give the files in it one by one") from None
    except OSError as error:
        raise AppError(f"cannot read {path}: {error.strerror}") from None


def read_pipe(stream: BinaryIO) -> Material | None:
    """What was piped in, or None if that is nothing (`</dev/null`, a cron job)."""
    material = _decode(stream, "standard input", "Input")
    return material if material.text.strip() else None


def compose(question: str, materials: Sequence[Material]) -> str:
    """The message. Without a question a single piece is the prompt itself."""
    if not question and len(materials) == 1:
        return materials[0].text
    blocks = [_fenced(material) for material in materials]
    return "\n\n".join([*blocks, question] if question else blocks)


def _decode(stream: BinaryIO, name: str, label: str) -> Material:
    data = stream.read(LIMIT_BYTES + 1)
    if b"\0" in data:
        raise AppError(f"{name} is binary, not text (byte {data.index(0)} is zero)")
    if len(data) > LIMIT_BYTES:
        raise AppError(f"{name} is larger than {byte_size(LIMIT_BYTES)}, more than any model can read")
    try:
        return Material(label, data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise AppError(f"{name} is not UTF-8 text (byte {error.start} does not decode)") from None


def _fenced(material: Material) -> str:
    """The piece in a code fence longer than any inside it, so that its end cannot be mistaken."""
    longest = max((len(run) for run in re.findall(r"`+", material.text)), default=0)
    fence = "`" * max(3, longest + 1)
    newline = "" if material.text.endswith("\n") else "\n"
    return f"{material.label}:\n{fence}\n{material.text}{newline}{fence}"
