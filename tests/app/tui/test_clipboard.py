"""Copying: by a program where there is one, else by the terminal with a file to fall back on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from app.tui.clipboard import OSC52_MOST, copy, program

SSH = {"SSH_CONNECTION": "1.2.3.4 5 6.7.8.9 22"}


def found(*names: str) -> object:
    return lambda name: f"/usr/bin/{name}" if name in names else None


@pytest.mark.parametrize(
    ("environ", "there", "command"),
    [
        ({"TMUX": "/tmp/x,1,0"}, ["tmux", "xclip"], "tmux"),
        ({"TMUX": "/tmp/x,1,0", **SSH}, ["tmux"], "tmux"),
        (SSH | {"DISPLAY": ":0"}, ["xclip", "pbcopy"], None),
        ({}, ["pbcopy"], "pbcopy"),
        ({"WAYLAND_DISPLAY": "wayland-0", "DISPLAY": ":0"}, ["wl-copy", "xclip"], "wl-copy"),
        ({"DISPLAY": ":0"}, ["xsel"], "xsel"),
        ({}, ["xclip", "wl-copy"], None),
    ],
)
def test_the_program_of_the_users_own_machine(environ: dict[str, str], there: list[str], command: str | None) -> None:
    chosen = program(environ, found(*there))  # type: ignore[arg-type]
    assert (chosen and chosen[0]) == command


def test_a_program_gets_the_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "pbcopy"
    tool.write_text(f"#!/bin/sh\ncat > {tmp_path}/got\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    sent: list[str] = []
    assert copy("héllo", sent.append, tmp_path / "data", {}) == "copied 5 characters"
    assert (tmp_path / "got").read_text() == "héllo"
    assert sent == []


def test_without_one_the_terminal_is_asked_and_a_file_written(tmp_path: Path) -> None:
    sent: list[str] = []
    told = copy("text", sent.append, tmp_path, SSH)
    assert sent == ["text"]
    assert str(tmp_path / "copied.txt") in told
    assert (tmp_path / "copied.txt").read_text() == "text"


def test_what_is_too_long_for_a_terminal_goes_into_the_file_alone(tmp_path: Path) -> None:
    sent: list[str] = []
    text = "x" * OSC52_MOST
    assert "too long" in copy(text, sent.append, tmp_path, SSH)
    assert sent == []
    assert (tmp_path / "copied.txt").read_text() == text


def test_a_folder_that_takes_nothing_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "if this terminal takes it" in copy("text", lambda _: None, tmp_path / "file" / "x", SSH)
