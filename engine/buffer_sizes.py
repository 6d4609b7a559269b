"""What llama.cpp would allocate for a pair, said by llama.cpp itself, with nothing allocated.

A load with `no_alloc` reads the headers and plans every graph; the sizes stand in its log lines. They are all that
llama-cpp-python 0.3.36 lets through: llama_get_memory_breakdown, which has more, returns a C++ map by value and is not
bound. On weights, whose buffers are empty in such a load, the lines are silent; the GGUF's tensor table is not. It runs
in a process of its own (a second for a pair, most of it to read the vocabularies), as ggml ends it over some files.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Literal

from engine.child import child, redirect_output
from engine.errors import EngineError, LoadFailed
from engine.values import LoadConfig

PATIENCE_SECONDS = 60.0
"""A pair takes a second; a disk that has to be woken up, a few."""
_CACHE = re.compile(r"llama_\w+: size = +([\d.]+) MiB \(")
_COMPUTE = re.compile(r" (\S+) compute buffer size = +([\d.]+) MiB")


@dataclass(frozen=True, slots=True)
class BufferSizes:
    """Of one model's context, in bytes; llama.cpp prints hundredths of a MiB."""

    caches: int
    """KV caches and recurrent states, on whatever device."""
    host_compute: int
    device_compute: int


def buffer_sizes(config: LoadConfig) -> tuple[BufferSizes, BufferSizes | None]:
    """The sizes for `config`'s target and draft. Raises LoadFailed, EngineDied when llama.cpp ended its process, or
    WorkCancelled when it says nothing for long."""
    until = time.monotonic() + PATIENCE_SECONDS
    with child("paceline sizes", _work, config) as process:
        kind, value = next(process.reports(lambda: time.monotonic() > until))
    if kind == "failed":
        raise LoadFailed(str(value))
    target, draft = value
    return target, draft


def sizes_in(lines: Sequence[str]) -> BufferSizes:
    """What a load's log lines say of the context they tell of."""
    text = "\n".join(lines)
    compute = {True: 0.0, False: 0.0}
    for name, size in _COMPUTE.findall(text):
        compute[name.startswith("CPU") or name.endswith("_Host")] += float(size)
    caches = sum(map(float, _CACHE.findall(text)))
    return BufferSizes(*(round(size * (1 << 20)) for size in (caches, compute[True], compute[False])))


# ---- in the child


def _work(connection: Connection, config: LoadConfig) -> None:
    from engine.llama import binding
    from engine.loading import block_rows, open_context, open_model

    def sizes(role: Literal["target", "draft"]) -> BufferSizes:
        with binding.log_lines() as lines, closing(open_model(config, role, no_alloc=True)) as model:
            trained = model.trained_context or config.context
            rows = block_rows(config, model) if role == "target" else 1
            open_context(config, model, min(config.context, trained), rows).close()
        return sizes_in(lines)

    redirect_output(config.log_file).close()
    try:
        connection.send(("done", (sizes("target"), sizes("draft") if config.draft else None)))
    except EngineError as error:
        connection.send(("failed", str(error)))
