"""`paceline chat`, and `paceline` alone: the chat in the terminal.

Nothing of the interface is imported before it opens; without a terminal it does not.
"""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from app.errors import AppError
from app.options import LoadChoices, SectionedCommand, loading_from, loading_options
from app.terminal import say

if TYPE_CHECKING:
    from app.paths import Paths
    from app.settings import Settings
    from app.store import ChatStore


SLOW_SECONDS = 1.0


@click.command(cls=SectionedCommand)
@loading_options
def chat(**params: Any) -> int:
    """Chat in the terminal (the same as `paceline` alone)."""
    return open_chat(loading_from(params))


def open_chat(choices: LoadChoices) -> int:
    """Run the chat until the user leaves it; the exit code."""
    if not (sys.stdin is not None and sys.stdin.isatty() and sys.stdout is not None and sys.stdout.isatty()):
        raise AppError("the chat needs a terminal; to ask one question from a script: paceline ask \"...\"")

    gc.disable()  # until the app stands: what a start makes is there to stay, and looking through it costs some 50 ms

    from app.paths import Paths

    paths = Paths.find()
    settings, remarks = _settings(paths)
    store, more = _store(paths)

    from rich.console import Console

    from app.tui.app import PacelineApp, Start

    app = PacelineApp(Start(paths, settings, store, _with_settings(choices, settings), (*remarks, *more)))
    traceback = io.StringIO()
    app.error_console = Console(file=traceback, markup=False, highlight=False, width=160)
    try:
        code = app.run()
    finally:
        with _said_if_slow("keeping what the model has read, so that the chat goes on at once next time"):
            app.close()
    if traceback.getvalue():
        raise AppError(_kept(traceback.getvalue(), paths))
    return code if code is not None else app.return_code or 0


@contextmanager
def _said_if_slow(line: str) -> Iterator[None]:
    """Say the line if what is done in here takes its time."""
    timer = threading.Timer(SLOW_SECONDS, say, (line,))
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _settings(paths: Paths) -> tuple[Settings, list[str]]:
    """The user's settings. A mistake in the file is told, and is no reason not to chat."""
    from app.settings import Settings, SettingsError, load_settings

    try:
        return load_settings(paths), []
    except SettingsError as error:
        return Settings(), [f"{error}; the settings are as if the file were empty"]


def _store(paths: Paths) -> tuple[ChatStore, list[str]]:
    """The chats on disk; in memory where that cannot be."""
    from app.store import ChatStore, StoreError

    try:
        return ChatStore.open(paths.chat_store), []
    except StoreError as error:
        return ChatStore.copy_of(paths.chat_store), [f"{error}. What happens from here on is kept in memory only."]


def _with_settings(choices: LoadChoices, settings: Settings) -> LoadChoices:
    """What the command line leaves open, from the settings."""
    from dataclasses import replace

    load = settings.load
    return replace(
        choices,
        target=choices.target if choices.target is not None else load.target,
        draft=choices.draft if choices.draft is not None or choices.target is not None else load.draft,
        ctx=choices.ctx if choices.ctx is not None else load.ctx,
    )


def _kept(traceback: str, paths: Paths) -> str:
    """Keep the traceback of a fault of ours, and say where."""
    from app.paths import writable

    line = traceback.strip().splitlines()[-1]
    if not writable(paths.logs):
        return f"internal error: {line}"
    with paths.crash_log.open("a", encoding="utf-8") as file:
        file.write(f"{os.getpid()} paceline chat\n{traceback}\n")
    return f"internal error: {line} (details in {paths.crash_log})"
