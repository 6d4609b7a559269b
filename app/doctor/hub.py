"""Whether the hub that models come from answers. One question about one small fact, and only if going online is allowed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Literal

from models import DownloadCancelled, DownloadFailed, HubUnreachable, ModelFile
from models.waiting import Waiting

SECONDS = 8.0


@dataclass(frozen=True, slots=True)
class HubState:
    """The hub's answer."""

    state: Literal["reachable", "unreachable", "refusing", "not asked"]
    detail: str = ""


def ask_hub(file: ModelFile, *, offline: bool) -> HubState:
    """Ask for the facts of a file that everybody may read. Never raises."""
    if offline:
        return HubState("not asked", "--offline")
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}:
        return HubState("not asked", "HF_HUB_OFFLINE is set")
    from models.hub import resolve  # costs a third of a second

    end = time.monotonic() + SECONDS
    try:
        resolve(file, Waiting(lambda: time.monotonic() > end, lambda _: None))
    except DownloadCancelled:
        return HubState("refusing", "it asks to come back later")
    except HubUnreachable as error:
        return HubState("unreachable", str(error))
    except DownloadFailed as error:
        return HubState("refusing", str(error))
    return HubState("reachable", os.environ.get("HF_ENDPOINT", ""))
