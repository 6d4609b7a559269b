"""The block at the end of a load, and what its failure is called."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, EngineProcess, LoadCancelled, LoadConfig, LoadFailed
from engine.errors import DecodeFailed
from engine.llama.binding import CancelFlag, lib
from engine.llama.context import Context
from engine.llama.model import Model
from engine.load_check import check_block
from tests.engine.helpers import costs


@pytest.fixture
def decodes(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Rows and rows with logits of every decode."""
    seen: list[tuple[int, int]] = []
    real = Context.decode

    def decode(self: Context, tokens: Any, position: int, outputs: int, sequence: int = 0) -> None:
        seen.append((len(tokens), outputs))
        real(self, tokens, position, outputs, sequence)

    monkeypatch.setattr(Context, "decode", decode)
    return seen


@pytest.fixture
def fail(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Make every decode of so many rows or more fail as one without memory does; no way to run out of it safely."""
    real = lib.llama_decode

    def at(rows: int) -> None:
        monkeypatch.setattr(lib, "llama_decode", lambda context, batch: -2 if batch.n_tokens >= rows else real(context, batch))

    return at


def test_every_load_decodes_a_full_block_and_leaves_the_cache_empty(
    target: Path, draft: Path, tmp_path: Path, decodes: list[tuple[int, int]]
) -> None:
    for _ in range(2):  # the first measures, which decodes it too
        decodes.clear()
        with Engine(LoadConfig(target, draft, context=512, threads=1, profile_dir=tmp_path)) as engine:
            assert (64, 64) in decodes
            assert engine.cache.context.length() == 0
            assert engine.cache.held == []
    assert (1, 1) in decodes, "the draft's steps"


def test_the_block_is_shorter_where_a_full_one_takes_long(target: Path, decodes: list[tuple[int, int]]) -> None:
    model = Model(target)
    context = Context(model, n_ctx=512, batch=512, max_outputs=64, threads=1, batch_threads=1)
    for row, rows in ((0.001, 64), (0.08, 12), (2.0, 1)):
        assert check_block(context, costs(row=row), 64) == rows
        assert decodes[-1] == (rows, rows)
        assert context.length() == 0
    context.close()
    model.close()


@pytest.mark.parametrize("measured", [False, True])
def test_a_target_that_loads_but_cannot_answer_is_a_failed_load(
    measured: bool, target: Path, tmp_path: Path, fail: Callable[[int], None]
) -> None:
    how = LoadConfig(target, context=512, threads=1, profile_dir=tmp_path)
    if measured:
        Engine(how).close()
    fail(16)
    with pytest.raises(LoadFailed, match=r"target.gguf can be loaded but does not answer: .*\(code -2\).*; free some memory") as caught:
        Engine(how)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value.__cause__, DecodeFailed)


def test_a_draft_that_cannot_answer_is_left_out(target: Path, draft: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Context.decode

    def decode(self: Context, *args: Any) -> None:
        if self.model.path == draft:
            raise DecodeFailed("no memory")
        real(self, *args)

    monkeypatch.setattr(Context, "decode", decode)
    with Engine(LoadConfig(target, draft, context=512, threads=1)) as engine:
        assert "does not answer: no memory" in engine.notices[0]
        assert engine.describe()["draft"] is None


def test_a_cancel_while_a_load_decodes_is_a_cancelled_load(target: Path, tmp_path: Path) -> None:
    cancel = CancelFlag()
    cancel.set()
    with pytest.raises(LoadCancelled):
        Engine(LoadConfig(target, context=512, threads=1), cancel=cancel)
    with pytest.raises(LoadCancelled), EngineProcess(LoadConfig(target, threads=1), lambda _: False):
        pass
