"""What was read of chats, kept on disk: reopened chats read only what is new, within a budget, never filling the disk."""

from __future__ import annotations

import os
import shutil
import time
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.chat.events import ModelReady, PromptRead, TokensCounted
from app.chat.kv_states import KvStates
from engine import Engine, GenerationRequest, LoadConfig, SamplingParams
from tests.app.chat.hosting import Hosting

Usage = namedtuple("Usage", "total used free")
GIB = 1 << 30


# ---- in the host


def reopened(home: Path, target: Path, draft: Path | None = None, **settings: int) -> Hosting:
    made = Hosting(home, **settings)
    assert isinstance(made.load(target, draft, ctx=2048), ModelReady)
    return made


def read_for(hosting: Hosting, chat: int, text: str) -> PromptRead:
    """How much of the prompt had been read before."""
    since = len(hosting.heard.events)
    hosting.answer(chat, text)
    return hosting.heard.wait(PromptRead, since=since)


def settle(hosting: Hosting) -> None:
    """Wait until the host has nothing to do."""
    tag = object()
    hosting.host.count_tokens("", tag)
    hosting.heard.wait(TokensCounted, lambda event: event.tag is tag)


def test_a_reopened_chat_reads_only_what_is_new(tmp_path: Path, target: Path, draft: Path) -> None:
    first = reopened(tmp_path / "home", target, draft)
    chat = first.chat()
    first.answer(chat, "x" * 500)
    first.close()
    assert [path.name for path in first.paths.states.iterdir()] == [f"{chat}.kv"]
    again = reopened(tmp_path / "home", target, draft)
    try:
        read = read_for(again, chat, "And?")
        assert read.cached > 500
        assert read.total - read.cached < 60
    finally:
        again.close()


def test_switching_chats_keeps_each(tmp_path: Path, target: Path) -> None:
    hosting = reopened(tmp_path / "home", target)
    try:
        one, two = hosting.chat(), hosting.chat()
        hosting.answer(one, "x" * 500)
        hosting.answer(two, "y" * 500)
        assert read_for(hosting, one, "And?").cached > 500
        hosting.host.open_chat(two)
        settle(hosting)
        assert read_for(hosting, two, "And?").cached > 500
    finally:
        hosting.close()


def test_a_deleted_chats_state_goes_with_it(tmp_path: Path, target: Path) -> None:
    hosting = reopened(tmp_path / "home", target)
    try:
        one, two = hosting.chat(), hosting.chat()
        hosting.answer(one, "Hello.")
        hosting.host.open_chat(two)
        settle(hosting)
        assert list(hosting.paths.states.glob("*.kv"))
        hosting.answer(two, "Hello.")
        hosting.host.forget_chats([one, two])
    finally:
        hosting.close()
    assert list(hosting.paths.states.glob("*.kv")) == [], "not even written again at the end"


def test_a_state_of_another_model_is_no_obstacle(tmp_path: Path, target: Path, drafts: dict[str, Path]) -> None:
    first = reopened(tmp_path / "home", target)
    chat = first.chat()
    first.answer(chat, "x" * 500)
    first.close()
    other = reopened(tmp_path / "home", drafts["poor"])
    try:
        assert read_for(other, chat, "And?").cached == 0
    finally:
        other.close()


def test_chats_in_memory_keep_no_state(tmp_path: Path, target: Path) -> None:
    """Their ids mean other chats on disk."""
    hosting = reopened(tmp_path / "home", target)
    hosting.store = hosting.store.to_memory()
    hosting.answer(hosting.chat(), "Hello.")
    hosting.close()
    assert not list(hosting.paths.states.glob("*"))


def test_a_budget_of_nothing_keeps_nothing(tmp_path: Path, target: Path) -> None:
    hosting = reopened(tmp_path / "home", target, state_budget_bytes=0)
    hosting.answer(hosting.chat(), "Hello.")
    hosting.close()
    assert not list(hosting.paths.states.glob("*"))


# ---- the folder


@pytest.fixture(scope="module")
def engine(target: Path) -> Iterator[Engine]:
    """An engine that has read something."""
    with Engine(LoadConfig(target, context=512, threads=1)) as made:
        for _ in made.generate(GenerationRequest(prompt="Hello.", max_tokens=4, sampling=SamplingParams(temperature=0.0))):
            pass
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "states"


def kept(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("*.kv"))


def disk(monkeypatch: pytest.MonkeyPatch, folder: Path, free: int) -> None:
    """A disk that had `free` bytes before there was anything in the folder."""

    def usage(_: Path) -> Usage:
        used = sum(path.stat().st_size for path in folder.glob("*.kv"))
        return Usage(10 * GIB, 10 * GIB - free + used, free - used)

    monkeypatch.setattr(shutil, "disk_usage", usage)


def age(folder: Path, chat: int, seconds: float) -> None:
    then = time.time() - seconds
    os.utime(folder / f"{chat}.kv", (then, then))


def test_over_budget_the_least_recently_used_go(engine: Engine, folder: Path) -> None:
    states = KvStates(folder, GIB)
    assert states.save(engine, 1)
    size = states.path(1).stat().st_size
    states.budget_bytes = 3 * size + 100
    for chat in (2, 3):
        states.save(engine, chat)
    for chat in (1, 2, 3):
        age(folder, chat, 1000 - chat)
    assert states.restore(engine, 1), "which is a use"
    states.save(engine, 4)
    assert kept(folder) == [1, 3, 4]


def test_one_that_is_larger_than_the_budget_takes_no_others_place(engine: Engine, folder: Path) -> None:
    states = KvStates(folder, GIB)
    states.save(engine, 1)
    (folder / "1.kv").write_bytes(b"small")
    states.budget_bytes = 100
    assert not states.save(engine, 2)
    assert kept(folder) == [1]


def test_the_disks_last_room_is_never_taken(engine: Engine, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    states = KvStates(folder, GIB)
    disk(monkeypatch, folder, 2 * GIB)
    assert states.save(engine, 1)
    size = states.path(1).stat().st_size
    disk(monkeypatch, folder, GIB + size + size // 2)
    assert states.save(engine, 2), "the first makes room for it"
    assert kept(folder) == [2]
    disk(monkeypatch, folder, GIB)
    assert not states.save(engine, 2)
    assert kept(folder) == [], "what is there is of an earlier turn"


def test_what_a_killed_process_left_is_removed_once_it_is_old(engine: Engine, folder: Path) -> None:
    folder.mkdir()
    old, new = folder / ".1.kv.abc.part", folder / ".2.kv.abc.part"
    for path in (old, new):
        path.touch()
    os.utime(old, (1, 1))
    KvStates(folder, GIB).save(engine, 1)
    assert (old.exists(), new.exists()) == (False, True)


def test_a_folder_that_cannot_be_written_is_no_error(engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    states = KvStates(tmp_path / "file" / "states", GIB)
    assert not states.save(engine, 1)
    assert not states.restore(engine, 1)
    states.forget([1])
