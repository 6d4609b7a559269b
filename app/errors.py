"""What the command line can refuse by itself. Each message is one line fit for a user."""

from __future__ import annotations


class AppError(Exception):
    """The command cannot go on; the message says why and what to do."""


class OutputClosed(Exception):
    """The reader of standard output went away (`paceline ... | head`). Nothing is left to say to it."""


class Interrupted(Exception):
    """Ctrl-C was heard and what was going on has stopped in good order."""
