"""The model files of a load, both on this disk, and the settings it takes. A value; app/wiring.py makes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class LocalModel:
    """A file to load, and its hash where that is known."""

    path: Path
    sha256: str | None = None

    def as_json(self) -> dict[str, str]:
        return {"path": str(self.path)} | ({"sha256": self.sha256} if self.sha256 else {})


@dataclass(frozen=True, slots=True)
class LocalPair:
    """The files to load, both on disk."""

    target: LocalModel
    draft: LocalModel | None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """LoadConfig fields that memory leaves no choice about."""
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """LoadConfig fields that `paceline tune` found for this pair here, as far as the user and memory leave them open."""

    def as_json(self) -> dict[str, Any]:
        return {"target": self.target.as_json(), "draft": self.draft.as_json() if self.draft else None}
