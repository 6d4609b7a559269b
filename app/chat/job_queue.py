"""The jobs that wait for the engine host's thread, and the one it does. Any thread may put or stop; one thread takes.

Knows nothing of engines. A second reading and a title wait until there is nothing else to do, in this order; when closing, only replies (which then end at
once, so that the store hears of it) and the removal of files are still handed out.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from app.chat.jobs import ReplyJob, TitleJob
from app.options import LoadChoices

if TYPE_CHECKING:
    from engine import Finished, GenerationRequest


@dataclass(frozen=True, slots=True)
class CountJob:
    """Tokens of a text."""

    text: str
    tag: object


@dataclass(frozen=True, slots=True)
class OpenJob:
    """The user is in this chat now."""

    chat_id: int | None


@dataclass(frozen=True, slots=True)
class ForgetJob:
    """These chats are deleted."""

    chat_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ShadowJob:
    """A reply to be read again; see app/chat/shadow.py."""

    message_id: int
    request: GenerationRequest
    finished: Finished


Work = LoadChoices | ReplyJob | TitleJob | CountJob | OpenJob | ForgetJob | ShadowJob
IDLE_WORK = (ShadowJob, TitleJob)
"""What is done when there is nothing else to do, second readings first, and given up for whatever the user asks for."""
STOPPABLE = (LoadChoices, ReplyJob, *IDLE_WORK)


@dataclass(eq=False, slots=True)
class Task:
    """A job, and whether the user still wants it."""

    work: Work
    stopped: threading.Event = field(default_factory=threading.Event)


class JobQueue:
    """First come, first served, but for idle work."""

    def __init__(self, on_stop: Callable[[Task], None]) -> None:
        """`on_stop` is called, by whoever stops it, for the job that is being done."""
        self._on_stop = on_stop
        self._changed = threading.Condition()
        self._waiting: deque[Task] = deque()
        self._current: Task | None = None
        self._closing = False

    def put(self, work: Work, *, stopping: tuple[type, ...] = (), replacing: tuple[type, ...] = ()) -> None:
        """Add a job; jobs of the kinds `stopping` are stopped, those of the kinds `replacing` that still wait leave."""
        with self._changed:
            self.stop(*stopping)
            self._waiting = deque(task for task in self._waiting if not isinstance(task.work, replacing))
            self._waiting.append(Task(work))
            self._changed.notify_all()

    def stop(self, *kinds: type) -> None:
        """Raise the flags of all jobs of these kinds. Those that wait are still handed out, to be ended in good order."""
        with self._changed:
            for task in self._waiting:
                if isinstance(task.work, kinds):
                    task.stopped.set()
            current = self._current
            if current is not None and isinstance(current.work, kinds) and not current.stopped.is_set():
                current.stopped.set()
                self._on_stop(current)
            self._changed.notify_all()

    def close(self) -> None:
        """Stop everything; `take` soon says None."""
        with self._changed:
            self._closing = True
            self.stop(*STOPPABLE)

    def take(self, seconds: float) -> Task | None:
        """The next job, waiting for one no longer than that; None if none came. The one before is done."""
        with self._changed:
            self._current = None
            if not self._next():
                self._changed.wait(0 if self._closing else seconds)
            if task := self._next():
                self._waiting.remove(task)
                self._current = task
            return task

    def take_count(self) -> CountJob | None:
        """A count that waits, for the middle of another job."""
        with self._changed:
            for task in self._waiting:
                if isinstance(task.work, CountJob):
                    self._waiting.remove(task)
                    return task.work
            return None

    def waits_for(self, kind: type) -> bool:
        """Whether a job of this kind waits that nobody has stopped."""
        with self._changed:
            return any(isinstance(task.work, kind) and not task.stopped.is_set() for task in self._waiting)

    def is_current(self, task: Task) -> bool:
        return self._current is task

    @property
    def done(self) -> bool:
        """Closing, and nothing is left to hand out."""
        with self._changed:
            return self._closing and self._next() is None

    def wake(self) -> None:
        """Let `wait_until` look again."""
        with self._changed:
            self._changed.notify_all()

    def wait_until(self, met: Callable[[], bool]) -> None:
        """Wait for something that whoever brings it about follows by `wake` or `stop`."""
        with self._changed:
            self._changed.wait_for(met)

    def _next(self) -> Task | None:
        wanted = [task for task in self._waiting if not self._closing or isinstance(task.work, ReplyJob | ForgetJob)]
        return min(wanted, key=lambda task: isinstance(task.work, IDLE_WORK) + isinstance(task.work, TitleJob), default=None)
