"""The shadow: a share of the replies of `ask` and the chat is checked once more when there is time for it.

`Engine.shadow_check` does it, which takes about as long as reading the text as a prompt; `keep` adds a line of figures
(no text) to a log and says in one line what the user should hear. Each drawn reply's evidence is also added up over all
checked replies of a target: see `engine.evidence.detector`.
"""

from __future__ import annotations

import json
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.paths import Paths, writable
from engine.shadow_result import ShadowResult

if TYPE_CHECKING:
    from engine import GenerationRequest

ALARM = 10_000.0
"""The detector's value that counts as a drift: if nothing is wrong, it comes once in this many checked replies."""
_LOOK_BACK = 500
"""Lines at the log's end that are searched for the detector's last value."""
LOG_LIMIT_BYTES = 4 << 20


def due(rate: float) -> bool:
    """Whether this reply is one of the share to check."""
    return rate > 0 and random.random() < rate


def keep(paths: Paths, models: Mapping[str, Any], request: GenerationRequest, result: ShadowResult) -> str | None:
    """Log the result; the line to tell the user where something drifts, else None. A log that cannot be written is done
    without. models: as LocalPair.as_json gives them."""
    if result.verdict == "not checked":
        return None
    target = Path(models["target"]["path"]).name
    value = _last_detector(log_file(paths), target)
    if result.e_value is not None:
        from engine.evidence import detector

        value = detector(value, result.e_value)
    alarm = value >= ALARM
    draft = models.get("draft")
    line = {
        "time": datetime.now(UTC).isoformat(timespec="seconds"), "target": target,
        "draft": Path(draft["path"]).name if draft else None, "mode": request.mode,
        "temperature": request.sampling.temperature, **asdict(result), "detector": 0.0 if alarm else value,
    }
    _append(log_file(paths), json.dumps(line))
    if result.verdict == "drift":
        return f"{in_words(result)}; `paceline verify` looks closer ({log_file(paths)} has the figures)"
    if alarm:
        return (
            "shadow: the last checked replies together do not look drawn from the target's distribution; `paceline verify` "
            f"looks closer ({log_file(paths)} has the figures)"
        )
    return None


def in_words(result: ShadowResult) -> str:
    """The result in one line."""
    if result.verdict == "not checked":
        return f"shadow: not checked: {result.reason}"
    read = f"shadow: {result.tokens} tokens read again under the target"
    if result.e_value is not None:
        if result.forbidden:
            return f"{read}: DRIFT, a token has no probability there"
        if result.verdict == "drift":
            return f"{read}: DRIFT, they do not look drawn from its distribution (odds {result.e_value:.0f} to 1)"
        return f"{read}: in line with its distribution"
    if result.verdict == "exact":
        return f"{read}: each is its first choice"
    places = f"{result.departures} place{'s' if result.departures != 1 else ''}"
    if result.verdict == "near ties":
        return f"{read}: its first choices but for {places}, near ties (at most {result.largest_gap:.2f} nats; bound {result.bound:.2f})"
    return f"{read}: DRIFT, {places} differ from its first choice by up to {result.largest_gap:.2f} nats (bound {result.bound or 0:.2f})"


def log_file(paths: Paths) -> Path:
    """JSON lines, one for each checked reply."""
    return paths.logs / "shadow.jsonl"


def _last_detector(path: Path, target: str) -> float:
    try:
        with path.open(encoding="utf-8") as file:
            lines = deque(file, maxlen=_LOOK_BACK)
    except (OSError, UnicodeDecodeError):
        return 0.0
    for line in reversed(lines):
        try:
            entry = json.loads(line)
            if entry["target"] == target:
                return float(entry["detector"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0.0


def _append(path: Path, line: str) -> None:
    if not writable(path.parent):
        return
    try:
        fresh = path.exists() and path.stat().st_size > LOG_LIMIT_BYTES
        with path.open("w" if fresh else "a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        path.chmod(0o600)
    except OSError:
        return
