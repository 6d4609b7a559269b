"""The engine in this process: a loaded pair, and replies from it one after another.

Owns the models, their contexts and what was learned about them. EngineProcess (engine/process.py) offers the same
methods with all of this in a child process.
"""

from __future__ import annotations

import os
import secrets
import time
import weakref
from collections.abc import Callable, Generator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import numpy as np

from engine import saved_state
from engine.adaptive_length import AdaptiveLength
from engine.agreement import TEXT, agreement
from engine.calibrate import calibrate
from engine.decoder import Decoder, Reply
from engine.drafters.model import ModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.energy import EnergyMeter
from engine.errors import BadRequest, ContextFull, EngineDied, IncompatibleDraft, LoadCancelled, LoadFailed
from engine.length import FixedLength, LengthPolicy, parse_mode
from engine.llama import binding
from engine.llama.context import Context
from engine.llama.model import Model
from engine.llama.sampler import SamplerChain
from engine.load_check import check_block, load_failures
from engine.loading import block_rows, open_context, open_model
from engine.metrics import Trace
from engine.profile import Profile, load_profile, profile_path
from engine.prompt import Prompt, PromptBuilder
from engine.saved_state import file_identity
from engine.session import Session
from engine.shadow import check_reply
from engine.shadow_result import ShadowResult
from engine.text_stream import TextStream
from engine.token_cache import TokenCache, can_roll_back
from engine.values import (
    ChatMessage,
    Finished,
    GenerationEvent,
    GenerationRequest,
    LoadConfig,
    LoadProgress,
    Notice,
)
from engine.vocabulary import check_vocabularies

MIN_REPLY = 16
"""Tokens of context that the longest prompt must leave for its reply."""
OnProgress = Callable[[LoadProgress], bool]


class Engine:
    """A target, perhaps a draft, and one conversation's caches. Not thread-safe but for `cancel`."""

    def __init__(
        self, config: LoadConfig, on_progress: OnProgress | None = None, cancel: binding.CancelFlag | None = None
    ) -> None:
        """Load the models, check the pair, and measure it if this machine has not yet.

        on_progress returns False to stop. A draft that cannot be used is left out with a line in `notices`.
        Raises LoadFailed, LoadCancelled.
        """
        started = time.perf_counter()
        binding.log_to(config.log_file)
        self.config = config
        self.notices: tuple[str, ...] = ()
        self._cancel = cancel or binding.CancelFlag()
        self._closing = ExitStack()
        self._closed = False
        self._running: weakref.ref[Generator[GenerationEvent, None, None]] | None = None
        self._report = on_progress or (lambda _: True)
        try:
            self._load(config)
        except BaseException:
            self._closing.close()
            raise
        self.load_seconds = time.perf_counter() - started

    # ---- loading

    def _load(self, config: LoadConfig) -> None:
        self.target = self._open_model("target", self._closing)
        if not self.target.can_decode:
            raise LoadFailed(f"{config.target.name} cannot write text; choose a chat or text generation model")
        context = config.context
        if 0 < self.target.trained_context < context:
            context = self.target.trained_context
            self._note(f"context set to {context} tokens, all that {config.target.name} was trained on")
        self.context = context
        self.max_block = block_rows(config, self.target)  # most rows whose logits one decode of the target gives
        target = self._open_context(self.target, self.max_block, self._closing)
        self.cache = TokenCache(target)
        self._session = Session(self.cache)
        with load_failures(config.target.name):
            self._rollback = can_roll_back(target)
        if not self._rollback:
            self._note(f"{config.target.name} cannot take tokens back (recurrent layers), so replies are decoded plainly")
        draft = self._open_draft() if config.draft and self._rollback else None
        self._draft_model = draft
        with load_failures(config.target.name):
            self._profile = self._open_profile(config, target)
        self._lookup = NgramDrafter() if self._rollback else None
        self._decoder = Decoder(self._session, self.target, self._cancel)
        # Now, as the files may be replaced while they are in use.
        self._identities = [file_identity(path) for path in (config.target, config.draft if draft else None) if path]
        self._prompts = PromptBuilder(self.target)
        if self._prompts.notice:
            self._note(self._prompts.notice)

    def _open_model(self, role: Literal["target", "draft"], closing: ExitStack) -> Model:
        model = open_model(self.config, role, on_progress=lambda fraction: self._report(LoadProgress(role, fraction)))
        closing.callback(model.close)
        return model

    def _open_context(self, model: Model, max_outputs: int, closing: ExitStack) -> Context:
        context = open_context(self.config, model, self.context, max_outputs, self._cancel)
        closing.callback(context.close)
        return context

    def _open_draft(self) -> ModelDrafter | None:
        """The draft model, or None with a notice, and its memory given back, when the pair does not work."""
        with ExitStack() as closing:
            try:
                model = self._open_model("draft", closing)
                shared = check_vocabularies(self.target, model)
                context = self._open_context(model, 1, closing)
                with load_failures(model.path.name):
                    steps_back = can_roll_back(context, one_by_one=True)
                if not steps_back:
                    raise IncompatibleDraft(f"{model.path.name} cannot take drafted tokens back (recurrent layers)")
            except (IncompatibleDraft, LoadFailed) as error:
                self._note(f"running without the draft model: {error}")
                return None
            self._closing.push(closing.pop_all())
        return ModelDrafter(TokenCache(context), shared)

    def _open_profile(self, config: LoadConfig, target: Context) -> Profile:
        """What is known of this pair here; measured now where nothing is, else the block of the load check is decoded."""
        key = self._profile_key(config)
        profile = load_profile(config.profile_dir, key)
        if profile is None:
            def progress(fraction: float) -> None:
                if not self._report(LoadProgress("measure", fraction)):
                    raise LoadCancelled("measuring the models was cancelled")

            draft = self._draft_model.context if self._draft_model else None
            costs = calibrate(target, draft, self.max_block, progress)
            # Copies, as they have the rounding of the file: the next start must decide seeded replies alike.
            profile = Profile(profile_path(config.profile_dir, key), key, costs.copy(), costs.copy())
            if draft is not None:
                profile.agreement = agreement(target, draft, self.target.encode(TEXT, special=False), costs)
                profile.acceptance = profile.first_acceptance()
            profile.save()
        else:
            check_block(target, profile.costs, self.max_block)
        return profile

    def _profile_key(self, config: LoadConfig) -> dict[str, str]:
        """All that decides what a decode costs: files, devices, build and settings."""
        draft = self._draft_model and config.draft
        return {
            "target": f"{config.target.name}:{config.target.stat().st_size}",
            "draft": f"{draft.name}:{draft.stat().st_size}" if draft else "",
            "devices": ", ".join(d.description for d in binding.devices()) or "cpu",
            "build": f"{binding.VERSION} {binding.system_info()}",
            "cores": str(os.cpu_count()),
            "settings": repr((
                config.target_gpu_layers, config.draft_gpu_layers, config.threads, config.batch_threads,
                config.flash_attention, config.kv_type,
            )),
        }

    def _note(self, line: str) -> None:
        self.notices = (*self.notices, line)

    # ---- replies

    def generate(self, request: GenerationRequest) -> Generator[GenerationEvent, None, None]:
        """Decode one reply, yielding events as it grows; the last is Finished.

        Errors in the request are raised at the first step: BadRequest, ContextFull, TemplateFailed. Closing the
        generator early ends the reply and keeps the caches right, as does asking for the next reply.
        """
        self._cancel.clear()
        return self.run(request)

    def run(self, request: GenerationRequest) -> Generator[GenerationEvent, None, None]:
        """`generate` without lowering the cancel flag first: in a child process the parent does that, before it
        sends the request, so that a cancel right after is not lost."""
        self._check_open()
        self._end_reply()
        reply = self._reply(request)
        self._running = weakref.ref(reply)
        return reply

    def _reply(self, request: GenerationRequest) -> Generator[GenerationEvent, None, None]:
        mode, length = parse_mode(request.mode)
        if request.max_tokens < 1:
            raise BadRequest(f"max_tokens is {request.max_tokens}; it must be 1 or more")
        seed = secrets.randbits(32) if request.seed is None else request.seed
        if not 0 <= seed < 1 << 63:
            raise BadRequest(f"seed is {seed}; it must be from 0 to {(1 << 63) - 1}")
        prompt = self._build_prompt(request)
        if not prompt.ids:
            raise BadRequest("the prompt is empty: there is nothing to go on from")
        notices = []
        if prompt.newly_dropped:
            line = f"the context of {self.context} tokens is full: the {prompt.dropped} oldest messages of this chat are no longer read"
            notices.append(Notice(f"{line} (a larger --ctx keeps more)", prompt.dropped))
        drafter = self._draft_model if mode in ("auto", "draft", "fixed") else None
        if drafter is None and mode in ("draft", "fixed") and self._rollback:
            notices.append(Notice(f"mode {request.mode} needs a draft model and none is in use: decoding plainly"))
        energy = EnergyMeter()
        verify_stream, draft_stream = np.random.default_rng(seed).spawn(2)
        stream = TextStream([*request.stop, *self._prompts.stop])
        with ExitStack() as closing:
            chain = SamplerChain(self.target, request.sampling, self.context)
            closing.callback(chain.close)
            trace = Trace(request.trace)
            closing.callback(trace.close)
            if drafter is not None:
                params = replace(request.sampling, temperature=0.0) if request.rule == "match" else request.sampling
                drafter.configure(
                    params, draft_stream, self._profile.costs.draft.observe if request.seed is None else None,
                    reproducible=request.reproducible,
                )
                closing.callback(drafter.release)
            reply = Reply(
                request=request, prompt=list(prompt.ids), chain=chain, policy=self._policy(mode, length, request),
                lookup=self._lookup if mode in ("auto", "ngram") else None, draft_model=drafter, max_block=self.max_block,
                rng=verify_stream, stream=stream, trace=trace, costs=self._profile.costs,
            )
            yield from notices
            yield from self._decoder.run(reply)
            trace.close()
            if trace.failure is not None:
                yield Notice(trace.failure)
        self._prompts.remember(request, prompt, reply.tokens, reply.text)
        assert reply.reason is not None
        report = reply.metrics.report(request.mode, reply.policy.state)
        used = {device.name: device.total_bytes - device.free_bytes for device in binding.devices()}
        if used:
            report["memory"]["device_used_bytes"] = used
        if joules := energy.joules():
            report["energy_joules"] = joules
        yield Finished(reply.reason, reply.text, {"finish_reason": reply.reason, **report, "seed": seed}, reply.written)

    def _build_prompt(self, request: GenerationRequest) -> Prompt:
        """The prompt, with room for a reply where the messages allow it."""
        reserve = min(request.max_tokens, self.context // 4)
        try:
            return self._prompts.build(request, self.context - reserve)
        except ContextFull:
            return self._prompts.build(request, self.context - MIN_REPLY)

    def _policy(self, mode: str, length: int, request: GenerationRequest) -> LengthPolicy:
        if mode == "plain" or not self._rollback:
            return FixedLength("target", 0, "plain decoding, as asked" if mode == "plain" else "plain decoding: no rollback")
        if mode in ("draft", "fixed") and self._draft_model is None:
            return FixedLength("target", 0, "plain decoding: no draft model is in use")
        if mode == "fixed":
            return FixedLength("model", length, f"always {length} candidates from the draft model")
        costs, acceptance = self._profile.costs, self._profile.acceptance
        seeded = request.seed is not None
        if seeded:
            costs, acceptance = self._profile.calibrated, self._profile.first_acceptance()
        return AdaptiveLength(
            costs, acceptance, use_ngram=mode != "draft", use_model=mode != "ngram", learn_costs=not seeded,
            trims=request.sampling.greedy or request.rule == "match",
        )

    def cancel(self) -> None:
        """Stop the reply being decoded; safe from any thread or signal handler."""
        self._cancel.set()

    def count_tokens(self, text: str) -> int:
        """Tokens of a plain text."""
        self._check_open()
        return len(self.target.encode(text, special=False))

    def shadow_check(self, request: GenerationRequest, finished: Finished) -> ShadowResult:
        """Read the reply `finished` again under the target alone (engine/shadow.py); `cancel` stops that too."""
        self._cancel.clear()
        return self.reread(request, finished)

    def reread(self, request: GenerationRequest, finished: Finished) -> ShadowResult:
        """`shadow_check` without lowering the cancel flag first (see `run`)."""
        self._check_open()
        self._end_reply()
        return check_reply(self, request, finished.written)

    def open_cache(self, n_ctx: int, max_outputs: int) -> Context:
        """Another cache of the target's, of `n_ctx` tokens and at most `max_outputs` rows of logits, for whoever closes
        it before the engine; `cancel` stops its decodes, too. Raises LoadFailed."""
        return open_context(self.config, self.target, n_ctx, max_outputs, self._cancel)

    def known_as(self, request: GenerationRequest, finished: Finished, text: str) -> None:
        """Whoever asked for the reply `finished` has kept another text of it (without what must not be printed, say): a
        request with that text in the reply's place goes on from the tokens that were really written."""
        self._check_open()
        self._prompts.rename((*request.messages, ChatMessage("assistant", finished.text)), text)

    def forget(self) -> None:
        """Drop all cached prefixes, so that the next reply starts cold (fair comparisons)."""
        self._check_open()
        self._session.forget()
        self._prompts.forget()
        if self._draft_model is not None:
            self._draft_model.forget()

    def save_state(self, path: Path) -> int:
        """Keep in `path` what has been read of this chat, by both models, so that after `restore_state` in an engine
        with the same settings only what is new is read. The bytes written; 0, and no file, when nothing was read yet.

        Ends a reply that is open. Raises StateNotSaved; `path` is what it was then.
        """
        self._check_open()
        self._end_reply()
        return saved_state.save(path, *self._state())

    def restore_state(self, path: Path) -> bool:
        """Go on from what `save_state` wrote. False, never an error, when there is none, it is of other models or
        settings, or it is damaged: the next reply then reads its whole prompt. Ends a reply that is open."""
        self._check_open()
        self._end_reply()
        return saved_state.restore(path, *self._state())

    def _state(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, tuple[str, TokenCache]], PromptBuilder]:
        """What a state is good for, what its last bits hang on, and what it is made of."""
        config = self.config
        key = {
            "build": binding.VERSION, "context": self.context, "kv_type": config.kv_type,
            "flash_attention": config.flash_attention,
        }
        machine = {name: value for name, value in self._profile_key(config).items() if name not in ("target", "draft")}
        caches = [self.cache, *([self._draft_model.cache] if self._draft_model else [])]
        parts = dict(zip(("target", "draft"), zip(self._identities, caches, strict=True), strict=False))
        return key, {**machine, "batch": config.batch}, parts, self._prompts

    def describe(self) -> dict[str, Any]:
        """What is loaded, for reports: models, devices, build."""
        return {
            "target": {"path": str(self.config.target), "description": self.target.description},
            "draft": {"path": str(self.config.draft)} if self._draft_model else None,
            "context": self.context, "llama_cpp_python": binding.VERSION, "system_info": binding.system_info(),
            "devices": [d.description for d in binding.devices()],
        }

    def close(self) -> None:
        """End a reply that is open, save what was learned and free all memory. Safe to call twice."""
        self._end_reply()
        if not self._closed:
            self._profile.save()
        self._closed = True
        self._closing.close()

    def _end_reply(self) -> None:
        """One reply at a time: whoever still holds the last one finds it over."""
        running = None if self._running is None else self._running()
        if running is not None:
            running.close()

    def _check_open(self) -> None:
        if self._closed:
            raise EngineDied("the engine has been closed; load the model again")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
