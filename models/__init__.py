"""Model files: what exists, what is on disk, how to fetch it, what fits. Re-exports only.

Knows nothing about decoding, chats or widgets, and never imports engine or app.
"""

from models.catalogue import Catalogue, ModelFile, Pair, parse_hub_reference
from models.catalogue_reader import load_catalogue
from models.download import DownloadProgress, download
from models.errors import (
    AccessDenied,
    BadCatalogue,
    BadGguf,
    ChecksumMismatch,
    DiskFull,
    DownloadCancelled,
    DownloadFailed,
    HubUnreachable,
    MirrorFailed,
    ModelsError,
    NotOnHub,
    NotWritable,
    Offline,
    RateLimited,
    UnknownModel,
)
from models.gguf import GgufInfo, read_gguf
from models.inventory import Inventory, LocalModel

__all__ = [
    "AccessDenied",
    "BadCatalogue",
    "BadGguf",
    "Catalogue",
    "ChecksumMismatch",
    "DiskFull",
    "DownloadCancelled",
    "DownloadFailed",
    "DownloadProgress",
    "GgufInfo",
    "HubUnreachable",
    "Inventory",
    "LocalModel",
    "MirrorFailed",
    "ModelFile",
    "ModelsError",
    "NotOnHub",
    "NotWritable",
    "Offline",
    "Pair",
    "RateLimited",
    "UnknownModel",
    "download",
    "load_catalogue",
    "parse_hub_reference",
    "read_gguf",
]
