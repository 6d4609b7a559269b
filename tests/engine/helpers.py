"""What the engine's tests share: replies as values, a loop around parts of the test's choosing, and plain
decoding written down a second time.

The reference reads one row per decode, hands the whole vocabulary to llama.cpp's samplers, and looks for stops in
the whole text: slow, and too simple to be wrong in the ways the engine could be.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from ctypes import byref, cast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine import (
    ChatMessage,
    Engine,
    Finished,
    GenerationRequest,
    LoadConfig,
    RoundDone,
    SamplingParams,
    TextDelta,
)
from engine.cost import CostModel
from engine.decoder import Decoder, Reply
from engine.drafters.model import ModelDrafter
from engine.drafters.ngram import NgramDrafter
from engine.length import FixedLength, LengthPolicy
from engine.llama.binding import CancelFlag, lib
from engine.llama.context import Context
from engine.llama.model import Model
from engine.llama.sampler import DRY_BREAKERS, SamplerChain, grammar_text
from engine.metrics import Trace
from engine.session import Session
from engine.text_stream import TextStream
from engine.token_cache import TokenCache
from engine.values import Draft, GenerationEvent, Notice, Round
from engine.vocabulary import check_vocabularies

GREEDY = SamplingParams(temperature=0)
FREE = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)
"""The model's own distribution."""
PROMPT = "def main():\n    print('hello')\n"
CLEAR = "Tell me about 21"
"""Its greedy reply keeps 0.1 between the two highest logits for 60 tokens (test_decoder.py checks that)."""
NEAR_TIE = 0.05
"""Logits within which two tokens are a tie. Read in one row and in several, the same text gives logits that differ by
up to 0.006 (blocks of 2 to 16) or 0.026 (a prompt of 200 at once) on these models; their standard deviation is 2.6."""


def config(target: Path, draft: Path | None = None, **how: Any) -> LoadConfig:
    return LoadConfig(target, draft, **{"context": 512, "threads": 1} | how)


# ---- replies as values


@dataclass(frozen=True)
class Done:
    """A reply that has ended."""

    events: tuple[GenerationEvent, ...]
    text: str
    reason: str
    report: dict[str, Any]

    @property
    def rounds(self) -> list[Round]:
        return [event.round for event in self.events if isinstance(event, RoundDone)]

    @property
    def tokens(self) -> list[int]:
        return [token for round_ in self.rounds for token in round_.emitted]

    @property
    def accepted(self) -> int:
        return sum(round_.accepted for round_ in self.rounds)

    @property
    def drafted(self) -> int:
        return sum(len(round_.candidates) for round_ in self.rounds)

    @property
    def notices(self) -> list[str]:
        return [event.text for event in self.events if isinstance(event, Notice)]


def ask(engine: Engine, prompt: str | Sequence[ChatMessage] = PROMPT, **request: Any) -> Done:
    """One whole reply of an engine; greedy unless the request says otherwise."""
    events = tuple(engine.generate(question(prompt, **request)))
    last = events[-1]
    assert isinstance(last, Finished)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == last.text
    return Done(events, last.text, last.reason, last.report)


def question(prompt: str | Sequence[ChatMessage] = PROMPT, **request: Any) -> GenerationRequest:
    request = {"sampling": GREEDY, "max_tokens": 40, "seed": 1} | request
    return GenerationRequest(**({"prompt": prompt} if isinstance(prompt, str) else {"messages": tuple(prompt)}), **request)


# ---- a loop around parts of the test's choosing


class Script:
    """A drafter that proposes what `propose(tokens so far, limit)` says, as point masses."""

    def __init__(self, propose: Any) -> None:
        self._propose = propose
        self.tokens: list[int] = []

    def begin(self, tokens: Sequence[int]) -> None:
        self.tokens = list(tokens)

    def observe(self, tokens: Sequence[int]) -> None:
        self.tokens += tokens

    def lag(self, *, of_this_reply: bool = False) -> int:
        return 1

    def propose(self, limit: int, go_on: Any = None) -> Draft:
        tokens = tuple(self._propose(self.tokens, limit))[:limit]
        return Draft(tokens, (None,) * len(tokens), (0.5,) * len(tokens), "model")


def knows(prompt: Sequence[int], continuation: Sequence[int]) -> Script:
    """A drafter that is always right, as long as the text is `prompt` and what follows of `continuation`."""
    text = [*prompt, *continuation]
    return Script(lambda tokens, limit: text[len(tokens) : len(tokens) + limit])


class Loop:
    """A target's session and decoder, without the engine around them."""

    def __init__(
        self, target: Path, draft: Path | None = None, n_ctx: int = 512, batch: int = 512, max_block: int = 64,
        cancel: Any = None, **context: Any,
    ) -> None:
        self.closing = ExitStack()
        self.max_block = max_block
        self.cancel = cancel or CancelFlag()
        sizes = {"n_ctx": n_ctx, "batch": batch, "threads": 1, "batch_threads": 1, "cancel": self.cancel} | context
        self.model = self._open(Model(target))
        self.context = self._open(Context(self.model, max_outputs=max_block, **sizes))
        self.session = Session(TokenCache(self.context))
        self.decoder = Decoder(self.session, self.model, self.cancel)
        self.lookup = NgramDrafter()
        self.draft: ModelDrafter | None = None
        if draft is not None:
            model = self._open(Model(draft))
            small = self._open(Context(model, max_outputs=1, **sizes))
            self.draft = ModelDrafter(TokenCache(small), check_vocabularies(self.model, model))

    def _open(self, thing: Any) -> Any:
        self.closing.callback(thing.close)
        return thing

    def encode(self, text: str) -> list[int]:
        return self.model.encode(text, special=True)

    def start(
        self, prompt: str | Sequence[int] = PROMPT, *, policy: LengthPolicy | None = None, drafter: Any = None,
        trace: Path | None = None, **request: Any,
    ) -> Reply:
        """A reply ready to run. `drafter` takes the draft model's place; without a policy, decoding is plain."""
        asked = question("", **request)
        verify, draft = np.random.default_rng(asked.seed).spawn(2)
        if self.draft is not None:
            params = GREEDY if asked.rule == "match" else asked.sampling
            self.draft.configure(params, draft, reproducible=asked.reproducible)
        return Reply(
            request=asked, prompt=self.encode(prompt) if isinstance(prompt, str) else list(prompt),
            chain=SamplerChain(self.model, asked.sampling, self.context.n_ctx),
            policy=policy or FixedLength("target", 0, "plain"), lookup=self.lookup, draft_model=drafter or self.draft,
            max_block=self.max_block, rng=verify, stream=TextStream(asked.stop), trace=Trace(trace),
        )

    def run(self, prompt: str | Sequence[int] = PROMPT, **how: Any) -> Done:
        """A whole reply."""
        reply = self.start(prompt, **how)
        try:
            events = tuple(self.decoder.run(reply))
        finally:
            self.end(reply)
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == reply.text
        assert reply.reason is not None
        done = Done(events, reply.text, reply.reason, reply.metrics.report(reply.request.mode, reply.policy.state))
        assert done.tokens == reply.tokens
        return done

    def end(self, reply: Reply) -> None:
        reply.chain.close()
        reply.trace.close()
        if self.draft is not None:
            self.draft.release()

    def close(self) -> None:
        self.closing.close()

    def __enter__(self) -> Loop:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def fixed(length: int, origin: str = "model") -> FixedLength:
    return FixedLength(origin, length, f"always {length}")  # type: ignore[arg-type]


def costs(row: float = 0.001, first: float = 0.03, step: float = 0.001) -> CostModel:
    """A machine where checking rows and drafting cost next to nothing, as on a GPU, unless said otherwise."""
    model = CostModel()
    for rows in range(1, 66):
        model.target.set(rows, 0, first + row * rows)
        model.draft.set(rows, 0, step)
    return model


class PullAt(CancelFlag):
    """A cancel flag that goes up by itself at the n-th time llama.cpp asks, in the middle of a decode."""

    def __init__(self) -> None:
        super().__init__()
        self.polls, self.at = 0, -1

        def poll(_: Any) -> bool:
            self.polls += 1
            if self.polls == self.at:
                self.set()
            return self.is_set()

        self.callback = lib.ggml_abort_callback(poll)

    def pull_at(self, n: int) -> None:
        self.clear()
        self.polls, self.at = 0, n


# ---- plain decoding, a second time


class Reference:
    """A target that is only ever read one token at a time, from the front."""

    def __init__(self, path: Path, n_ctx: int = 512, **context: Any) -> None:
        self.model = Model(path)
        sizes = {"n_ctx": n_ctx, "batch": 512, "max_outputs": 1, "threads": 1, "batch_threads": 1} | context
        self.context = Context(self.model, **sizes)
        self._read: list[int] = []

    def logits(self, tokens: Sequence[int]) -> NDArray[np.float32]:
        """What follows `tokens`."""
        tokens = list(tokens)
        if self._read != tokens[: len(self._read)] or len(self._read) == len(tokens):
            self.context.clear()
            self._read = []
        for token in tokens[len(self._read) :]:
            self.context.decode([token], len(self._read), 1)
            self._read.append(token)
        return self.context.logits(0).copy()

    def close(self) -> None:
        self.context.close()
        self.model.close()

    def __enter__(self) -> Reference:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Samplers:
    """llama.cpp's samplers over the whole vocabulary, made as its own programs make them."""

    def __init__(self, model: Model, params: SamplingParams, n_ctx: int, prompt: Iterable[int] = ()) -> None:
        self._params = params
        window = n_ctx if params.penalty_last_n == -1 else params.penalty_last_n
        dry_window = n_ctx if params.dry_last_n == -1 else params.dry_last_n
        bias = (lib.llama_logit_bias * len(params.logit_bias))(*params.logit_bias)
        breakers = (lib.ctypes.c_char_p * len(DRY_BREAKERS))(*DRY_BREAKERS)
        self._adjusters = [
            lib.llama_sampler_init_logit_bias(model.n_vocab, len(bias), bias),
            lib.llama_sampler_init_penalties(
                model.n_vocab, window, params.repeat_penalty, params.frequency_penalty, params.presence_penalty
            ),
            lib.llama_sampler_init_dry(
                model.vocab, params.dry_multiplier, params.dry_base, params.dry_allowed_length, dry_window, breakers,
                len(breakers),
            ),
        ]
        text = grammar_text(params)
        self._grammar = [] if text is None else [lib.llama_sampler_init_grammar(model.vocab, text.encode(), b"root")]
        self._filters = [
            *([lib.llama_sampler_init_top_k(params.top_k)] if params.top_k else []),
            *([lib.llama_sampler_init_typical(params.typical_p, 1)] if params.typical_p < 1 else []),
            *([lib.llama_sampler_init_top_p(params.top_p, 1)] if params.top_p < 1 else []),
            *([lib.llama_sampler_init_min_p(params.min_p, 1)] if params.min_p else []),
            lib.llama_sampler_init_temp(params.temperature),
        ]
        for token in prompt:
            for sampler in self._adjusters:
                lib.llama_sampler_accept(sampler, token)

    def accept(self, token: int) -> None:
        for sampler in (*self._adjusters, *self._grammar):
            lib.llama_sampler_accept(sampler, token)

    def adjusted(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n_vocab,) logits after bias, penalties, DRY and grammar."""
        return self._apply((*self._adjusters, *self._grammar), logits)

    def probabilities(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n_vocab,) what the next token is drawn from."""
        left = self.filtered(logits).astype(np.float64)
        weights = np.exp(left - left.max())
        return weights / weights.sum()

    def filtered(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n_vocab,) the logits that all samplers leave; -inf elsewhere."""
        return self._apply((*self._adjusters, *self._grammar, *self._filters), logits)

    @staticmethod
    def _apply(samplers: Iterable[Any], logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """(n_vocab,) the logits that are left; -inf for tokens that are not."""
        found = np.zeros(len(logits), dtype=[("id", np.int32), ("logit", np.float32), ("p", np.float32)])
        found["id"], found["logit"] = np.arange(len(logits)), logits
        array = lib.llama_token_data_array(cast(found.ctypes.data, lib.llama_token_data_p), len(found), -1, False)
        for sampler in samplers:
            lib.llama_sampler_apply(sampler, byref(array))
        left = np.full(len(logits), -np.inf, dtype=np.float32)
        for entry in array.data[: array.size]:
            left[entry.id] = entry.logit
        return left

    def close(self) -> None:
        for sampler in (*self._adjusters, *self._grammar, *self._filters):
            lib.llama_sampler_free(sampler)

    def __enter__(self) -> Samplers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def check_greedy(
    reference: Reference, prompt: Sequence[int], done: Done, tie: float = NEAR_TIE, n_ctx: int = 512, **request: Any
) -> int:
    """Fail unless plain decoding could have written this reply; the number of near ties it took the other way.

    Every token must have had the highest logit after the tokens before it, or one within `tie` of it, and the
    reply must end where plain decoding of these tokens ends, for the same reason and with the same text.
    """
    asked = question("", **request)
    flips = 0
    tokens = list(prompt)
    with Samplers(reference.model, asked.sampling, n_ctx, prompt) as samplers:
        for i, token in enumerate([*done.tokens, None]):
            if reason := _plain_end(reference.model, asked, tokens[len(prompt) :], len(tokens), n_ctx):
                assert (token, done.reason) == (None, reason)
                break
            logits = samplers.adjusted(reference.logits(tokens))
            best = float(logits.max())
            if token is None:
                ending = [t for t in range(len(logits)) if reference.model.is_end(t)]
                assert max(logits[t] for t in ending) >= best - tie, f"the reply ended early, after {i} tokens"
                assert done.reason == "stop"
                break
            assert logits[token] >= best - tie, f"token {i} is {token}; plain decoding has {logits.argmax()}"
            assert not reference.model.is_end(token)
            flips += logits[token] < best
            samplers.accept(token)
            tokens.append(token)
    assert done.text == plain_text(reference.model, done.tokens, asked.stop)
    return int(flips)


def _plain_end(model: Model, asked: GenerationRequest, reply: list[int], length: int, n_ctx: int) -> str | None:
    text = b"".join(map(model.piece, reply)).decode("utf-8", errors="ignore")
    if any(stop in text for stop in asked.stop):
        return "stop"
    return "length" if len(reply) >= asked.max_tokens else "context" if length >= n_ctx else None


def plain_text(model: Model, tokens: Sequence[int], stops: Sequence[str] = ()) -> str:
    """The reply's text, cut before the stop string that ends first (the longest of those that end together)."""
    text = b"".join(map(model.piece, tokens)).decode("utf-8", errors="replace")
    found = [(text.index(stop) + len(stop), text.index(stop)) for stop in stops if stop in text]
    return text[: min(found)[1]] if found else text

