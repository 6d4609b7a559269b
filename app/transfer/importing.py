"""A file of chats into the store, whoever wrote it."""

from __future__ import annotations

import io
import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.paths import is_device
from app.store import ChatStore, StoreError
from app.transfer import chatgpt, lm_studio
from app.transfer.own_json import FORMAT, read_own
from app.transfer.values import ReadChat, TransferError

LARGEST_BYTES = 2_000_000_000
"""Of JSON. A zip that claims more is refused unread."""
DENSEST = 200
"""Times that a member of a zip may be larger than packed; chats come to 10, a bomb to 1000."""
_HARMLESS = 10_000_000
_CONVERSATIONS = re.compile(r"(.*/)?conversations[^/]*\.json", re.IGNORECASE)
_UNKNOWN = (
    "it is no export that is understood: Paceline's JSON, ChatGPT's conversations.json or .zip, LM Studio's .conversation.json"
)

Progress = Callable[[float], None]


@dataclass(frozen=True, slots=True)
class Imported:
    """What came of an import."""

    chat_ids: tuple[int, ...]
    messages: int
    left_out: int
    """Parts of messages that are no text."""
    unreadable: int
    """Conversations that are none, or empty."""

    @property
    def summary(self) -> str:
        """One line for the user."""
        counts = ((self.left_out, "part that is no text", "parts that are no text"),
                  (self.unreadable, "empty or unreadable conversation", "empty or unreadable conversations"))
        rest = " and ".join(_counted(*count) for count in counts if count[0])
        what = f"{_counted(len(self.chat_ids), 'chat', 'chats')} with {_counted(self.messages, 'message', 'messages')}"
        return f"{what}; left out: {rest}" if rest else what


def import_file(store: ChatStore, path: Path, progress: Progress | None = None) -> Imported:
    """The chats of a file into the store, each in one piece. Raises TransferError (the file) or StoreError (the store);
    chats that were in by then stay."""
    try:
        if is_device(path):
            raise TransferError(f"{path} cannot be read: it is a device, not a file")
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        raise TransferError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return import_bytes(store, content, str(path), progress)


def import_bytes(store: ChatStore, content: bytes, name: str, progress: Progress | None = None) -> Imported:
    """The same for what was read already; `name` stands in errors."""
    try:
        if len(content) > LARGEST_BYTES:
            raise TransferError("it is too large")
        if not content.strip():
            raise TransferError("it is empty")
        documents = list(_documents(content))
        total = sum(count for count, _ in documents)
        return _store(store, (chat for _, chats in documents for chat in chats), total, progress)
    except TransferError as error:
        raise TransferError(f"{name} cannot be imported: {error}") from None


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _store(store: ChatStore, chats: Iterator[ReadChat | None], total: int, progress: Progress | None) -> Imported:
    ids: list[int] = []
    messages = left_out = unreadable = 0
    for done, read in enumerate(chats, start=1):
        if read is None:
            unreadable += 1
        else:
            try:
                ids.append(store.insert_chat(read.chat, read.messages))
            except StoreError as error:
                raise StoreError(f"{len(ids)} of {total} chats were imported, then: {error}") from error
            messages += len(read.messages)
            left_out += read.left_out
        if progress is not None:
            progress(done / total)
    if not ids:
        raise TransferError("there is no chat in it")
    return Imported(tuple(ids), messages, left_out, unreadable)


def _documents(content: bytes) -> Iterator[tuple[int, Iterator[ReadChat | None]]]:
    """For each JSON document: how many conversations, and these one after the other."""
    if zipfile.is_zipfile(io.BytesIO(content)):
        for text in _unzipped(content):
            yield _conversations(_parsed(text))
    else:
        yield _conversations(_parsed(content))


def _conversations(content: Any) -> tuple[int, Iterator[ReadChat | None]]:
    if isinstance(content, dict) and content.get("format") == FORMAT:
        own = read_own(content)
        return len(own), iter(own)
    if chatgpt.is_chatgpt(content):
        conversations = content if isinstance(content, list) else [content]
        return len(conversations), map(chatgpt.read_conversation, conversations)
    if lm_studio.is_lm_studio(content):
        return 1, map(lm_studio.read_conversation, [content])
    raise TransferError("there is no chat in it" if content == [] else _UNKNOWN)


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except UnicodeDecodeError:
        raise TransferError(_UNKNOWN) from None
    except json.JSONDecodeError as error:
        raise TransferError(f"it is no JSON (line {error.lineno}: {error.msg.lower()})") from None
    except RecursionError:
        raise TransferError("it is nested too deeply") from None
    except ValueError:  # a number of thousands of digits
        raise TransferError(_UNKNOWN) from None


def _unzipped(content: bytes) -> list[bytes]:
    """The conversation files of an archive: ChatGPT's, and ours or LM Studio's if somebody packed them."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [member for member in archive.infolist() if _CONVERSATIONS.fullmatch(member.filename)]
            members = members or [member for member in archive.infolist() if member.filename.endswith(".json")]
            if not members:
                raise TransferError("there is no conversations.json in it")
            if sum(member.file_size for member in members) > LARGEST_BYTES:
                raise TransferError("it is too large")
            if any(member.file_size > DENSEST * max(member.compress_size, 1) and member.file_size > _HARMLESS for member in members):
                raise TransferError("it is packed more densely than any export: unpack it yourself if you trust it")
            return [archive.read(member) for member in members]
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError) as error:  # RuntimeError: encrypted, or packed oddly
        raise TransferError(f"the archive is damaged or cannot be opened ({error})") from None
