from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from app.paths import Paths, typed_path, writable


def test_one_variable_moves_everything(tmp_path: Path) -> None:
    paths = Paths.find({"PACELINE_HOME": str(tmp_path)})
    assert all(tmp_path in path.parents for path in (paths.models, paths.profiles, paths.logs, paths.config, paths.chats, paths.states))


def test_models_can_live_on_another_disk(tmp_path: Path) -> None:
    paths = Paths.find({"PACELINE_HOME": str(tmp_path / "home"), "PACELINE_MODELS": str(tmp_path / "big")})
    assert paths.models == tmp_path / "big"
    assert tmp_path / "home" in paths.profiles.parents


def test_new_directories_are_private(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        assert writable(tmp_path / "a" / "b")
    finally:
        os.umask(old)
    assert {stat.S_IMODE((tmp_path / part).stat().st_mode) for part in ("a", "a/b")} == {0o700}


def test_a_place_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not writable(tmp_path / "file" / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_directory_is_not_writable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert not writable(tmp_path)


@pytest.mark.parametrize(
    ("typed", "path"),
    [
        (" a b.md ", "a b.md"), ('"with space/a b.md"', "with space/a b.md"), ("'x'", "x"), ("~nobody-of-that-name/x", "~nobody-of-that-name/x"),
        ('"', '"'), ("", "."), ("x\x00", "x\x00"),
    ],
)
def test_a_path_is_taken_as_it_was_typed_and_nothing_is_raised(typed: str, path: str) -> None:
    assert str(typed_path(typed)) == path


def test_the_home_of_the_user_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert typed_path("~/x y") == Path("/home/me/x y")
    assert typed_path('"~/x y"') == Path("/home/me/x y")
