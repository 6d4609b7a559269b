from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.atomic import check_output, write_atomically
from app.errors import AppError


def test_the_file_is_replaced_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")
    write_atomically(path, "new")
    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_failure_keeps_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "result.json"
    path.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device.*result\.json"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["result.json"]


def test_a_link_is_followed_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "real").read_text() == "new"
    assert (tmp_path / "link").is_symlink()


def test_what_cannot_be_replaced_is_refused_before_the_work(tmp_path: Path) -> None:
    loop, pipe = tmp_path / "loop.json", tmp_path / "pipe.json"
    loop.symlink_to(loop)
    os.mkfifo(pipe)
    for path, reason in ((loop, "leads to itself"), (pipe, "not a file"), (tmp_path / "none" / "a.json", "cannot write to")):
        with pytest.raises(AppError, match=reason):
            check_output(path, overwrite=True)
