"""One run of `verify`: the three checks one after the other, within a time budget, behind a progress bar.

However it ends (time, Ctrl-C), what was checked until then is judged and shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from app.bench.prompts import BenchPrompt
from app.interrupt import Interrupt
from app.terminal import progress, say
from app.verify.distribution import ContextTest, draw, judge, law_of
from app.verify.identity import PLAIN, Compared, Identity
from app.verify.replies import Stopped, write
from app.verify.statistics import LEAST_EXPECTED
from engine import ChatMessage, ContextFull, Engine, GenerationRequest, SamplingParams
from engine.errors import DecodeAborted
from engine.exactness import Rereader, Rounding
from engine.shadow import Drawn, read_drawn

IDENTITY_SHARE, DRAWN_SHARE = 0.45, 0.6
"""Of the time: until when replies at temperature 0, and whole drawn replies, are begun."""
OVERTIME = 1.25
"""Of the time: when what was begun is left unfinished."""
TEMPLATE_TOKENS = 512
"""Room for a chat template and its default system prompt."""
_SAMPLES_A_STEP = 10


@dataclass(frozen=True, slots=True)
class VerifyPlan:
    """What to check. `modes` are speculative ones; the last is the one that always drafts."""

    prompts: Sequence[BenchPrompt]
    modes: Sequence[str]
    short_mode: str
    """For the short samples: drafts no more than they have room for."""
    max_tokens: int
    sampling: SamplingParams
    samples: int
    contexts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class DrawnPair:
    """Plain's and the speculative reply to one prompt at a temperature, both under the target's distribution."""

    prompt: str
    plain: Drawn
    plain_tokens: int
    ours: Drawn
    our_tokens: int
    drafted: int


@dataclass(slots=True)
class Findings:
    """Everything seen, in the order of the checks."""

    rounding: Rounding = field(default_factory=lambda: Rounding(0, 0.0, 0.0))
    compared: list[Compared] = field(default_factory=list)
    drawn: list[DrawnPair] = field(default_factory=list)
    contexts: list[ContextTest] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    complete: bool = False


def verify(engine: Engine, plan: VerifyPlan, interrupt: Interrupt) -> Findings:
    """Run the checks. Raises EngineError when the engine fails; a prompt that does not fit is left out with a remark."""
    length = max(engine.count_tokens(prompt.turns[0]) for prompt in plan.prompts) + TEMPLATE_TOKENS + plan.max_tokens
    interrupt.hook = engine.cancel
    with Rereader(engine, length) as reader, _Run(engine, reader, plan, interrupt) as run:
        return run.all()


class _Run:
    def __init__(self, engine: Engine, reader: Rereader, plan: VerifyPlan, interrupt: Interrupt) -> None:
        self._engine, self._reader, self._plan, self._interrupt = engine, reader, plan, interrupt
        self._started = time.monotonic()
        self._findings = Findings()
        self._deadline = self._started + plan.seconds
        self._hard_end = self._started + OVERTIME * plan.seconds
        self._identity = Identity(engine, reader, plan.modes, self._stopped)
        self._steps = len(plan.prompts) * (self._identity.steps + 3)
        self._steps += min(plan.contexts, len(plan.prompts)) * (plan.samples // _SAMPLES_A_STEP + 1)
        self._bar: Progress = progress(
            BarColumn(bar_width=20), TimeRemainingColumn(compact=True), TextColumn("{task.description}", markup=False)
        )

    def __enter__(self) -> _Run:
        self._bar.start()
        self._task = self._bar.add_task("starting", total=self._steps)
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def all(self) -> Findings:
        found = self._findings
        phases = ((self._compare, IDENTITY_SHARE), (self._draw_replies, DRAWN_SHARE), (self._sample, 1.0))
        found.complete = True
        for phase, until in phases:
            self._deadline = self._started + until * self._plan.seconds
            try:
                found.complete = phase() and found.complete
            except (Stopped, DecodeAborted):
                found.complete = False
            if self._interrupt.seen:
                break
        found.rounding, found.compared = self._identity.finish()
        return found

    # ---- the phases: True if nothing was left out for want of time

    def _compare(self) -> bool:
        return self._each(lambda prompt, request: self._identity.compare(
            prompt.question_id, request, lambda what: self._step(f"temperature 0, {prompt.question_id}: {what}")
        ))

    def _draw_replies(self) -> bool:
        return self._each(self._draw_reply)

    def _draw_reply(self, prompt: BenchPrompt, request: GenerationRequest) -> None:
        self._step(f"drawn replies, {prompt.question_id}: {PLAIN}")
        plain = write(self._engine, replace(request, mode=PLAIN), self._stopped)
        self._step(f"drawn replies, {prompt.question_id}: {self._plan.modes[-1]}")
        ours = write(self._engine, replace(request, mode=self._plan.modes[-1]), self._stopped)
        self._step(f"drawn replies, {prompt.question_id}: reading again")
        read = [read_drawn(self._reader, reply.written, request.sampling) for reply in (plain, ours)]
        self._findings.drawn.append(DrawnPair(
            prompt.question_id, read[0], len(plain.written.reply), read[1], len(ours.written.reply), ours.drafted
        ))

    def _sample(self) -> bool:
        plan, complete = self._plan, True
        contexts = plan.prompts[: plan.contexts]
        for number, prompt in enumerate(contexts):
            if self._time_is_up():
                return False
            share = (self._deadline - time.monotonic()) / (len(contexts) - number)
            complete = self._sample_at(prompt, time.monotonic() + share) and complete
        return complete

    def _sample_at(self, prompt: BenchPrompt, until: float) -> bool:
        """The target's law at one context, then as many samples as there is time for, up to those planned."""
        plan, name, done = self._plan, prompt.question_id, 0
        request = replace(self._request(prompt), mode=plan.short_mode)

        def late() -> bool:
            return self._stopped() or time.monotonic() > until

        def one_more() -> None:
            nonlocal done
            done += 1
            if done % _SAMPLES_A_STEP == 0:
                self._show(f"distribution, {name}: {done} of {plan.samples} samples")

        self._step(f"distribution, {name}: the target's own law")
        try:
            read = write(self._engine, replace(request, max_tokens=1), self._stopped).written.prompt
            law = law_of(self._reader, read, plan.sampling, LEAST_EXPECTED / plan.samples, late)
            samples = draw(self._engine, request, plan.samples, late, one_more)
        except ContextFull:  # said before
            return True
        except Stopped:
            self._findings.contexts.append(ContextTest(name, 0, 0, 0, None))
            return False
        self._findings.contexts.append(judge(name, samples, law))
        return len(samples.beginnings) == plan.samples

    # ---- helpers

    def _each(self, work: Callable[[BenchPrompt, GenerationRequest], None]) -> bool:
        for number, prompt in enumerate(self._plan.prompts):
            if number and self._time_is_up():
                return False
            if prompt.question_id in self._findings.skipped:
                continue
            try:
                work(prompt, self._request(prompt))
            except ContextFull as error:
                self._findings.skipped[prompt.question_id] = str(error)
                say(f"prompt {prompt.question_id} is left out: {error}")
        return True

    def _request(self, prompt: BenchPrompt) -> GenerationRequest:
        return GenerationRequest(
            messages=(ChatMessage("user", prompt.turns[0]),), sampling=self._plan.sampling, max_tokens=self._plan.max_tokens
        )

    def _step(self, what: str) -> None:
        self._show(what)
        if self._stopped():
            raise Stopped

    def _show(self, what: str) -> None:
        self._bar.update(self._task, advance=1, description=what)

    def _stopped(self) -> bool:
        return self._interrupt.seen or time.monotonic() > self._hard_end

    def _time_is_up(self) -> bool:
        """Of this phase. One prompt is begun all the same."""
        return time.monotonic() > self._deadline
