"""What was learned about a pair on this machine, kept on disk between starts. Owns the profile's file and format.

`calibrated` and `agreement` are written once and read by seeded replies, whose text must not depend on what was learned since;
`learned` is everything as it stands at the end of a session. A file that does not parse is measured anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path

from engine.acceptance import AcceptanceModel
from engine.cost import CostModel
from engine.values import PairPlace

FORMAT = 2


@dataclass(slots=True)
class Profile:
    """A pair's costs and acceptance, and where they are kept."""

    path: Path | None
    key: dict[str, str]
    calibrated: CostModel
    costs: CostModel
    acceptance: AcceptanceModel = field(default_factory=AcceptanceModel)
    agreement: list[PairPlace] = field(default_factory=list)
    """What engine.agreement saw when the pair was measured."""

    def first_acceptance(self) -> AcceptanceModel:
        """What was known of the pair before its first reply."""
        acceptance = AcceptanceModel()
        acceptance.learn(self.agreement)
        return acceptance

    def save(self) -> None:
        """Write the file anew, by rename. A full or read-only disk costs the warm start, nothing else."""
        if self.path is None:
            return
        data = {
            "format": FORMAT, "key": self.key, "calibrated": self.calibrated.to_json(), "learned": self.costs.to_json(),
            "agreement": self.agreement, "acceptance": self.acceptance.to_json(),
        }
        partial = self.path.with_suffix(f".{os.getpid()}.part")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
                json.dump(data, file, indent=1)
            partial.replace(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()


def profile_path(directory: Path | None, key: dict[str, str]) -> Path | None:
    """One file per key; its name starts with the models' names so that a person can find it."""
    if directory is None:
        return None
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:10]
    return directory / f"{key['target'].split(':')[0][:60]}--{digest}.json"


def load_profile(directory: Path | None, key: dict[str, str]) -> Profile | None:
    """The saved profile; None when there is none or it cannot be used."""
    path = profile_path(directory, key)
    if path is None:
        return None
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT or data["key"] != key:
            return None
        profile = Profile(path, key, CostModel.from_json(data["calibrated"]), CostModel.from_json(data["learned"]))
        profile.agreement = [(float(c), float(top), float(kept)) for c, top, kept in data["agreement"]]
        profile.acceptance.load_json(data["acceptance"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return profile if profile.calibrated.target.known() and profile.costs.target.known() else None
