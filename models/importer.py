"""Finds the GGUF files that other programs keep on this disk. Looks only: nothing is opened but Ollama's manifests.

Known stores: LM Studio's folder (`<publisher>/<repository>/<file>.gguf`), Ollama's (`manifests/` name `blobs/` by
hash), the Hugging Face hub's cache (`models--<owner>--<repository>/snapshots/...`, links to blobs named by hash), and
llama.cpp's. Any other folder is searched through. Of a split GGUF the first piece stands for all; image encoders
(`mmproj`) belong to a model and are none themselves. Links to folders are not followed, so loops end.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MAX_MANIFEST_BYTES = 1 << 20
_PIECE = re.compile(r"^(?P<stem>.+)-(?P<index>\d{5})-of-\d{5}$")
_SHA256 = re.compile(r"^(?:sha256-)?([0-9a-f]{64})$")
_OLLAMA_MODEL = "application/vnd.ollama.image.model"


@dataclass(frozen=True, slots=True)
class Found:
    """A file that looks like a model."""

    path: Path
    name: str
    """What it might be called: letters, digits and `._:+-` only."""
    origin: str
    """`LM Studio`, `Ollama`, `hub cache`, `llama.cpp` or `file`."""
    claimed_sha256: str | None = None
    """The hash that the store keeps it under."""


def standard_folders(environ: Mapping[str, str], home: Path) -> list[Path]:
    """The folders of the known programs that exist here."""
    cache = Path(environ.get("XDG_CACHE_HOME") or home / ".cache")
    hub_home = Path(environ.get("HF_HOME") or cache / "huggingface")
    candidates = [
        _lm_studio_home(home) / "models",
        cache / "lm-studio" / "models",
        Path(environ.get("OLLAMA_MODELS") or home / ".ollama" / "models"),
        Path("/usr/share/ollama/.ollama/models"),
        Path(environ.get("HF_HUB_CACHE") or hub_home / "hub"),
        Path(environ.get("LLAMA_CACHE") or cache / "llama.cpp"),
    ]
    return [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]


def find_models(paths: Iterable[Path]) -> list[Found]:
    """What there is under `paths`, each file once, in order of discovery. What cannot be read is passed over."""
    found: dict[Path, Found] = {}
    for path in paths:
        for candidate in _under(path) if path.is_dir() else [_file(path)]:
            with suppress(RuntimeError):  # a link that leads to itself
                found.setdefault(candidate.path.resolve(), candidate)
    return list(found.values())


def _under(folder: Path) -> Iterator[Found]:
    for directory, folders, files in os.walk(folder):
        here = Path(directory)
        if {"manifests", "blobs"} <= set(folders):
            yield from _ollama(here)
            folders[:] = [name for name in folders if name not in ("manifests", "blobs")]
        folders.sort()
        for name in sorted(files):
            stem, extension = os.path.splitext(name)
            piece = _PIECE.match(stem)
            is_first = piece is None or int(piece["index"]) == 1
            if extension.lower() == ".gguf" and is_first and "mmproj" not in name.lower():
                yield _file(here / name)


def _file(path: Path) -> Found:
    blob = _SHA256.match(path.name) or _SHA256.match(os.path.basename(os.path.realpath(path)))
    piece = _PIECE.match(path.stem)
    stem = piece["stem"] if piece else path.name[:19] if _SHA256.match(path.name) else path.stem
    return Found(path, _plain(stem), _origin(path), blob[1] if blob else None)


def _origin(path: Path) -> str:
    parts = path.absolute().parts
    if "snapshots" in parts and any(part.startswith("models--") for part in parts):
        return "hub cache"
    if "blobs" in parts and path.name.startswith("sha256-"):
        return "Ollama"
    if any(part in (".lmstudio", "lm-studio") for part in parts):
        return "LM Studio"
    return "llama.cpp" if "llama.cpp" in parts and "models" not in parts else "file"


def _ollama(store: Path) -> Iterator[Found]:
    """The weights that each manifest (`manifests/<host>/<namespace>/<model>/<tag>`) names."""
    manifests = store / "manifests"
    for path in sorted(manifests.rglob("*")):
        *_, namespace, model, tag = ("", "", "", *path.relative_to(manifests).parts)
        for layer in _layers(path):
            digest = _SHA256.match(str(layer.get("digest", "")).replace("sha256:", "", 1))
            if layer.get("mediaType") == _OLLAMA_MODEL and digest:
                owner = "" if namespace == "library" else f"{namespace}-"
                blob = store / "blobs" / f"sha256-{digest[1]}"
                if blob.is_file():
                    yield Found(blob, _plain(f"{owner}{model}:{tag}"), "Ollama", digest[1])


def _layers(manifest: Path) -> list[dict[str, Any]]:
    try:
        if not manifest.is_file() or manifest.stat().st_size > MAX_MANIFEST_BYTES:
            return []
        layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # not a manifest
    return [layer for layer in layers if isinstance(layer, dict)] if isinstance(layers, list) else []


def _lm_studio_home(home: Path) -> Path:
    """LM Studio says in a file where it lives, if that is not the usual place."""
    try:
        named = (home / ".lmstudio-home-pointer").read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        named = ""
    return Path(named) if named else home / ".lmstudio"


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9._:+-]+", "-", name).strip("-.") or "model"
