"""`paceline` as a user starts it, in a pseudo-terminal, on tiny real models and a home of its own."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from app.chat.conversation import Message
from app.paths import Paths
from app.store import ChatStore
from tests import tiny_models
from tests.e2e.terminal import Terminal

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = 8192
"""Tokens. A reply of the preset Long goes on for many seconds."""
SETTINGS = 'auto_title = false\n[chat]\ntemperature = 0.0\nmax_tokens = 60\n'
PRESETS = '[[presets]]\nname = "Long"\ntemperature = 0.0\nmax_tokens = 100000\n'


@dataclass(frozen=True)
class Home:
    """Where one user keeps everything, and how that user starts Paceline."""

    path: Path
    target: Path
    draft: Path

    @property
    def model(self) -> tuple[str, ...]:
        """Arguments that load the tiny pair."""
        return ("--target", str(self.target), "--draft", str(self.draft), "--ctx", str(CONTEXT), "--threads", "1")

    @property
    def paths(self) -> Paths:
        return Paths.find({"PACELINE_HOME": str(self.path)})

    @property
    def environ(self) -> dict[str, str]:
        mine = {"TERM": "xterm-256color", "PACELINE_HOME": str(self.path), "HF_ENDPOINT": "http://127.0.0.1:9"}
        return {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "PACELINE_MODELS", "TMUX")} | mine

    def messages(self) -> list[Message]:
        """What is stored of the last chat used, in a fresh look at the file."""
        store = ChatStore.open(self.paths.chat_store)
        try:
            return store.path(store.chats()[0].id)
        finally:
            store.close()


Start = Callable[..., Terminal]


@contextmanager
def terminals() -> Iterator[Start]:
    """`start(home, *args, size=..., before=...)`; ends what still runs. `before` is Python to run first in that process."""
    started: list[Terminal] = []

    def start(home: Home, *args: str, size: tuple[int, int] = (80, 24), before: str = "") -> Terminal:
        run = f"{before}\nimport sys\nfrom app.cli import main\nsys.exit(main({list(args)!r}))"
        command = [sys.executable, *(["-c", run] if before else ["-m", "app", *args])]
        started.append(Terminal(*size, command, home.environ, ROOT))
        return started[-1]

    try:
        yield start
    finally:
        for terminal in started:
            terminal.close()


@pytest.fixture
def start() -> Iterator[Start]:
    with terminals() as start:
        yield start


@pytest.fixture(scope="session")
def make_home(models_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], Home]:
    """A home in that folder. What decoding costs is measured once and shared."""
    target = tiny_models.tiny_target(models_dir, "pty", context=CONTEXT)
    draft, profiles = tiny_models.noisy_copy(target, 0.05), tmp_path_factory.mktemp("profiles")

    def make(folder: Path) -> Home:
        home = Home(folder / "home", target, draft)
        home.paths.config.mkdir(parents=True)
        (home.paths.config / "settings.toml").write_text(SETTINGS)
        (home.paths.config / "presets.toml").write_text(PRESETS)
        home.paths.profiles.symlink_to(profiles, target_is_directory=True)
        return home

    return make


@pytest.fixture
def home(make_home: Callable[[Path], Home], tmp_path: Path) -> Home:
    return make_home(tmp_path)


def ready(terminal: Terminal) -> Terminal:
    """Wait until the model is loaded."""
    terminal.wait_for(f"{CONTEXT:,} context")
    return terminal


def send(terminal: Terminal, text: str) -> None:
    """Type a message, see it in the prompt, and send it."""
    terminal.type(text)
    terminal.wait_for(text)
    terminal.press("enter")


def ask_long(terminal: Terminal, text: str) -> None:
    """In a new chat, ask for a reply that does not end by itself, and wait until some of it has streamed."""
    terminal.press("ctrl+n")
    terminal.wait_for("What shall we talk about?")
    send(terminal, "/preset Long")
    terminal.wait_for("Ask something")
    send(terminal, text)
    terminal.wait_for("Esc stop")
    terminal.wait(lambda: len(reply_on(terminal)) > 40, "the reply to stream")


def reply_on(terminal: Terminal) -> str:
    """What is seen of the last reply: the lines between its heading, where that is in sight, and the prompt, without the
    remarks that pop up at their right."""
    lines = [line.partition("▌")[0].rstrip() for line in terminal.screen().partition("\n╭")[0].splitlines()]
    starts = [at for at, line in enumerate(lines) if line.strip().startswith("Reply")]
    return "\n".join(lines[starts[-1] + 1 if starts else 1 :]).strip()


def ends_alike(stored: str, seen: str) -> bool:
    """Whether what is seen of a reply goes to the stored one's end. Markdown hides marks, and lines are wrapped: letters
    and digits count, and of the seen text only what is above the line with its numbers."""
    letters = [re.sub(r"[^A-Za-z0-9]", "", text) for text in (stored, seen.rpartition("■")[0])]
    return len(letters[0]) >= 8 and letters[1].endswith(letters[0][-8:])
