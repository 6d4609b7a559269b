"""Chats to files and back: Markdown to read, Paceline's JSON to keep, and what ChatGPT and LM Studio export."""

from app.transfer.exporting import FORMATS, Format, export_chats, format_of, save_export, suggested_name
from app.transfer.importing import Imported, import_bytes, import_file
from app.transfer.values import TransferError

__all__ = [
    "FORMATS",
    "Format",
    "Imported",
    "TransferError",
    "export_chats",
    "format_of",
    "import_bytes",
    "import_file",
    "save_export",
    "suggested_name",
]
