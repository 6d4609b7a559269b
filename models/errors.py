"""The error tree of models/: one class for each decision a caller can make.

A message is one line fit for a user: what happened, then what to do about it.
"""


class ModelsError(Exception):
    """Base of everything this package raises on purpose."""


class UnknownModel(ModelsError):
    """No catalogue entry, file or hub reference goes by that name."""


class BadCatalogue(ModelsError):
    """A catalogue file does not parse or does not hold what the schema asks for."""


class BadGguf(ModelsError):
    """A file is not a GGUF that llama.cpp could be trusted with."""


class NotWritable(ModelsError):
    """The models directory cannot be created or written."""


class ModelBusy(ModelsError):
    """Another process is working on the file right now."""


class DiskFull(ModelsError):
    """There is not enough room for what was asked."""


class DownloadCancelled(ModelsError):
    """The caller's cancel flag went up; what was fetched is kept for the next try."""


class DownloadFailed(ModelsError):
    """A file could not be fetched."""


class HubUnreachable(DownloadFailed):
    """The Hugging Face hub did not answer, or answered with a fault of its own."""


class Offline(DownloadFailed):
    """The file is not on this disk and going online was ruled out."""


class AccessDenied(DownloadFailed):
    """The hub wants a token, or a licence accepted first."""


class NotOnHub(DownloadFailed):
    """The hub answers, but has no such repository, revision or file."""


class RateLimited(DownloadFailed):
    """The hub asked to wait longer than is sensible in one run."""


class MirrorFailed(DownloadFailed):
    """pip could not bring a part from the mirror, or the part is not what it should be."""


class ChecksumMismatch(DownloadFailed):
    """The bytes that arrived are not the bytes that were asked for; they were thrown away."""
