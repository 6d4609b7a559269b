"""A vocabulary as one digest, so that a folder full of models can be sorted into those that speak the same one.

Which ids mean the same text decides whether one model can draft for another; sizes decide nothing. Unused ids at the
end (a model padded to a round number of rows) are left out of the digest, as the engine leaves them out. The engine
compares every text again when a pair is loaded and has the last word.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from models.byte_cursor import ByteCursor
from models.errors import BadGguf
from models.gguf import MAX_HEADER_BYTES, GgufInfo
from models.gguf_metadata import MAX_TOKENS, TOKENS

_TYPES = "tokenizer.ggml.token_type"
_UNUSED = (5).to_bytes(4, "little")
_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_PADDING = re.compile(rb"^(\[PAD\d*\]|<\|?(unused|pad|extra|dummy|reserved)[^>]*>|)$", re.IGNORECASE)
_HASH_BYTES = 8
_ROLES = {"bos": "beginning-of-text", "eos": "end-of-text"}


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What two models must have in common for one to draft for the other."""

    tokenizer: str
    """`gpt2`, `llama`, ..."""
    size: int
    used: int
    """Ids up to the last one that is not padding."""
    digest: str
    """Of the texts of the used ids, in order."""
    bos: int | None = None
    eos: int | None = None
    adds_bos: bool | None = None

    @classmethod
    def from_json(cls, facts: Mapping[str, Any]) -> Vocabulary:
        return cls(**facts)


def read_vocabulary(info: GgufInfo) -> Vocabulary | None:
    """The vocabulary of a model whose header `read_gguf` accepted; None where the file has none. About 0.3 s.

    Raises BadGguf if the file has changed under our hands.
    """
    if not info.vocabulary:
        return None
    try:
        hashes, padding = _read_tokens(info.paths[0])
    except OSError as error:
        raise BadGguf(f"{info.paths[0]} cannot be read: {error.strerror or error}") from None
    used = len(padding)
    while used and padding[used - 1]:
        used -= 1

    def token(role: str) -> int | None:
        value = info.metadata.get(f"tokenizer.ggml.{role}_token_id")
        return value if type(value) is int else None

    adds_bos = info.metadata.get("tokenizer.ggml.add_bos_token")
    return Vocabulary(
        tokenizer=str(info.metadata.get("tokenizer.ggml.model", "")),
        size=len(padding),
        used=used,
        digest=hashlib.sha256(hashes[: used * _HASH_BYTES]).hexdigest()[:32],
        bos=token("bos"),
        eos=token("eos"),
        adds_bos=adds_bos if isinstance(adds_bos, bool) else None,
    )


def mismatch(draft: Vocabulary, target: Vocabulary) -> str | None:
    """Why `draft` cannot draft for `target`; None if their vocabularies agree. What a file leaves out is no reason."""
    if draft.tokenizer != target.tokenizer:
        return f"their tokenizers are of different kinds ({draft.tokenizer} and {target.tokenizer})"
    if (draft.used, draft.digest) != (target.used, target.digest):
        return f"their token texts differ ({draft.used:,} and {target.used:,} in use)"
    for role, name in _ROLES.items():
        ours, theirs = getattr(draft, role), getattr(target, role)
        if None not in (ours, theirs) and ours != theirs:
            return f"their {name} tokens differ ({ours} and {theirs})"
    if None not in (draft.adds_bos, target.adds_bos) and draft.adds_bos != target.adds_bos:
        return "only one of them starts texts with the beginning-of-text token"
    return None


def _read_tokens(path: Path) -> tuple[bytes, bytearray]:
    """A short hash of each token's text, and for each whether it is padding."""
    hashes, padding, kinds = bytearray(), bytearray(), b""
    with path.open("rb") as source:
        cursor = ByteCursor(source, path.stat().st_size, MAX_HEADER_BYTES)
        cursor.skip(16, "the head")
        for _ in range(cursor.u64("the key count")):
            key = cursor.text(65_535, "a key")
            kind = cursor.u32(key)
            if kind != _ARRAY:
                _skip(cursor, kind, 1, key)
                continue
            element, length = cursor.u32(key), cursor.u64(key)
            if key == TOKENS and element == _STRING and length <= MAX_TOKENS:
                for _ in range(length):
                    text = cursor.bytes(cursor.u64(key), key)
                    hashes += hashlib.blake2b(text, digest_size=_HASH_BYTES).digest()
                    padding.append(_PADDING.match(text) is not None)
            elif key == _TYPES and length <= MAX_TOKENS and _SIZES.get(element) == 4:
                kinds = cursor.bytes(4 * length, key)
            else:
                _skip(cursor, element, length, key)
    for number in range(min(len(padding), len(kinds) // 4)):
        if kinds[4 * number : 4 * number + 4] == _UNUSED:
            padding[number] = True
    return bytes(hashes), padding


def _skip(cursor: ByteCursor, kind: int, count: int, key: str) -> None:
    if kind == _STRING:
        cursor.skip_texts(count, key)
    elif kind in _SIZES:
        cursor.skip(_SIZES[kind] * count, key)
    else:
        raise BadGguf(f"the key {key!r} has the unknown type {kind}")
