"""Standard output and standard error, and what goes wrong with them.

Everything the command prints passes here: answers through `write_out`, remarks through `say`. Text is stripped
of control sequences by whoever got it from a model or a file; `say` strips by itself, as messages quote both.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

from app.errors import AppError, OutputClosed
from app.sanitize import sanitize

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress, ProgressColumn, TaskID

WIDE = 160
"""Columns of a table that goes to a file or a pipe, where nothing would be gained by wrapping it."""


def prepare_streams() -> None:
    """A terminal that cannot show a character gets a `?`, not a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def person_present() -> bool:
    """True if a question can be asked and answered: both ends are a terminal."""
    return _is_terminal(sys.stdin) and _is_terminal(sys.stderr)


def stderr_is_terminal() -> bool:
    return _is_terminal(sys.stderr)


def ask_yes(question: str) -> bool:
    """Ask the person at the terminal; only where `person_present`. Return is yes."""
    import click

    return click.confirm(sanitize(question), default=True, err=True)


def say(line: str) -> None:
    """One remark on standard error. A closed standard error is no reason to stop."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"paceline: {sanitize(line)}\n")
        sys.stderr.flush()


def end_line() -> None:
    """After a Ctrl-C the terminal's `^C` stands at the start of a line; the shell's prompt belongs on the next."""
    if stderr_is_terminal():
        with suppress(OSError):
            sys.stderr.write("\n")


def write_out(text: str) -> None:
    """Write to standard output now. Raises OutputClosed or AppError (a full disk, a closed descriptor)."""
    if sys.stdout is None:
        raise AppError("standard output is closed, so there is nowhere to write the answer")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _abandon_stdout()
        raise OutputClosed from None
    except OSError as error:
        _abandon_stdout()
        raise AppError(f"cannot write to standard output: {error.strerror or error}") from None


def print_table(renderable: RenderableType) -> None:
    """A rich table or text on standard output, in colour only where that is a terminal."""
    write_out(_rendered(renderable, sys.stdout))


def say_table(renderable: RenderableType) -> None:
    """A rich table or text on standard error."""
    with suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(_rendered(renderable, sys.stderr))
        sys.stderr.flush()


class FractionBar:
    """One line on standard error while something takes time; gone afterwards, and silent where no terminal is."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._task: TaskID | None = None
        self._wanted = stderr_is_terminal()

    def __enter__(self) -> FractionBar:
        return self

    def __exit__(self, *_: object) -> None:
        self.hide()

    def show(self, what: str, fraction: float) -> None:
        """Draw or move the bar."""
        if not self._wanted:
            return
        if self._bar is None:
            from rich.progress import BarColumn, TaskProgressColumn, TextColumn

            self._bar = progress(TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
            self._task = self._bar.add_task(what, total=1.0)
            self._bar.start()
        assert self._task is not None
        self._bar.update(self._task, description=what, completed=fraction)

    def hide(self) -> None:
        """Take the bar away for good, before anything else is printed."""
        self._wanted = False
        if self._bar is not None:
            self._bar.stop()


def progress(*columns: ProgressColumn) -> Progress:
    """A rich progress display on standard error, silent where that is no terminal, gone when it ends."""
    from rich.progress import Progress

    console = _console(sys.stderr)
    return Progress(*columns, console=console, transient=True, disable=not stderr_is_terminal())


def _rendered(renderable: RenderableType, stream: object) -> str:
    """As it would look on `stream`, without the blanks that fill its lines up."""
    console = _console(stream)
    with console.capture() as capture:
        console.print(renderable)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())


def _console(stream: object) -> Console:
    """A console that reads no markup in the texts it is given: they quote models and files."""
    from rich.console import Console

    width = None if _is_terminal(stream) else WIDE
    return Console(file=stream, width=width, markup=False, emoji=False, highlight=False)  # type: ignore[arg-type]  # writes text, or is None


def _is_terminal(stream: object) -> bool:
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]  # caught below
    except (AttributeError, ValueError):  # closed, or None
        return False


def _abandon_stdout() -> None:
    """Send what is still buffered nowhere, so that the interpreter's last flush does not fail again."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
