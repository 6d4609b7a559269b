"""Engines side by side, and what happens where there is no room for them."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from app.bench import pool as pool_module
from app.bench.pool import EngineKey, EnginePool
from app.bench.setup import shared_settings
from engine import EngineProcess, LoadConfig, LoadFailed


def load(key: EngineKey) -> EngineProcess:
    return EngineProcess(LoadConfig(target=key.target, draft=key.draft, context=256, threads=key.threads or 1))


def test_an_engine_is_loaded_once_and_again_after_it_died(target: Path) -> None:
    key = EngineKey(target, None)
    with EnginePool(load) as pool:
        first = pool[key]
        assert pool[key] is first
        assert first.pid is not None
        os.kill(first.pid, signal.SIGKILL)
        first._process.join(10)
        second = pool[key]
        assert second is not first
        assert second.alive
        assert pool.loaded[key]["context"] == 256
    assert not second.alive


def test_the_one_unused_longest_makes_way_where_memory_is_short(target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two, three = (EngineKey(target, None, copy=copy) for copy in range(3))
    with EnginePool(load) as pool:
        engines = [pool[one], pool[two]]
        assert pool[one].alive  # used more lately than two
        room = iter((False, True))
        monkeypatch.setattr(pool_module, "has_room", lambda _key: next(room))
        assert pool[three].alive
        assert [engine.alive for engine in engines] == [True, False]
        assert pool.made_way == 1


def test_a_load_that_fails_is_tried_again_alone(target: Path) -> None:
    """A GPU's memory may be full of the others."""
    attempts = 0

    def fails_once(key: EngineKey) -> EngineProcess:
        nonlocal attempts
        attempts += 1
        if attempts == 2:
            raise LoadFailed("out of memory")
        return load(key)

    with EnginePool(fails_once) as pool:
        first = pool[EngineKey(target, None)]
        second = pool[EngineKey(target, None, copy=1)]
        assert (first.alive, second.alive, attempts) == (False, True, 3)


def test_a_load_that_fails_alone_fails(truncated: Path) -> None:
    with EnginePool(load) as pool, pytest.raises(LoadFailed):
        pool[EngineKey(truncated, None)]


def test_device_memory_is_what_the_load_added(target: Path) -> None:
    used = iter((100, 350))
    key = EngineKey(target, None)
    with EnginePool(load, lambda: next(used)) as pool:
        assert pool[key].alive
        assert pool.loaded[key]["device_bytes"] == 250


def test_keys_that_differ_in_anything_are_engines_of_their_own(target: Path) -> None:
    key = EngineKey(target, None)
    assert len({key, replace(key, batch=64), replace(key, threads=2), replace(key, copy=1), replace(key, draft=target)}) == 5


def test_all_load_with_the_least_that_any_has_to_do_with() -> None:
    assert shared_settings([{}, {"context": 4096, "kv_type": "q8_0"}, {"context": 2048, "batch": 128, "target_gpu_layers": 3}]) == {
        "context": 2048, "batch": 128, "kv_type": "q8_0",
    }
    assert shared_settings([{}, {}]) == {}
