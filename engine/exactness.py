"""What the target alone says about a text: every token is read again, in a cache of its own, with nothing sampled.

The reading shares no cache, no draft and no round with the engine that wrote the text, so it finds faults of theirs.
It is not free of rounding: a decode of several rows does not give bit for bit the logits of single rows (other kernels,
other orders of summing), and where the two best tokens nearly tie the choice can flip. How much that is on this build and
machine is measured by reading one text in several ways (`rounding`), never assumed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from engine.llama.model import Model
from engine.llama.sampler import SamplerChain
from engine.sampling import Distribution, SamplingParams
from engine.values import TokenId

if TYPE_CHECKING:
    from engine.engine import Engine

TOP = 8
"""Best tokens of a place whose scores are compared between two readings: only they can trade places."""
MAX_ROWS = 64
"""Most rows read with their logits at once; a row of a large vocabulary is 600 KB."""
SAFETY = 1.25
"""A near tie is a gap of at most this many times the largest rounding seen. On the starter pair (4 bits, CPU) the largest
change in the distance between any two of TOP tokens is 0.58 nats in 966 places, and 0.5 in a mere 14 of them; one given
pair of tokens moves by 0.11 on average (root mean square), so that a flip beyond the bound is one of more than five of
its standard deviations, however few places were read."""
END: Literal[-1] = -1
"""Stands for whichever end-of-generation token ended a reply."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the target says at one place of a text. Scores are logits after bias, penalties, DRY and grammar, in nats."""

    token: TokenId
    """What stands there; END where the reply ended."""
    best: TokenId
    """What the target would choose at temperature 0."""
    gap: float
    """How far the token's score is below the best one's; 0 when it is the best."""
    log_probability: float
    """Of the token at temperature 1 without filters."""
    top_ids: NDArray[np.int64]
    """(TOP,) ids of the best tokens, ascending."""
    top_scores: NDArray[np.float64]
    """(TOP,) their scores."""


class Rereader:
    """A second cache on the engine's target, with the engine's own settings. Close it after use.

    It takes memory for a context of `length` tokens; `engine.cancel` stops its decodes, too.
    """

    def __init__(self, engine: Engine, length: int) -> None:
        """length: tokens of the longest text to read. Raises LoadFailed."""
        n_ctx = min(engine.context, max(length, 256))
        self.model: Model = engine.target
        self.max_rows = min(MAX_ROWS, engine.config.batch, n_ctx)
        self.context = engine.open_cache(n_ctx, self.max_rows)
        self._prompt: tuple[TokenId, ...] = ()
        self._ends: NDArray[np.int64] | None = None

    @property
    def ends(self) -> NDArray[np.int64]:
        """The end-of-generation tokens, ascending."""
        if self._ends is None:
            self._ends = np.array([t for t in range(self.model.n_vocab) if self.model.is_end(t)], dtype=np.int64)
        return self._ends

    def rows(self, prompt: Sequence[TokenId], reply: Sequence[TokenId], block: int) -> Iterator[NDArray[np.float32]]:
        """len(reply) + 1 rows of (n_vocab,) logits: before each token of the reply and after its last. Each is valid until
        the next is asked for. The prompt is read as a reply reads it, the reply in decodes of `block` rows.

        Raises DecodeAborted, DecodeFailed.
        """
        yield self._read_prompt(prompt)
        block = min(block, self.max_rows)
        for start in range(0, len(reply), block):
            tokens = reply[start : start + block]
            self.context.decode(tokens, len(prompt) + start, len(tokens))
            for i in range(len(tokens)):
                yield self.context.logits(i)
        self._prompt = ()

    def after(self, prompt: Sequence[TokenId], beginning: Sequence[TokenId]) -> NDArray[np.float32]:
        """(n_vocab,) what follows `prompt` and these tokens. A prompt asked about again is not read again."""
        if self._prompt != tuple(prompt) or not self.context.truncate(len(prompt) - 1):
            logits = self._read_prompt(prompt)
            self._prompt = tuple(prompt)
            if not beginning:
                return logits
            self.context.decode(beginning, len(prompt), 1)
            return self.context.logits(0)
        self.context.decode([prompt[-1], *beginning], len(prompt) - 1, 1)
        return self.context.logits(0)

    def _read_prompt(self, prompt: Sequence[TokenId]) -> NDArray[np.float32]:
        """In the batches that Session reads it in."""
        self.context.clear()
        self._prompt = ()
        size, position = self.context.batch_size, 0
        while len(prompt) - position > size:
            self.context.decode(prompt[position : position + size], position, 0)
            position += size
        self.context.decode(prompt[position:], position, 1)
        return self.context.logits(0)

    def close(self) -> None:
        self.context.close()

    def __enter__(self) -> Rereader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Law:
    """What a request's settings make of the logits along one reply. Close it after use."""

    def __init__(self, model: Model, params: SamplingParams, n_ctx: int, prompt: Sequence[TokenId]) -> None:
        self._open: SamplerChain | None = None
        self.chain = SamplerChain(model, params, n_ctx)
        self.chain.begin(prompt)
        if self.chain.stateful or params.logit_bias:
            free = replace(params, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, typical_p=1.0)
            self._open = SamplerChain(model, free, n_ctx)
            self._open.begin(prompt)

    def scores(self, logits: NDArray[np.float32]) -> NDArray[np.float64]:
        """(n_vocab,) logits after bias, penalties, DRY and grammar, up to a constant; -inf where forbidden."""
        if self._open is None:
            return logits.astype(np.float64)
        found = self._open.distribution(logits)
        scores = np.full(len(logits), -np.inf)
        with np.errstate(divide="ignore"):
            scores[found.ids] = np.log(found.probs)
        return scores

    def distribution(self, logits: NDArray[np.float32]) -> Distribution:
        """What the next token is drawn from."""
        return self.chain.distribution(logits)

    def accept(self, token: TokenId) -> None:
        """As SamplerChain.accept: the token must have had a probability above 0."""
        self.chain.accept(token)
        if self._open is not None:
            self._open.accept(token)

    def close(self) -> None:
        self.chain.close()
        if self._open is not None:
            self._open.close()

    def __enter__(self) -> Law:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def read(
    reader: Rereader, prompt: Sequence[TokenId], reply: Sequence[TokenId], params: SamplingParams, *, block: int = 1,
    ended: bool = False, begun: int = 0,
) -> list[Place]:
    """Each place of the reply; with `ended` also the one where it ended.

    begun: how many of the prompt's last tokens are of the reply already, which penalties and a grammar must know.

    Stops behind a token that the settings forbid, whose gap is infinite. Raises as Rereader.rows.
    """
    places: list[Place] = []
    asking = len(prompt) - begun
    with Law(reader.model, params, reader.context.n_ctx, prompt[:asking]) as law:
        for token in prompt[asking:]:
            law.accept(token)
        for i, logits in enumerate(reader.rows(prompt, reply, block)):
            if i == len(reply) and not ended:
                break
            token = reply[i] if i < len(reply) else END
            scores = law.scores(logits)
            places.append(_place(scores, token, reader))
            if token == END or not np.isfinite(scores[token]):
                break
            law.accept(token)
    return places


def _place(scores: NDArray[np.float64], token: TokenId, reader: Rereader) -> Place:
    best = int(scores.argmax())
    top = float(scores[best])
    total = top + float(np.log(np.exp(scores - top).sum()))
    own = _score(scores, token, reader)
    ids = np.sort(np.argpartition(scores, -min(TOP, len(scores)))[-TOP:]).astype(np.int64)
    log_probability = float(np.logaddexp.reduce(scores[reader.ends])) - total if token == END else own - total
    return Place(token, best, top - own, log_probability, ids, scores[ids])


def _score(scores: NDArray[np.float64], token: TokenId, reader: Rereader) -> float:
    if token != END:
        return float(scores[token])
    return float(scores[reader.ends].max()) if len(reader.ends) else -np.inf


@dataclass(frozen=True, slots=True)
class Rounding:
    """How far readings of the same texts disagree, over `places` comparisons of two of them, in nats."""

    places: int
    largest: float
    """The largest change in the distance between two of the TOP best tokens of a place."""
    spread: float
    """Root mean square of that change, over all pairs of them."""

    @property
    def bound(self) -> float:
        """The largest gap that counts as a near tie."""
        return SAFETY * self.largest

    def flip_chance(self, place: Place) -> float:
        """The chance that rounding makes another token than the best one win, taking the change as normal."""
        scores = np.sort(place.top_scores)
        gap = float(scores[-1] - scores[-2]) if len(scores) > 1 else math.inf
        if self.spread <= 0:
            return 0.5 if gap == 0 else 0.0
        return 0.5 * math.erfc(gap / self.spread / math.sqrt(2))


def rounding(readings: Iterable[tuple[Sequence[Place], Sequence[Place]]]) -> Rounding:
    """What two readings each of some texts say about rounding."""
    places, largest, squares, pairs = 0, 0.0, 0.0, 0
    for one, other in readings:
        for a, b in zip(one, other, strict=False):
            _, mine, theirs = np.intersect1d(a.top_ids, b.top_ids, assume_unique=True, return_indices=True)
            change = b.top_scores[theirs] - a.top_scores[mine]
            change = change[np.isfinite(change)]
            if len(change) < 2:
                continue
            places += 1
            largest = max(largest, float(change.max() - change.min()))
            squares += 2 * len(change) * float(((change - change.mean()) ** 2).sum())  # over ordered pairs
            pairs += len(change) * (len(change) - 1)
    return Rounding(places, largest, math.sqrt(squares / pairs) if pairs else 0.0)
