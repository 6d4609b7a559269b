"""The command line: the composition root over `engine` and `models`. Importing it costs nothing."""

__version__ = "0.1.0"
