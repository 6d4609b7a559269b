"""Times ways of running one target against each other: its weights are loaded once, in a process of its own, and each way
gets a small cache beside them, so that two can be timed in turns, seconds apart.

All times are taken behind `depth` tokens of text, where attention costs what it costs in the middle of a chat. A way that
would not fit into the memory that is free is refused before anything of it is allocated; one over which llama.cpp ends
the process ends the trial (EngineDied), and nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Literal

import psutil

from engine.buffer_sizes import BufferSizes, buffer_sizes
from engine.child import Child, child, redirect_output
from engine.errors import EngineError, LoadCancelled, LoadFailed, WorkCancelled
from engine.values import LoadConfig

if TYPE_CHECKING:
    from engine.llama.context import Context

Part = Literal["row", "block", "prompt"]
BLOCK_ROWS = 16
PROMPT_TOKENS = 128
ROW_REPEATS = 4
"""Single rows in one sample; its figure is their mean."""
SPARE_TOKENS = 64
RESERVE_SHARE = 0.05
"""Of the machine's memory that stays free."""
TEXT = (
    "The harbour lay quiet under the morning fog. Two fishermen were mending a net on the quay, and neither looked up when "
    "the ferry came in. def merge(left, right): return sorted(left + right)  # 17 of 20 boats were at sea; 3 were not. "
)
"""Read over and over to fill a cache: words, code and numbers, so that a mixture of experts uses more than one."""


@dataclass(frozen=True, slots=True)
class _Call:
    what: Literal["open", "sample", "close"]
    number: int
    config: LoadConfig | None = None
    sizes: BufferSizes | None = None
    parts: tuple[Part, ...] = ()
    tokens: int = 0


class Trial:
    """The owner's end. Ways are known by the numbers `open` gives."""

    def __init__(self, process: Child, cancelled: Callable[[], bool]) -> None:
        self._process = process
        self._reports = process.reports(cancelled)
        self._next = 0

    def open(self, config: LoadConfig, depth: int, longest: int) -> int:
        """Make a cache for `depth` tokens, or as many as the model can, and samples of up to `longest`, and read the text
        into it. Raises LoadFailed where it does not fit into memory or cannot be made."""
        small = _small(config, depth + longest + SPARE_TOKENS)
        number, self._next = self._next, self._next + 1
        self._ask(_Call("open", number, small, buffer_sizes(small)[0], tokens=depth))
        return number

    def sample(self, number: int, parts: Sequence[Part], prompt_tokens: int = PROMPT_TOKENS) -> dict[Part, float]:
        """Seconds of one row, of BLOCK_ROWS rows, and of reading `prompt_tokens`."""
        found: dict[Part, float] = self._ask(_Call("sample", number, parts=tuple(parts), tokens=prompt_tokens))
        return found

    def close(self, number: int) -> None:
        """Give the cache's memory back."""
        self._ask(_Call("close", number))

    def _ask(self, call: _Call) -> Any:
        self._process.send(call)
        return _answer(next(self._reports))


@contextmanager
def running_trial(config: LoadConfig, cancelled: Callable[[], bool]) -> Iterator[Trial]:
    """Load `config`'s target. Raises LoadFailed, EngineDied, and LoadCancelled soon after `cancelled` turns true."""
    try:
        with child("paceline tune", _work, config) as process:
            trial = Trial(process, cancelled)
            _answer(next(trial._reports))
            yield trial
    except WorkCancelled:
        raise LoadCancelled("measuring was cancelled") from None


def _answer(report: tuple[str, Any]) -> Any:
    kind, value = report
    if kind == "failed":
        raise LoadFailed(str(value))
    return value


def _small(config: LoadConfig, tokens: int) -> LoadConfig:
    return replace(config, draft=None, context=max(256, tokens), max_block=BLOCK_ROWS, profile_dir=None)


# ---- in the child


def _work(connection: Connection, config: LoadConfig) -> None:
    from engine.loading import open_model

    redirect_output(config.log_file).close()
    try:
        model = open_model(config, "target")
    except EngineError as error:
        connection.send(("failed", str(error)))
        return
    connection.send(("done", None))
    tokens = model.encode(TEXT, special=False)
    open_ways: dict[int, _Way] = {}
    while True:
        try:
            call: _Call = connection.recv()
        except (EOFError, OSError):
            break
        try:
            connection.send(("done", _run(call, model, tokens, open_ways)))
        except EngineError as error:
            connection.send(("failed", str(error)))
    for way in open_ways.values():
        way.context.close()
    model.close()


def _run(call: _Call, model: Any, tokens: list[int], ways: dict[int, _Way]) -> Any:
    if call.what == "close":
        ways.pop(call.number).context.close()
        return None
    if call.what == "sample":
        return ways[call.number].sample(call.parts, call.tokens)
    assert call.config is not None
    assert call.sizes is not None
    _check_memory(call.sizes)
    from engine.loading import open_context

    context = open_context(call.config, model, call.config.context, BLOCK_ROWS)
    try:
        depth = min(call.tokens, context.n_ctx - (call.config.context - call.tokens))
        if depth < 1:
            raise LoadFailed(f"{model.path.name} has learned too short a context for this")
        way = _Way(context, tokens, depth)
        way.fill()
    except BaseException:
        context.close()
        raise
    ways[call.number] = way
    return None


def _check_memory(sizes: BufferSizes) -> None:
    """Raise LoadFailed where the new cache and its buffers would not fit into what is free."""
    from engine.llama.binding import devices

    memory = psutil.virtual_memory()
    gpus = devices()
    on_host = sizes.host_compute + (0 if gpus else sizes.caches)
    room = memory.available - int(RESERVE_SHARE * memory.total)
    if on_host > room:
        raise LoadFailed(f"it needs {on_host / 1e9:.1f} GB more and {max(room, 0) / 1e9:.1f} GB are free")
    on_device = sizes.device_compute + (sizes.caches if gpus else 0)
    free = sum(gpu.free_bytes for gpu in gpus)
    if gpus and on_device > free:
        raise LoadFailed(f"it needs {on_device / 1e9:.1f} GB more of GPU memory and {free / 1e9:.1f} GB are free")


class _Way:
    """One cache, filled to its depth."""

    def __init__(self, context: Context, tokens: list[int], depth: int) -> None:
        self.context, self._tokens, self._depth = context, tokens, depth

    def fill(self) -> None:
        self._read(self._depth, 0)
        self.sample(("row", "block"), 0)  # first decodes of their size allocate and warm up

    def sample(self, parts: Sequence[Part], prompt_tokens: int) -> dict[Part, float]:
        seconds: dict[Part, float] = {}
        for part in parts:
            started = time.perf_counter()
            if part == "row":
                for i in range(ROW_REPEATS):
                    self.context.decode(self._text(1, i), self._depth + i, 1)
                seconds[part] = (time.perf_counter() - started) / ROW_REPEATS
            elif part == "block":
                self.context.decode(self._text(BLOCK_ROWS, 0), self._depth, BLOCK_ROWS)
                seconds[part] = time.perf_counter() - started
            else:
                self._read(prompt_tokens, self._depth)
                seconds[part] = time.perf_counter() - started
            if not self.context.truncate(self._depth):
                self.context.clear()
                self._read(self._depth, 0)
        return seconds

    def _read(self, count: int, position: int) -> None:
        size = self.context.batch_size
        for start in range(0, count, size):
            n = min(size, count - start)
            self.context.decode(self._text(n, start), position + start, 1 if start + n == count else 0)

    def _text(self, count: int, start: int) -> list[int]:
        return [self._tokens[(start + i) % len(self._tokens)] for i in range(count)]
