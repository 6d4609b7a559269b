"""A load on a thread of its own, so that its owner can turn away from it at any moment. Cheap to import: what a load needs
(the catalogue, llama.cpp's devices) is imported on that thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from app.options import LoadChoices
from app.paths import Paths

if TYPE_CHECKING:
    from app.wiring import Loaded


class LoadThread:
    """Started at once; `outcome` is set when it is over."""

    def __init__(
        self, choices: LoadChoices, paths: Paths, on_stage: Callable[[str, float], None], stopped: Callable[[], bool],
        free_memory: Callable[[], None], done: Callable[[], None],
    ) -> None:
        """See loading.load. All of these are called on the new thread; `done` when there is an outcome."""
        self.outcome: tuple[Loaded, tuple[str, ...]] | Exception | None = None
        self._arguments = (choices, paths, on_stage, stopped, free_memory)
        self._done = done
        self._thread = threading.Thread(target=self._run, name="engine loader", daemon=True)
        self._thread.start()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end; True when it came."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            from app.chat.loading import load

            self.outcome = load(*self._arguments)
        except Exception as error:  # noqa: BLE001 - the owner tells them apart, on its own thread
            self.outcome = error
        self._done()
