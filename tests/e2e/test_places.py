"""Where the chat has to run: a full disk, a home that cannot be written, no network, no terminal, any size."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from app.settings import ChatSettings
from app.store import ChatStore
from tests.e2e.conftest import CONTEXT, ROOT, Home, Start, ready, send

ANSWERED = "the reply was cut at 60 tokens"


@contextmanager
def tmpfs(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own; skips the test where that is not allowed."""
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("file systems can be mounted by root only")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def with_a_chat(home: Home) -> None:
    store = ChatStore.open(home.paths.chat_store)
    store.add_message(store.new_chat(ChatSettings()).id, None, "user", "said before")
    store.close()


def test_a_full_disk_is_said_and_the_chat_goes_on(start: Start, make_home: Callable[[Path], Home], tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "3m") as disk:
        home = make_home(disk)
        terminal = ready(start(home, "chat", *home.model))
        send(terminal, "there is room")
        terminal.wait_for(ANSWERED)
        with (disk / "filler").open("wb", buffering=0) as filler, contextlib.suppress(OSError):  # until it is full
            while True:
                filler.write(bytes(4096))
        send(terminal, "there is none")
        terminal.wait_for("chats in memory only")
        terminal.wait_for("You there is none Reply")
        terminal.wait_for(ANSWERED)
        (disk / "filler").unlink()
        terminal.press("ctrl+q")
        assert terminal.ended() == 0
        assert home.messages()[0].text == "there is room"


def test_a_home_that_cannot_be_written(start: Start, make_home: Callable[[Path], Home], tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", "3m") as disk:
        home = make_home(disk)
        with_a_chat(home)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        terminal = start(home, "chat", *home.model)
        terminal.wait_for("in memory only")
        send(ready(terminal), "anybody home?")
        terminal.wait_for(ANSWERED)
        terminal.press("ctrl+o")
        terminal.wait_for("said before")
        terminal.press("escape", "ctrl+q")
        assert terminal.ended() == 0
        assert terminal.screen() == ""


def test_without_a_network_the_model_on_disk_is_used_at_200_by_50(start: Start, home: Home) -> None:
    settings = home.paths.config / "settings.toml"
    chosen = f'[load]\ntarget = "{home.target}"\ndraft = "{home.draft}"\nctx = {CONTEXT}\n'
    settings.write_text(settings.read_text() + chosen)
    terminal = start(home, "chat", "--threads", "1", size=(200, 50))
    terminal.wait_for("What shall we talk about?")
    terminal.wait_for(f"{CONTEXT:,} context")
    send(terminal, "all on my own")
    terminal.wait_for(ANSWERED)
    lines = terminal.screen().splitlines()
    assert len(lines) == 50
    assert any("tokens/s" in line for line in lines)


@pytest.mark.parametrize("args", [(), ("chat",)])
def test_without_a_terminal_it_is_one_line(home: Home, args: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "app", *args], cwd=ROOT, env=home.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=90, check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("paceline: the chat needs a terminal")
    assert done.stderr.count(os.linesep) == 1
