"""The container of saved states: what was written comes back, or nothing does."""

from __future__ import annotations

import os
import random
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.errors import StateNotSaved
from engine.state_file import Bytes, Facts, open_state, write_state

FACTS = {"format": 1, "names": ["a", "ü"]}
BLOCKS: list[tuple[Facts, Bytes]] = [({"role": "first", "n": 3}, bytes(range(256)) * 4), ({"role": "second"}, b"")]


def contents(path: Path) -> tuple[Facts, list[bytes | None]] | None:
    """All that the file gives: its facts, and each block or None."""
    with open_state(path) as file:
        if file is None:
            return None
        found = [file.find(str(facts["role"])) for facts, _ in BLOCKS]
        blocks = [None if block is None else file.read(block) for block in found]
        return file.facts, [None if block is None else bytes(block) for block in blocks]


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "state"
    assert write_state(path, FACTS, BLOCKS) == path.stat().st_size
    assert contents(path) == (FACTS, [content for _, content in BLOCKS])
    assert path.stat().st_mode & 0o077 == 0
    with open_state(path) as file:
        assert file is not None
        assert file.find("first") is not None
        assert file.find("third") is None


def test_a_file_that_is_cut_anywhere_is_none(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_state(path, FACTS, BLOCKS)
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert contents(path) is None


def test_no_changed_byte_gets_through(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_state(path, FACTS, BLOCKS)
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x20]) + whole[place + 1 :])
        found = contents(path)
        assert found in (None, (FACTS, [None, b""])), f"byte {place}"


def test_what_is_no_state_is_none(tmp_path: Path) -> None:
    path = tmp_path / "state"
    assert contents(path) is None
    assert contents(tmp_path) is None
    for content in (b"", b"PACEKV01", b"PACEKV01" * 20, random.Random(0).randbytes(5000)):
        path.write_bytes(content)
        assert contents(path) is None


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="needs a limit on file sizes")
def test_a_write_that_fails_half_way_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "state"
    write_state(path, FACTS, BLOCKS)
    before = path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, limits[1]))
    try:
        with pytest.raises(StateNotSaved, match="state: File too large"):
            write_state(path, FACTS, [({"role": "first"}, bytes(2 << 20))])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["state"]


def test_an_error_while_the_blocks_are_made_leaves_nothing(tmp_path: Path) -> None:
    def blocks() -> Iterator[tuple[Facts, Bytes]]:
        yield BLOCKS[0]
        raise StateNotSaved("no memory")

    with pytest.raises(StateNotSaved, match="no memory"):
        write_state(tmp_path / "state", FACTS, blocks())
    assert os.listdir(tmp_path) == []


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StateNotSaved, match=r"cannot be kept in .*: (Not a directory|File exists)"):
        write_state(tmp_path / "file" / "state", FACTS, BLOCKS)
