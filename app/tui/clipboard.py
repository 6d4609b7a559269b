"""Copying out of the app, on whatever terminal it runs.

A program of the desktop or tmux takes the text if there is one, and says whether it did. Otherwise the terminal is asked
by an escape sequence (OSC 52), which reaches the user's own machine through SSH but is answered by nobody; so the text
also goes into a file, and the user is told where.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from app.paths import writable

SECONDS = 2.0
"""A clipboard program that takes longer hangs."""
OSC52_MOST = 74_000
"""Bytes that common terminals take; longer sequences are dropped by some of them without a word."""


def program(environ: Mapping[str, str], which: Callable[[str], str | None] = shutil.which) -> list[str] | None:
    """The command that takes a clipboard text on standard input; None where there is none, or it would be another
    machine's than the user's."""
    if environ.get("TMUX") and which("tmux"):
        return ["tmux", "load-buffer", "-w", "-"]  # tmux hands it on to the terminal outside; OSC 52 it ignores by default
    if environ.get("SSH_CONNECTION") or environ.get("SSH_TTY"):
        return None
    if which("pbcopy"):
        return ["pbcopy"]
    if environ.get("WAYLAND_DISPLAY") and which("wl-copy"):
        return ["wl-copy"]
    if environ.get("DISPLAY"):
        if which("xclip"):
            return ["xclip", "-selection", "clipboard"]
        if which("xsel"):
            return ["xsel", "--clipboard", "--input"]
    return None


def copy(text: str, by_terminal: Callable[[str], None], folder: Path, environ: Mapping[str, str] | None = None) -> str:
    """Copy `text`; `by_terminal` sends the escape sequence, `folder` is for the file. What to tell the user, in one line.

    Blocks for as long as a clipboard program takes (SECONDS at most)."""
    environ = os.environ if environ is None else environ
    size = f"{len(text):,} characters"
    command = program(environ)
    if command is not None and _hand_to(command, text):
        return f"copied {size}"
    sent = len(text.encode("utf-8", "replace")) * 4 // 3 <= OSC52_MOST
    if sent:
        by_terminal(text)
    path = _to_file(text, folder)
    if path is None:
        return f"copied {size}, if this terminal takes it" if sent else f"{size} are too long for this terminal's clipboard"
    return f"copied {size}; also in {path}, should the terminal not take it" if sent else f"too long for the clipboard: {size} are in {path}"


def _hand_to(command: list[str], text: str) -> bool:
    try:
        done = subprocess.run(
            command, input=text.encode("utf-8", "replace"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=SECONDS, check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return done.returncode == 0


def _to_file(text: str, folder: Path) -> Path | None:
    path = folder / "copied.txt"
    try:
        if not writable(folder):
            return None
        path.write_text(text, encoding="utf-8", errors="replace")
    except OSError:
        return None
    return path
