"""An error as one line for the user, and a bug of ours as a traceback in the crash log."""

from __future__ import annotations


def one_line(error: Exception) -> str:
    """What an error says, on one line."""
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return " ".join(str(error).split()) or type(error).__name__


def report_fault(error: Exception) -> str:
    """Keep the traceback for a bug report, and say in one line where it is."""
    import traceback
    from datetime import UTC, datetime

    from app import __version__
    from app.paths import Paths, writable

    summary = f"internal error: {type(error).__name__}: {one_line(error)}"
    log = Paths.find().crash_log
    if not writable(log.parent):
        return summary
    try:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{datetime.now(UTC).isoformat()} paceline {__version__}\n")
            traceback.print_exception(error, file=file)
    except OSError:  # a full disk
        return summary
    return f"{summary} (details in {log})"
