"""Recorded replies: what the target wrote, and what the draft model would have proposed at every place. Owns the format.

A file is one compressed .npz. `index` is JSON: the manifest, and per reply its suite, prompt, temperature and whether it
ended by itself. Every other array holds all replies one after the other; `<name>_lengths` has the pieces' lengths.
Probabilities are float16: three digits, where the recording itself moves in the second from one machine to the next.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.sampling import Distribution

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class ReplyTrace:
    """One reply of n tokens at one temperature. Place t is the place of tokens[t]; all arrays but prompt are (n,) or of n
    pieces. Where the draft's token is refused, the draft went on from it: `branch` is what it then was confident of."""

    suite: str
    prompt_id: int
    temperature: float
    ended: bool
    """False where the recording's limit cut the reply."""
    prompt: Ints
    tokens: Ints
    ease: Floats
    """The target's top probability before any filter."""
    top: Floats
    """The draft's, before any filter."""
    drafted: Ints
    """Drawn from q coupled with tokens[t] as closely as can be: equal with chance min(1, q/p), else from the rest of q."""
    p: tuple[Distribution, ...]
    """The target's after the filters; tokens[t] was drawn from it."""
    q: tuple[Distribution, ...]
    branch: tuple[Floats, ...]
    """Confidences of the draft's next tokens after a refused one, up to the recording's limit; empty where it was kept."""

    def __len__(self) -> int:
        return len(self.tokens)

    def confidence(self, t: int) -> float:
        """In the drafted token, as engine.drafters.model hands it to the length rule."""
        return float(self.top[t]) if self.temperature == 0 else self.q[t].prob(int(self.drafted[t]))

    def kept(self, t: int) -> bool:
        return bool(self.drafted[t] == self.tokens[t])


_INTS, _FLOATS, _DISTRIBUTIONS = ("prompt", "tokens", "drafted"), ("ease", "top"), ("p", "q")


def save_traces(path: Path, replies: Sequence[ReplyTrace], manifest: dict[str, Any]) -> None:
    """Write `replies` to `path`."""
    arrays: dict[str, NDArray[Any]] = {}

    def add(name: str, pieces: Sequence[NDArray[Any]], kind: Any) -> None:
        arrays[name] = np.concatenate([*pieces, []]).astype(kind)
        arrays[name + "_lengths"] = np.array([len(piece) for piece in pieces], dtype=np.int32)

    for name in _INTS:
        add(name, [getattr(reply, name) for reply in replies], np.int32)
    for name in _FLOATS:
        add(name, [getattr(reply, name) for reply in replies], np.float16)
    for name in _DISTRIBUTIONS:
        found = [d for reply in replies for d in getattr(reply, name)]
        add(name + "_ids", [d.ids for d in found], np.int32)
        add(name + "_probs", [d.probs for d in found], np.float16)
    add("branch", [piece for reply in replies for piece in reply.branch], np.float16)
    index = [
        {"suite": r.suite, "prompt_id": r.prompt_id, "temperature": r.temperature, "ended": r.ended} for r in replies
    ]
    arrays["index"] = np.frombuffer(json.dumps({"manifest": manifest, "replies": index}).encode(), dtype=np.uint8)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def load_traces(path: Path) -> list[ReplyTrace]:
    """The replies of a file that save_traces wrote. Raises OSError, KeyError and ValueError on anything else."""
    with np.load(path, allow_pickle=False) as data:
        arrays = {name: data[name] for name in data.files}
    index = json.loads(arrays["index"].tobytes())["replies"]

    def pieces(name: str, kind: Any) -> list[NDArray[Any]]:
        ends = np.cumsum(arrays[name + "_lengths"])
        return np.split(arrays[name].astype(kind), ends[:-1])

    def distributions(name: str) -> list[Distribution]:
        ids, probs = pieces(name + "_ids", np.int32), pieces(name + "_probs", np.float64)
        return [Distribution(i, p / p.sum()) for i, p in zip(ids, probs, strict=True)]

    ints = {name: pieces(name, np.int32) for name in _INTS}
    floats = {name: pieces(name, np.float64) for name in _FLOATS}
    places = {name: iter(distributions(name)) for name in _DISTRIBUTIONS}
    branch = iter(pieces("branch", np.float64))
    replies = []
    for i, entry in enumerate(index):
        n = len(ints["tokens"][i])
        replies.append(ReplyTrace(
            **entry, **{name: ints[name][i] for name in _INTS}, **{name: floats[name][i] for name in _FLOATS},
            **{name: tuple(next(places[name]) for _ in range(n)) for name in _DISTRIBUTIONS},
            branch=tuple(next(branch) for _ in range(n)),
        ))
    return replies
