"""The chat's engine: one thread that owns the engine's process and does one job after another.

Any thread may ask; nothing here blocks but `close`. What happens is told by `emit`, on this thread; only the progress of
a load comes from the load's own. A crash, a hang or an out-of-memory kill of the process ends a job and is told as
EngineLost; the thread goes on, and `load` starts a new process. A load waits for the old process to end, so that its
memory is free, and runs on a thread of its own because nothing can interrupt some of its steps: one that is stopped is
left behind, and joined before the next job; what an engine does while it loads is ended at once.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from app.chat.events import (
    EngineLost,
    HostEvent,
    HostNotice,
    ModelFailed,
    ModelLoading,
    ModelMissing,
    ModelReady,
    TitleMade,
    TokensCounted,
)
from app.chat.job_queue import IDLE_WORK, STOPPABLE, CountJob, ForgetJob, JobQueue, OpenJob, ShadowJob, Task
from app.chat.jobs import ReplyJob, TitleJob
from app.chat.kv_states import KvStates
from app.chat.load_thread import LoadThread
from app.faults import one_line, report_fault
from app.options import LoadChoices
from app.paths import Paths

if TYPE_CHECKING:
    import psutil

    from app.chat.reply_writer import Desk
    from app.store import ChatStore
    from app.wiring import Loaded
    from engine import EngineProcess

__all__ = ["EngineHost", "HostState", "ReplyJob", "TitleJob"]

HostState = Literal["empty", "loading", "ready", "replying", "lost"]

IDLE_SECONDS = 1.0
"""How soon the death of an idle process is noticed."""
UNHEARD_SECONDS = 20.0
"""A process that has not heard a cancel after this long hangs and is killed. A batch of a prompt on a GPU, which cannot
be interrupted, takes less."""
MEMORY_SECONDS = 1.0
LEAVE_SECONDS = 2.0
CLOSE_SECONDS = 20.0
STATE_BUDGET_BYTES = 2 << 30


class EngineHost:
    """See the module. Loads nothing until asked."""

    def __init__(
        self, emit: Callable[[HostEvent], None], store: Callable[[], ChatStore], paths: Paths,
        *, state_budget_bytes: int = STATE_BUDGET_BYTES,
    ) -> None:
        """`store` is asked for the store at every write, as it may be swapped. `emit` must not raise."""
        self.shadow_rate = 0.0
        """Share of the replies, in [0, 1], that is read again under the target alone when there is time for it. May be set
        at any time."""
        self._emit = emit
        self._store = store
        self._paths = paths
        self._states = KvStates(paths.states, state_budget_bytes)
        self._jobs = JobQueue(self._stop_current)
        self._state: HostState = "empty"
        self._process: EngineProcess | None = None
        self._models: Mapping[str, Any] = {}
        """As LocalPair.as_json gives them."""
        self._unchecked: ShadowJob | None = None
        """The last reply, if it is to be read again and nothing was written since."""
        self._watched: psutil.Process | None = None
        self._memory: tuple[float, int | None] = (0.0, None)
        self._loading: LoadThread | None = None
        self._chat: int | None = None
        """Whose turns the engine's caches hold."""
        self._unsaved = False
        self._thread = threading.Thread(target=self._run, name="engine host", daemon=True)
        self._thread.start()

    # ---- from any thread

    @property
    def state(self) -> HostState:
        return self._state

    def load(self, choices: LoadChoices) -> None:
        """Load a pair in the place of the one that is loaded. Stops whatever goes on. Ends with ModelReady, ModelMissing
        or ModelFailed."""
        self._state = "loading"
        self._jobs.put(choices, stopping=STOPPABLE)

    def reply(self, job: ReplyJob) -> None:
        """Make a reply, after those that were asked for before; idle work is given up. Ends with ReplyEnded."""
        self._jobs.put(job, stopping=IDLE_WORK)

    def title(self, job: TitleJob) -> None:
        """Make a title when there is nothing else to do. Ends with TitleMade, or with nothing."""
        self._jobs.put(job, replacing=(TitleJob,))

    def open_chat(self, chat_id: int | None) -> None:
        """The user is in this chat now: keep what was read of the one before, and get back what was read of this one.
        A reply does the same before it starts; this is to have it done by then."""
        self._jobs.put(OpenJob(chat_id), stopping=IDLE_WORK, replacing=(OpenJob,))

    def forget_chats(self, chat_ids: Iterable[int]) -> None:
        """These chats are deleted: so is what is kept of them beside the store."""
        self._jobs.put(ForgetJob(tuple(chat_ids)))

    def count_tokens(self, text: str, tag: object) -> None:
        """Ends with TokensCounted, while a reply goes on too."""
        self._jobs.put(CountJob(text, tag))

    def cancel(self) -> None:
        """Stop the reply, the load or the idle work that goes on, and those that wait. What there is of a reply is kept."""
        self._jobs.stop(*STOPPABLE)

    def cancel_reply(self) -> None:
        """The same, but a load goes on."""
        self._jobs.stop(*(kind for kind in STOPPABLE if kind is not LoadChoices))

    def keep_states_within(self, budget_bytes: int) -> None:
        """Most disk to use for what was read of chats, from now on."""
        self._states.budget_bytes = budget_bytes

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Stop what goes on, keep what was read of the chat, and end the process. Safe to call twice."""
        self._jobs.close()
        self._thread.join(timeout)

    def _stop_current(self, task: Task) -> None:
        """The engine's own flag is shared memory: the user's thread raises it, and waits for nothing."""
        if self._process is None or isinstance(task.work, LoadChoices):
            return
        self._process.cancel()
        watchdog = threading.Timer(UNHEARD_SECONDS, self._kill_unheard, (task, self._watched))
        watchdog.daemon = True
        watchdog.start()

    def _kill_unheard(self, task: Task, process: psutil.Process | None) -> None:
        import psutil

        if process is not None and self._jobs.is_current(task):
            with contextlib.suppress(psutil.Error):
                process.kill()

    # ---- the thread

    def _run(self) -> None:
        while not self._jobs.done:
            if task := self._jobs.take(IDLE_SECONDS):
                self._work(task)
            elif self._process is not None and not self._process.alive:
                self._work(Task(CountJob("", None)))  # the answer is how it died
        if self._loading is None or self._loading.join(LEAVE_SECONDS):  # else the process is still the loader's
            self._settle()
            self._end_process()

    def _work(self, task: Task) -> None:
        from engine import EngineDied

        try:
            self._settle()
            match task.work:
                case LoadChoices():
                    self._load(task, task.work)
                case ReplyJob():
                    self._reply(task, task.work)
                case ShadowJob():
                    self._check(task, task.work)
                case TitleJob():
                    self._title(task, task.work)
                case CountJob():
                    self._count(task.work)
                case OpenJob(chat_id):
                    self._enter_chat(chat_id)
                case ForgetJob(chat_ids):
                    if self._chat in chat_ids:
                        self._chat, self._unsaved = None, False
                    self._states.forget(chat_ids)
        except EngineDied as error:
            self._lose("the engine did not stop when it was asked to, so it was ended; load the model again"
                       if task.stopped.is_set() else str(error), task)
        except Exception as error:  # noqa: BLE001 - a bug must not end the thread that everything waits for
            self._settle_state()
            self._emit(HostNotice(None, report_fault(error)))

    def _settle_state(self) -> None:
        """The state when nothing goes on: a load that waits counts as begun."""
        if self._jobs.waits_for(LoadChoices):
            self._state = "loading"
        else:
            self._state = "ready" if self._process is not None else "empty"

    def _lose(self, text: str, task: Task) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.close()
        self._chat, self._unsaved, self._unchecked = None, False, None
        self._state = "lost"
        self._emit(EngineLost(text, task.work.message_id if isinstance(task.work, ReplyJob) else None))

    def _count(self, job: CountJob) -> None:
        count = self._process.count_tokens(job.text) if self._process is not None else None
        if job.tag is not None:
            self._emit(TokensCounted(job.tag, count))

    def _between(self) -> None:
        """Answer what can be answered in the middle of a reply."""
        while job := self._jobs.take_count():
            self._count(job)

    # ---- loading

    def _load(self, task: Task, choices: LoadChoices) -> None:
        def show(stage: str, fraction: float) -> None:
            if not task.stopped.is_set():
                self._emit(ModelLoading(stage, fraction))

        self._state = "loading"
        show("looking for the model", 0.0)
        self._loading = loading = LoadThread(
            choices, self._paths, show, task.stopped.is_set, self._end_process, self._jobs.wake
        )
        self._jobs.wait_until(lambda: loading.outcome is not None or task.stopped.is_set())
        if task.stopped.is_set():
            self._state = "loading" if self._jobs.waits_for(LoadChoices) else "empty"  # whatever the loader still holds
            self._emit(ModelFailed("loading was stopped", cancelled=True))
            return
        self._loading = None
        if isinstance(loading.outcome, Exception):
            self._explain(loading.outcome)
        elif loading.outcome is not None:
            self._take(*loading.outcome)

    def _settle(self) -> None:
        """A load that was stopped is over before anything else is done; what it had made by then goes."""
        if self._loading is None:
            return
        self._loading.join()
        outcome, self._loading = self._loading.outcome, None
        self._end_process()
        if outcome is not None and not isinstance(outcome, Exception):
            outcome[0].process.close()

    def _take(self, loaded: Loaded, remarks: tuple[str, ...]) -> None:
        import psutil

        process, pair = loaded.process, loaded.pair
        self._process, self._models = process, pair.as_json()
        with contextlib.suppress(psutil.Error):
            self._watched = psutil.Process(process.pid)
        self._settle_state()
        about = process.describe()
        draft = pair.draft.path.stem if pair.draft and about["draft"] else None
        self._emit(ModelReady(
            pair.target.path.stem, draft, process.context, (*remarks, *process.notices), process.load_seconds,
            ", ".join(about["devices"]) or "CPU",
        ))

    def _explain(self, error: Exception) -> None:
        """Why a load came to nothing."""
        from app.chat.loading import missing_bytes
        from app.errors import AppError
        from app.wiring import FilesMissing
        from engine import EngineError

        self._settle_state()
        if isinstance(error, FilesMissing):
            self._emit(ModelMissing(tuple(file.title or file.name for file in error.files), missing_bytes(error)))
        elif isinstance(error, AppError | EngineError | OSError | MemoryError):
            self._emit(ModelFailed(one_line(error)))
        else:
            self._emit(ModelFailed(report_fault(error)))

    def _end_process(self) -> None:
        """Keep what was read, and free all memory."""
        self._leave_chat()
        process, self._process = self._process, None
        if process is not None:
            process.close()

    # ---- replies

    def _reply(self, task: Task, job: ReplyJob) -> None:
        from app.chat.reply_job import refuse_reply, run_reply
        from app.verify.shadow import due
        from engine import EngineDied

        self._unchecked = None
        desk = self._desk(task)
        if task.stopped.is_set():
            refuse_reply(job, desk, None)
            return
        if self._process is None:
            refuse_reply(job, desk, "no model is loaded")
            return
        self._state = "replying"
        try:
            self._enter_chat(job.chat_id)
        except EngineDied as error:
            refuse_reply(job, desk, str(error))
            raise
        self._unsaved = True
        made = run_reply(self._process, job, desk)
        self._settle_state()
        if made is not None and due(self.shadow_rate):
            self._unchecked = made
            self._jobs.put(made)

    def _check(self, task: Task, job: ShadowJob) -> None:
        from app.chat.shadow import check_reply

        if self._process is not None and job is self._unchecked and not task.stopped.is_set():
            check_reply(self._process, job, self._desk(task), self._paths, self._models)

    def _title(self, task: Task, job: TitleJob) -> None:
        from app.chat.title import make_title

        if self._process is None or task.stopped.is_set() or job.chat_id != self._chat:
            return  # of another chat than the one that is read it would cost more than it is worth
        title = make_title(self._process, job, self._desk(task))
        if title and not task.stopped.is_set():
            self._emit(TitleMade(job.chat_id, title))

    def _desk(self, task: Task) -> Desk:
        from app.chat.reply_writer import Desk

        return Desk(self._emit, self._store, task.stopped.is_set, self._between, self._memory_bytes)

    def _memory_bytes(self) -> int | None:
        """What the process takes; asked of the system once a second."""
        import psutil

        asked, known = self._memory
        now = time.monotonic()
        if self._watched is None or now - asked < MEMORY_SECONDS:
            return known
        with contextlib.suppress(psutil.Error):
            known = self._watched.memory_info().rss
        self._memory = now, known
        return known

    # ---- what was read of chats

    def _enter_chat(self, chat_id: int | None) -> None:
        if chat_id == self._chat:
            return
        self._leave_chat()
        self._chat = chat_id
        if self._process is not None and chat_id is not None and self._store().persistent:
            self._states.restore(self._process, chat_id)

    def _leave_chat(self) -> None:
        """Keep what was read of the chat, if that is more than what is kept already."""
        from engine import EngineError

        chat, unsaved = self._chat, self._unsaved
        self._chat, self._unsaved, self._unchecked = None, False, None
        if self._process is None or chat is None or not unsaved or not self._store().persistent:
            return
        with contextlib.suppress(EngineError, OSError):  # only speed is lost; a dead process is found out about at once
            self._states.save(self._process, chat)
