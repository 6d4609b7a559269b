"""What `tune` found, kept per machine and pair in one small file. Read at every load, so it imports nothing heavy unless
there is something to read.

A setting is kept only for the machine it was measured on: the same processor, cores, GPUs and llama.cpp build. The file
is replaced whole; one that cannot be read counts as empty, and the next `tune` writes it anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.atomic import write_atomically
from app.paths import Paths, writable

if TYPE_CHECKING:
    from app.local_pair import LocalPair

FORMAT = 1
MEMORY = ("batch", "flash_attention", "kv_type", "target_gpu_layers", "draft_gpu_layers")
"""Settings that decide how much memory a load takes, or where: the plan for memory may have to do without them."""
SETTINGS = ("threads", "batch_threads", *MEMORY)
"""LoadConfig fields that are tuned."""
_TOLD = {"name", "tried", "status", "gain", "ratio", "parts", "reason"}
"""Of each thing that was tried."""


@dataclass(frozen=True, slots=True)
class Tuned:
    """One pair's settings on one machine."""

    machine: Mapping[str, str]
    target: str
    """Name and size of the file."""
    draft: str
    """Of the draft it was tuned with, the usual one; '' without one."""
    settings: Mapping[str, Any]
    """LoadConfig fields."""
    better_draft: str | None = None
    """Path of another draft that was faster."""
    gains: tuple[Mapping[str, Any], ...] = field(default=())
    """What was tried, for `--show`."""
    created: str = ""

    @property
    def key(self) -> tuple[str, ...]:
        return (*(f"{name}={value}" for name, value in sorted(self.machine.items())), self.target, self.draft)


def tuned_settings(paths: Paths, pair: LocalPair, given: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """LoadConfig fields for `pair` on this machine; {} if it was not tuned here. given: the fields the user has fixed;
    what would not go with them is left out."""
    found = kept(paths, pair)
    if found is None:
        return {}
    fixed = set(given or {})
    if fixed & {"flash_attention", "kv_type"}:  # a quantised cache needs flash attention
        fixed |= {"flash_attention", "kv_type"}
    if "threads" in fixed:
        fixed.add("batch_threads")
    return {name: value for name, value in found.settings.items() if name in SETTINGS and name not in fixed}


def tuned_draft(paths: Paths, pair: LocalPair) -> Path | None:
    """The draft that was faster for this target than the pair's own, if it is still there."""
    found = kept(paths, pair)
    path = Path(found.better_draft) if found and found.better_draft else None
    return path if path and path.is_file() else None


def kept(paths: Paths, pair: LocalPair) -> Tuned | None:
    """What was found for `pair` on this machine, whether it has its usual draft or the better one that was found."""
    if not location(paths).is_file():
        return None
    entries = [entry for entry in load(paths) if entry.target == file_key(pair.target.path)]
    if not entries:
        return None
    machine, draft = this_machine(), pair.draft.path if pair.draft else None
    return next((
        entry for entry in entries
        if entry.machine == machine and (entry.draft == file_key(draft) or (draft and entry.better_draft == str(draft)))
    ), None)


def in_words(settings: Mapping[str, Any]) -> str:
    """`threads 4, flash attention off`."""
    words = {"flash_attention": {True: "flash attention on", False: "flash attention off"}}
    return ", ".join(words.get(name, {}).get(value) or f"{name.replace('_', ' ')} {value}" for name, value in settings.items())


def in_use(paths: Paths, build: str) -> tuple[str, ...]:
    """What loads with this build of llama.cpp use, one line for each pair, without asking llama.cpp."""
    entries = [entry for entry in load(paths) if entry.machine.get("build") == build]
    words = ((entry, [in_words(entry.settings)] if entry.settings else []) for entry in entries)
    lines = ((entry, [*found, *([f"draft {Path(entry.better_draft).name}"] if entry.better_draft else [])]) for entry, found in words)
    return tuple(f"{entry.target.partition(':')[0]}: {', '.join(found)}" for entry, found in lines if found)


def this_machine() -> dict[str, str]:
    """What a measured time depends on, besides the files."""
    from app.bench.manifest import cpu_name
    from engine.llama import binding

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "cpu": cpu_name(), "cores": str(cores), "devices": ", ".join(d.description for d in binding.devices()) or "none",
        "build": f"{binding.VERSION} {binding.system_info()}",
    }


def file_key(path: Path | None) -> str:
    """Name and size: what a profile of costs goes by, too."""
    return "" if path is None else f"{path.name}:{path.stat().st_size}"


def load(paths: Paths) -> list[Tuned]:
    """Everything that was tuned, on any machine that shares this folder."""
    try:
        data = json.loads(location(paths).read_text(encoding="utf-8"))
        if data["format"] != FORMAT:
            return []
        found = [Tuned(**{**entry, "gains": tuple(entry.get("gains", ()))}) for entry in data["tuned"]]
        return [entry for entry in found if _is_sound(entry)]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _is_sound(entry: Tuned) -> bool:
    """Whether its values can be loaded with: the file may have been edited."""
    kinds = {"flash_attention": bool, "kv_type": str}
    return (
        isinstance(entry.machine, dict) and isinstance(entry.settings, dict)
        and all(isinstance(text, str) for text in (entry.target, entry.draft, entry.better_draft or ""))
        and all(isinstance(tried, dict) and tried.keys() >= _TOLD for tried in entry.gains)
        and all(name in SETTINGS and type(value) is kinds.get(name, int) for name, value in entry.settings.items())
    )


def save(paths: Paths, entry: Tuned) -> None:
    """Keep `entry` in place of an older one for the same machine and pair. Raises OSError."""
    _write(paths, [old for old in load(paths) if old.key != entry.key] + [entry])


def reset(paths: Paths, pair: LocalPair | None) -> int:
    """Forget what was tuned for `pair` here, or with None everything; how many entries that were. Raises OSError."""
    entries = load(paths)
    found = kept(paths, pair) if pair else None
    mine = entries if pair is None else [entry for entry in entries if found and entry.key == found.key]
    if mine:
        _write(paths, [entry for entry in entries if entry not in mine])
    return len(mine)


def location(paths: Paths) -> Path:
    return paths.profiles.parent / "tuned.json"


def _write(paths: Paths, entries: list[Tuned]) -> None:
    writable(location(paths).parent)
    text = json.dumps({"format": FORMAT, "tuned": [asdict(entry) for entry in entries]}, indent=1)
    write_atomically(location(paths), text + "\n")
