"""llama.cpp's own sampler chain, turned into distributions. Owns the native samplers of one request.

Order, as in llama.cpp: logit bias, penalties, DRY, grammar; then top-k, typical, top-p, min-p, temperature.

The shortlist: building and filtering 150,000 candidates costs milliseconds a position, so where top-k (or
greedy choice) bounds the answer, only tokens within some distance of the highest raw logit, plus every token that
penalties, DRY or bias can touch, are looked at. The result is used only if it provably equals the full one: every
token left out has a raw logit below the shortlist's floor, so the answer is exact once k survivors reach the
floor. Otherwise the full vocabulary is gone through.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import BadRequest, DecodeFailed, NothingAllowed
from engine.llama.binding import captured_stderr, count_native, json_schema_to_gbnf, lib, take_complaints
from engine.llama.model import Model
from engine.sampling import Distribution, SamplingParams

SHORTLIST_AIM = 1024
"""The distance from the top is steered so that about this many tokens are within it."""
DRY_BREAKERS = (b"\n", b":", b'"', b"*")
"""llama.cpp's default sequence breakers."""
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class SamplerChain:
    """The target's or the draft's view of one request's sampling settings, with its token history."""

    def __init__(self, model: Model, params: SamplingParams, n_ctx: int, n_vocab: int | None = None) -> None:
        """n_ctx: what -1 means for penalty_last_n and dry_last_n. n_vocab: only ids below it are looked at, and a bias
        on others is left out (a draft, whose target may have more of them). Raises BadRequest for a bias on no token
        and for a grammar that does not parse."""
        self._params = params
        self._n_vocab = n_vocab or model.n_vocab
        self._bias = [_checked(entry, model.n_vocab if n_vocab is None else None) for entry in params.logit_bias]
        self._bias = [(token, value) for token, value in self._bias if token < self._n_vocab]
        self._window = n_ctx if params.penalty_last_n == -1 else params.penalty_last_n
        self._dry_window = n_ctx if params.dry_last_n == -1 else params.dry_last_n
        self._history: list[int] = []
        self._adjusters: list[Any] = []
        self._grammar: Any = None
        self._filters: Any = None
        self._buffer = _CandidateBuffer(self._n_vocab)
        try:
            self._build(model, params)
        except BaseException:
            self.close()
            raise

    def _build(self, model: Model, params: SamplingParams) -> None:
        if self._bias:
            entries: Any = self._bias
            bias = (lib.llama_logit_bias * len(entries))(*entries)
            self._adjusters.append(lib.llama_sampler_init_logit_bias(model.n_vocab, len(bias), bias))
        if self._penalises:
            self._adjusters.append(lib.llama_sampler_init_penalties(
                model.n_vocab, self._window, params.repeat_penalty, params.frequency_penalty, params.presence_penalty
            ))
        if params.dry_multiplier:
            breakers = (ctypes.c_char_p * len(DRY_BREAKERS))(*DRY_BREAKERS)
            self._adjusters.append(lib.llama_sampler_init_dry(
                model.vocab, params.dry_multiplier, params.dry_base, params.dry_allowed_length, self._dry_window,
                breakers, len(breakers),
            ))
        text = grammar_text(params)
        if text is not None:
            self._grammar = _parse_grammar(model, text)
        self._filters = lib.llama_sampler_chain_init(lib.llama_sampler_chain_default_params())
        for sampler in (
            lib.llama_sampler_init_top_k(params.top_k) if params.top_k else None,
            lib.llama_sampler_init_typical(params.typical_p, 1) if params.typical_p < 1 else None,
            lib.llama_sampler_init_top_p(params.top_p, 1) if params.top_p < 1 else None,
            lib.llama_sampler_init_min_p(params.min_p, 1) if params.min_p else None,
            lib.llama_sampler_init_temp(params.temperature) if not params.greedy else None,
        ):
            if sampler is not None:
                lib.llama_sampler_chain_add(self._filters, sampler)

    @property
    def _penalises(self) -> bool:
        params = self._params
        return bool(self._window and (
            params.repeat_penalty != 1 or params.frequency_penalty or params.presence_penalty
        ))

    @property
    def stateful(self) -> bool:
        """True if earlier tokens of the reply change the distribution of later ones."""
        return bool(self._penalises or self._params.dry_multiplier or self._grammar)

    # ---- history

    def begin(self, prompt: Sequence[int]) -> None:
        """The reply starts after `prompt`: penalties and DRY see it, the grammar does not."""
        if self.stateful:
            reach = max(self._window if self._penalises else 0, self._dry_window if self._params.dry_multiplier else 0)
            self._history = list(prompt[-reach:]) if reach else []
            for sampler in self._adjusters:
                for token in self._history:
                    lib.llama_sampler_accept(sampler, token)

    def accept(self, token: int) -> None:
        """`token` joined the reply. It must be one of the n_vocab looked at and have had probability above 0: a grammar
        aborts the process otherwise."""
        if self.stateful:
            self._history.append(token)
            for sampler in self._adjusters:
                lib.llama_sampler_accept(sampler, token)
            if self._grammar:
                lib.llama_sampler_accept(self._grammar, token)

    def fork(self) -> SamplerChain:
        """A copy whose history can run ahead over drafted tokens; close it after use. Filters are shared."""
        twin = object.__new__(SamplerChain)
        twin.__dict__.update(self.__dict__)
        twin._history = list(self._history)
        twin._adjusters = [lib.llama_sampler_clone(sampler) for sampler in self._adjusters]
        twin._grammar = lib.llama_sampler_clone(self._grammar) if self._grammar else None
        twin._filters_shared = True
        return twin

    _filters_shared = False

    # ---- distributions

    def greedy(self, logits: NDArray[np.float32]) -> int:
        """The token with the highest logit after bias, penalties, DRY and grammar. Raises as `distribution`."""
        if not self._adjusters and not self._grammar:
            best = int(logits.argmax())
            _check_top(float(logits[best]))
            return best
        found = self._candidates(logits, keep=1)
        return int(found["id"][found["logit"].argmax()])

    def distribution(self, logits: NDArray[np.float32]) -> Distribution:
        """What the next token is drawn from, given the history; one-hot at temperature 0. logits: (n_vocab,).

        Raises NothingAllowed, and DecodeFailed where the highest logit is no number.
        """
        if self._params.greedy:
            return Distribution.one_hot(self.greedy(logits))
        found = self._candidates(logits, keep=self._params.top_k)
        found = self._buffer.apply(self._filters, found)
        allowed = found["logit"] > -np.inf
        if not allowed.all():
            found = found[allowed]
        return Distribution.from_logits(found["id"].copy(), found["logit"].copy())

    def _candidates(self, logits: NDArray[np.float32], keep: int) -> NDArray[Any]:
        """Candidates after the adjusters and the grammar, ready for the filters. keep: how many the filters can
        need at most (top-k; 1 for greedy), 0 for all."""
        samplers = [*self._adjusters, self._grammar] if self._grammar else self._adjusters
        top = float(logits.max())
        _check_top(top)
        if keep:
            found, floor = self._buffer.shortlist(logits, top, keep, self._touched())
            for sampler in samplers:
                found = self._buffer.apply(sampler, found)
            if not samplers or np.count_nonzero(found["logit"] >= floor) >= keep:
                return found
        found = self._buffer.full(logits)
        for sampler in samplers:
            found = self._buffer.apply(sampler, found)
        if samplers and found["logit"].max() == -np.inf:
            raise NothingAllowed("no token is allowed here: the grammar or the logit bias forbids them all")
        return found

    def _touched(self) -> list[int]:
        """Every token looked at whose logit bias, penalties or DRY may change."""
        touched = {token for token, _ in self._bias}
        if self._penalises:
            touched.update(self._history[-self._window:])
        if self._params.dry_multiplier:
            touched.update(self._history[-self._dry_window:])
        return [token for token in touched if token < self._n_vocab]

    def close(self) -> None:
        """Free the native samplers. Safe to call twice."""
        for sampler in self._adjusters:
            lib.llama_sampler_free(sampler)
        self._adjusters = []
        if self._grammar:
            lib.llama_sampler_free(self._grammar)
            self._grammar = None
        if self._filters and not self._filters_shared:
            lib.llama_sampler_free(self._filters)
        self._filters = None


class _CandidateBuffer:
    """The array llama.cpp's samplers work on: id, logit, p per candidate. Reused for every position."""

    def __init__(self, n_vocab: int) -> None:
        self._blank = np.zeros(n_vocab, dtype=_CANDIDATE)
        self._blank["id"] = np.arange(n_vocab, dtype=np.int32)
        self._work = self._blank.copy()
        self._array = lib.llama_token_data_array()
        self._distance = 8.0

    def full(self, logits: NDArray[np.float32]) -> NDArray[Any]:
        """All tokens with their raw logits; a view that the next call overwrites."""
        np.copyto(self._work, self._blank)
        self._work["logit"] = logits
        return self._work

    def shortlist(
        self, logits: NDArray[np.float32], top: float, keep: int, extra: list[int]
    ) -> tuple[NDArray[Any], float]:
        """At least `keep` of the highest raw logits (`top` is the highest) and all of `extra`; and the floor that all
        others are below."""
        while True:
            floor = top - self._distance
            ids = np.flatnonzero(logits >= floor)
            if len(ids) >= min(keep + len(extra), len(logits)):
                break
            self._distance *= 1.5
        if len(ids) > 2 * SHORTLIST_AIM:
            self._distance *= 0.9
        if extra:
            ids = np.union1d(ids, extra)
        found = np.empty(len(ids), dtype=_CANDIDATE)
        found["id"], found["logit"] = ids, logits[ids]
        return found, floor

    def apply(self, sampler: Any, found: NDArray[Any]) -> NDArray[Any]:
        """Run one native sampler over `found`, in place; the candidates it left."""
        array: Any = self._array
        address = found.ctypes.data
        array.data = ctypes.cast(address, lib.llama_token_data_p)
        array.size, array.selected, array.sorted = len(found), -1, False
        started = time.perf_counter()
        lib.llama_sampler_apply(sampler, ctypes.byref(array))
        count_native(started)
        start = (ctypes.addressof(array.data.contents) - address) // _CANDIDATE.itemsize
        if not 0 <= start <= len(found):
            raise BadRequest("this sampler moves its candidates elsewhere")  # none in the chain does
        return found[start : start + array.size]


def _checked(entry: tuple[int, float], n_vocab: int | None) -> tuple[int, float]:
    """A logit bias that llama.cpp can add. Raises BadRequest."""
    token, value = entry
    if token < 0 or (n_vocab is not None and token >= n_vocab):
        known = "" if n_vocab is None else f"; the model has ids 0 to {n_vocab - 1}"
        raise BadRequest(f"logit bias names token {token}{known}")
    if not value < np.inf:
        raise BadRequest(f"the logit bias of token {token} is {value}; it must be a number, or -inf to forbid the token")
    return entry


def _check_top(logit: float) -> None:
    """A model whose file or arithmetic is broken gives NaN, which no comparison would notice."""
    if not np.isfinite(logit):
        raise DecodeFailed(f"the model's highest logit is {logit}, not a number: its file may be damaged")


def _parse_grammar(model: Model, text: str) -> Any:
    """The native grammar sampler. Raises BadRequest with the parser's reason, which it prints to the terminal."""
    if not text.strip():
        raise BadRequest("the grammar is empty; llama.cpp would take that as leave to write anything")
    take_complaints()
    with captured_stderr() as printed:
        grammar = lib.llama_sampler_init_grammar(model.vocab, text.encode(), b"root")
    if not grammar:
        reason = printed[0].rpartition("error parsing grammar: ")[2] if printed else take_complaints()
        raise BadRequest(f"the grammar does not parse: {reason or 'llama.cpp gives no reason'}")
    return grammar


def grammar_text(params: SamplingParams) -> str | None:
    """The request's grammar as GBNF; a JSON schema is translated. Raises BadRequest when the schema is no JSON schema."""
    if params.json_schema is None:
        return params.grammar
    try:
        text: str = json_schema_to_gbnf(params.json_schema)
    except Exception as error:  # the translator raises bare asserts, KeyErrors and ValueErrors alike
        raise BadRequest(f"the JSON schema cannot be turned into a grammar: {type(error).__name__}: {error}") from error
    return text
