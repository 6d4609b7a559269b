"""`@path` in a message, and what it brings along. The text is the only truth: attachments are derived from it.

A mention is `@` at the start of a word followed by a path (in quotes where it holds spaces) that exists. Long pasted texts
are mentioned in the same way, as `[Pasted text 1, 12,345 lines]`. Reads files; knows nothing of widgets and the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from app.chat.conversation import Attachment
from app.errors import AppError
from app.prompt import Material, compose, read_file
from app.units import byte_size

LIMIT_BYTES = 4_000_000
"""A million tokens, more than any context here; keeps a mistaken `@` of a log file from filling memory."""
PASTED = "Pasted text "

_MENTION = re.compile(r"""(?<![^\s(\[{"'])@(?:"([^"\n]+)"|([^\s"@][^\s"]*))""")
_PASTED = re.compile(r"\[(Pasted text \d+, [\d,]+ (?:lines?|characters))\]")
_LIKE_A_FILE = re.compile(r"/|\s|\.\w{1,5}\Z")
_TRAILING = ".,;:!?)]}'"
"""What ends a sentence around a path rather than the path."""


@dataclass(frozen=True, slots=True)
class Mention:
    """A file named in a text. `typed` is the path as it stands there, without quotes."""

    typed: str
    path: Path


@dataclass(frozen=True, slots=True)
class Refused:
    """A mentioned file that cannot come along, and why in one line."""

    name: str
    reason: str


def mentions(text: str, cwd: Path) -> list[Mention]:
    """The files and folders that `text` names, each once. Asks the disk whether they exist."""
    return list({mention.typed: mention for _, mention in _named(text, cwd) if mention is not None}.values())


def unfound(text: str, cwd: Path) -> list[str]:
    """What `text` names as if it were a file (in quotes, with a slash or an ending) and is not there, each once. An `@name`
    of other kinds is a word like any other."""
    return list(dict.fromkeys(typed for typed, mention in _named(text, cwd) if mention is None and _LIKE_A_FILE.search(typed)))


def _named(text: str, cwd: Path) -> Iterator[tuple[str, Mention | None]]:
    """Each mention as it stands in the text, and the file that is meant if there is one."""
    for match in _MENTION.finditer(text):
        candidates = [match[1]] if match[1] else _without_punctuation(match[2])
        found = (Mention(candidate, path) for candidate in candidates if (path := resolve(candidate, cwd)) is not None)
        yield (match[1] or candidates[-1]), next(found, None)


def resolve(typed: str, cwd: Path) -> Path | None:
    """The existing path that is meant by `typed`: below `cwd`, absolute, or with `~`."""
    try:
        path = cwd / Path(typed).expanduser()
        return path if path.exists() else None
    except (OSError, RuntimeError, ValueError):  # no such home, a name that is too long, a NUL
        return None


def pasted_names(text: str) -> list[str]:
    """The names of the pasted texts that `text` mentions, in order, each once."""
    return list(dict.fromkeys(match[1] for match in _PASTED.finditer(text)))


def pasted_at_end(text: str) -> str:
    """The mention of a pasted text that `text` ends with; empty if it does not."""
    found = [match[0] for match in _PASTED.finditer(text) if match.end() == len(text)]
    return found[0] if found else ""


def pasted_name(number: int, text: str) -> str:
    """What a long pasted text is called, without the brackets of its mention."""
    lines = text.count("\n") + (not text.endswith("\n"))
    size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
    return f"{PASTED}{number}, {size}"


def quoted(path: str) -> str:
    """The mention of a path."""
    return f'@"{path}"' if re.search(r"\s", path) or path[-1:] in _TRAILING else f"@{path}"


def read(mention: Mention) -> Attachment | Refused:
    """The mentioned file's text, or why it cannot be had."""
    try:
        if not mention.path.is_dir():
            if not mention.path.is_file():
                return Refused(mention.typed, f"{mention.typed} is a device or a pipe, not a file")
            if mention.path.stat().st_size > LIMIT_BYTES:
                return Refused(mention.typed, f"{mention.typed} is larger than {byte_size(LIMIT_BYTES)}, the most that can be attached")
        return Attachment(mention.typed, read_file(mention.path).text)
    except AppError as error:
        return Refused(mention.typed, str(error).replace(str(mention.path), mention.typed))
    except OSError as error:
        return Refused(mention.typed, f"cannot read {mention.typed}: {error.strerror}")


def too_long(attachments: Sequence[Attachment], context: int | None) -> str | None:
    """Why these attachments cannot be read together by a model with `context` tokens for one message; None if they can,
    as far as the counted ones tell."""
    counted = [attachment for attachment in attachments if attachment.tokens is not None]
    total = sum(attachment.tokens or 0 for attachment in counted)
    if context is None or total <= context:
        return None
    if len(counted) == 1:
        return f"{counted[0].name} has {total:,} tokens; the model reads {context:,} at once"
    return f"{len(counted)} attachments have {total:,} tokens; the model reads {context:,} at once"


def compose_message(text: str, attachments: Sequence[Attachment]) -> str:
    """What the model reads for a user's message: the attachments, then the text, as `ask` puts files together."""
    materials = [Material(_label(attachment.name), attachment.text) for attachment in attachments]
    mentions_only = {f"[{attachment.name}]" for attachment in attachments} | {quoted(a.name) for a in attachments}
    return compose("" if text.strip() in mentions_only else text, materials)


def _label(name: str) -> str:
    return name if name.startswith(PASTED) else f"File {name}"


def _without_punctuation(typed: str) -> list[str]:
    """The text itself, then without what may be the sentence's: `@a.py,` means a.py."""
    stripped = typed.rstrip(_TRAILING)
    return [typed, stripped] if stripped and stripped != typed else [typed]
