"""How a long job waits while staying stoppable, and tells whoever started it why it waits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from models.errors import DownloadCancelled


@dataclass(frozen=True, slots=True)
class Waiting:
    """The cancel flag and the notice line of one job."""

    cancelled: Callable[[], bool]
    notice: Callable[[str], None]

    def check(self) -> None:
        """Raise DownloadCancelled when asked to stop."""
        if self.cancelled():
            raise DownloadCancelled("the download was cancelled; what arrived is kept")

    def sleep(self, seconds: float) -> None:
        """Sleep, ending early with DownloadCancelled when asked to stop."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.check()
            time.sleep(min(left, 0.1))
