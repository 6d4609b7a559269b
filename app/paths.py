"""Where Paceline keeps its files. The only module that knows a directory.

`PACELINE_HOME` moves everything under one folder (tests, portable installs); `PACELINE_MODELS` moves the model
files alone (a bigger disk). Otherwise the platform's own places are used. What Paceline writes is private to the
user: `main` sets the umask, and directories are made 0700.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs


def typed_path(text: str) -> Path:
    """The path that a person typed: with `~`, and in quotes if they liked. Whether anything is there is not looked at, and
    nothing is raised (as Path.expanduser does for a user that is not there)."""
    text = text.strip()
    if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'":
        text = text[1:-1]
    return Path(os.path.expanduser(text))


def is_device(path: Path) -> bool:
    """Whether it is one, such as /dev/zero, which has no end that it could be read to. Raises OSError."""
    return path.is_char_device() or path.is_block_device()


@dataclass(frozen=True, slots=True)
class Paths:
    """The directories. None of them needs to exist yet; see `writable`."""

    models: Path
    """GGUF files."""
    profiles: Path
    """What decoding costs on this machine, one file per model pair."""
    logs: Path
    config: Path
    """The user's own catalogue entries."""
    chats: Path
    """The chats' database and its backups."""
    states: Path
    """What models have read of saved chats: large files, good for speed only."""

    @classmethod
    def find(cls, environ: Mapping[str, str] | None = None) -> Paths:
        """The directories as the environment has them now."""
        environ = os.environ if environ is None else environ
        if home := environ.get("PACELINE_HOME"):
            root = typed_path(home)
            data, state, config = root, root, root / "config"
        else:
            data = platformdirs.user_data_path("paceline", appauthor=False)
            state = platformdirs.user_state_path("paceline", appauthor=False)
            config = platformdirs.user_config_path("paceline", appauthor=False)
        chosen = environ.get("PACELINE_MODELS")
        models = typed_path(chosen) if chosen else data / "models"
        return cls(
            models=models, profiles=state / "profiles", logs=state / "logs", config=config, chats=data / "chats",
            states=state / "states",
        )

    @property
    def chat_store(self) -> Path:
        """The database that holds every chat."""
        return self.chats / "chats.db"

    @property
    def engine_log(self) -> Path:
        """llama.cpp's own log lines."""
        return self.logs / "engine.log"

    @property
    def crash_log(self) -> Path:
        """Tracebacks of faults in Paceline itself."""
        return self.logs / "crash.log"


def writable(directory: Path) -> bool:
    """True if `directory` exists or could be made, and takes files. Never raises: a read-only home is no fault."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError:
        return False
    return os.access(directory, os.W_OK | os.X_OK)
