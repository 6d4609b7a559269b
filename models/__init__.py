"""Model files: what exists, what is on disk, how to fetch it, what fits. Re-exports only.

Knows nothing about decoding, chats or widgets, and never imports engine or app.
"""

from models.catalogue import Catalogue, ModelFile, Pair, parse_hub_reference
from models.catalogue_reader import load_catalogue
from models.download import download
from models.download_job import DownloadProgress
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
    ModelBusy,
    ModelsError,
    NotOnHub,
    NotWritable,
    Offline,
    RateLimited,
    UnknownModel,
)
from models.gguf import GgufInfo, read_gguf
from models.hardware import Device, Hardware, probe
from models.inventory import Inventory, LocalModel
from models.planner import DoesNotFit, LoadPlan, Wishes, plan_load
from models.shape import ModelShape, shape_from_facts, shape_of

__all__ = [
    "AccessDenied",
    "BadCatalogue",
    "BadGguf",
    "Catalogue",
    "ChecksumMismatch",
    "Device",
    "DiskFull",
    "DoesNotFit",
    "DownloadCancelled",
    "DownloadFailed",
    "DownloadProgress",
    "GgufInfo",
    "Hardware",
    "HubUnreachable",
    "Inventory",
    "LoadPlan",
    "LocalModel",
    "MirrorFailed",
    "ModelBusy",
    "ModelFile",
    "ModelShape",
    "ModelsError",
    "NotOnHub",
    "NotWritable",
    "Offline",
    "Pair",
    "RateLimited",
    "UnknownModel",
    "Wishes",
    "download",
    "load_catalogue",
    "parse_hub_reference",
    "plan_load",
    "probe",
    "read_gguf",
    "shape_from_facts",
    "shape_of",
]
