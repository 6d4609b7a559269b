"""What has been read of a chat, on disk: both caches with their tokens, and the turns the prompt builder remembers.

Reopening a chat then reads only what is new. A state is good for the same files, llama.cpp build, context length and
KV type; anything else, and any byte that is not as it was written, is declined before llama.cpp sees it, as ggml may
end the process over it. A draft that is another one now, or was not saved, starts empty; the target's part still holds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from engine.prompt import PromptBuilder
from engine.state_file import Bytes, Facts, StateFile, open_state, write_state
from engine.token_cache import TokenCache

FORMAT = 1
_SAMPLES, _SAMPLE_BYTES = 64, 4096
_PIECES = re.compile(r"-\d{5}-of-(\d{5})\.gguf$")


def file_identity(model: Path) -> str:
    """Tells a model's file from any other: its size and a hash of samples from all over it, of every piece of a split one."""
    split = _PIECES.search(model.name)
    pieces = sorted(model.parent.glob(f"{model.name[: split.start()]}-*-of-{split[1]}.gguf")) if split else [model]
    digest = hashlib.sha256()
    for piece in pieces:
        size = piece.stat().st_size
        digest.update(size.to_bytes(8, "little"))
        with piece.open("rb") as file:
            for i in range(_SAMPLES):
                file.seek(i * max(size - _SAMPLE_BYTES, 0) // (_SAMPLES - 1))
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def save(path: Path, key: Facts, exactness: Facts, caches: dict[str, tuple[str, TokenCache]], prompts: PromptBuilder) -> int:
    """Write `caches` (a file_identity and a cache by role, the target first); the bytes written, 0 for an empty target.

    key: all that a state depends on besides the files. exactness: all that the last bits of a decode depend on.
    Raises StateNotSaved; `path` is what it was then.
    """
    for _, cache in caches.values():
        cache.settle()
    target = caches["target"][1]
    if not target.held:
        return 0

    def blocks() -> Iterator[tuple[Facts, Bytes]]:
        for role, (identity, cache) in caches.items():
            tokens = np.array(cache.held, dtype="<u4").tobytes()
            yield {"role": f"{role} tokens", "file": identity, "in_whole_batches": cache.in_whole_batches}, tokens
            yield {"role": f"{role} cache"}, cache.context.state(cache.sequence)

    facts = {"format": FORMAT, "key": key, "exactness": exactness, "turns": prompts.turns_along(target.held)}
    return write_state(path, facts, blocks())


def restore(
    path: Path, key: Facts, exactness: Facts, caches: dict[str, tuple[str, TokenCache]], prompts: PromptBuilder
) -> bool:
    """Fill `caches` from `path`, and let `prompts` remember what it knew. False if the file is not theirs or is damaged:
    the caches are then as they were, or empty."""
    with open_state(path) as file:
        try:
            return file is not None and _take(file, key, exactness, caches, prompts)
        except (KeyError, TypeError, ValueError, AttributeError):  # whole, but not of a shape that this version writes
            return False


def _take(
    file: StateFile, key: Facts, exactness: Facts, caches: dict[str, tuple[str, TokenCache]], prompts: PromptBuilder
) -> bool:
    if file.facts["format"] != FORMAT or file.facts["key"] != key:
        return False
    found = {}
    for role, (identity, cache) in caches.items():
        facts, state = file.find(f"{role} tokens"), file.find(f"{role} cache")
        if facts is None or state is None or facts["file"] != identity:
            if role == "target":
                return False
            continue
        tokens, content = file.read(facts), file.read(state)
        if tokens is None or content is None:
            return False
        held = np.frombuffer(tokens, "<u4").tolist()
        if len(held) > cache.context.n_ctx or max(held, default=0) >= cache.context.model.n_vocab:
            return False
        found[role] = held, content, int(facts["in_whole_batches"]) if file.facts["exactness"] == exactness else 0
    turns = prompts.read_turns(file.facts["turns"], found["target"][0])
    for role, (_, cache) in caches.items():
        if role in found and not cache.load(*found[role]) and role == "target":
            return False
        if role not in found:
            cache.clear()
    prompts.recall(turns)
    return True
