"""Checks a finished reply against the target alone: greedy tokens must be its first choice, drawn ones must look drawn.

Meant for idle time: the whole text is read once more, in blocks, in a cache of its own, which costs about what reading
it as a prompt costs and, while it lasts, memory for as many tokens. `engine.cancel` stops it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import psutil

from engine.errors import DecodeAborted, DecodeFailed, LoadFailed
from engine.evidence import Evidence
from engine.exactness import MAX_ROWS, Law, Place, Rereader, read, rounding
from engine.sampling import Distribution, SamplingParams
from engine.shadow_result import ShadowResult, Verdict
from engine.values import GenerationRequest, TokenId, Written

if TYPE_CHECKING:
    from engine.engine import Engine

FALSE_ALARM = 1e-4
"""Chance that a right reply, drawn at a temperature, is called a drift."""
WINDOW = 24
"""Places around a departure that are read singly to learn how much rounding does."""
SPARE_BYTES = 1 << 30
"""Memory that must be free besides the second cache, for its compute buffers and for everybody else."""
BORDER = 0.5
"""Nats that rounding may move a score by, where a filter's edge decides whether a token is allowed at all."""


def check_reply(engine: Engine, request: GenerationRequest, written: Written) -> ShadowResult:
    """Read a reply to `request` again. Never raises what a busy or full machine can cause: then nothing was checked."""
    if not written.reply:
        return ShadowResult("not checked", reason="the reply is empty")
    needed = engine.cache.context.state_bytes() + SPARE_BYTES
    if needed > psutil.virtual_memory().available:
        return ShadowResult("not checked", reason=f"it takes {needed / 1e9:.1f} GB of memory, which are not free")
    try:
        with Rereader(engine, len(written.prompt) + len(written.reply)) as reader:
            check = _check_greedy if request.sampling.greedy else _check_drawn
            return check(reader, written, request.sampling)
    except DecodeAborted:
        return ShadowResult("not checked", reason="stopped")
    except (LoadFailed, DecodeFailed) as error:
        return ShadowResult("not checked", reason=str(error))


def _check_greedy(reader: Rereader, written: Written, params: SamplingParams) -> ShadowResult:
    places = read(reader, written.prompt, written.reply, params, block=MAX_ROWS, ended=written.ended)
    gaps = [place.gap for place in places]
    mean = float(np.mean([place.log_probability for place in places]))
    departures = [i for i, gap in enumerate(gaps) if gap > 0]
    if not departures:
        return ShadowResult("exact", len(written.reply), log_likelihood=mean)
    worst = max(departures, key=lambda i: gaps[i])
    bound = _bound_around(reader, written, params, places, worst)
    verdict: Verdict = "near ties" if gaps[worst] <= bound else "drift"
    return ShadowResult(verdict, len(written.reply), len(departures), gaps[worst], bound, log_likelihood=mean)


def _bound_around(
    reader: Rereader, written: Written, params: SamplingParams, places: Sequence[Place], place: int
) -> float:
    """How large a gap rounding explains there: some places are read singly and compared with the reading in blocks."""
    start = max(0, min(place - WINDOW // 2, len(written.reply) - WINDOW))
    window = written.reply[start : start + WINDOW]
    before = written.prompt + written.reply[:start]  # read as a prompt: quickly
    singly = read(reader, before, window, params, begun=start)
    return rounding([(singly, places[start : start + len(singly)])]).bound


def _check_drawn(reader: Rereader, written: Written, params: SamplingParams) -> ShadowResult:
    drawn = read_drawn(reader, written, params)
    forbidden = int(drawn.forbidden)
    verdict: Verdict = "drift" if forbidden or drawn.e_value > 1 / FALSE_ALARM else "exact"
    return ShadowResult(
        verdict, len(written.reply), forbidden=forbidden, borderline=drawn.borderline, e_value=drawn.e_value,
        log_likelihood=drawn.log_likelihood,
    )


@dataclass(frozen=True, slots=True)
class Drawn:
    """A drawn reply under the distributions it is said to be drawn from."""

    log_likelihood: float
    """Mean for a token, of those that the distributions allow."""
    e_value: float
    forbidden: bool
    """A token without any probability ended the reading."""
    borderline: int


def read_drawn(reader: Rereader, written: Written, params: SamplingParams) -> Drawn:
    """Read a reply at a temperature above 0 again. Raises as Rereader.rows."""
    evidence, logs, borderline, forbidden = Evidence(), [], 0, False
    n_ctx = reader.context.n_ctx
    with Law(reader.model, params, n_ctx, written.prompt) as law, Law(reader.model, _loosened(params), n_ctx, written.prompt) as looser:
        for i, logits in enumerate(reader.rows(written.prompt, written.reply, MAX_ROWS)):
            if i == len(written.reply) and not written.ended:
                break
            q = _merged(law.distribution(logits), reader)
            token = written.reply[i] if i < len(written.reply) else int(reader.ends[0])
            probability = q.prob(token)
            if probability > 0:
                evidence.add(q, probability)
                logs.append(math.log(probability))
            elif _merged(looser.distribution(logits), reader).prob(token) > 0:
                borderline += 1
            else:
                forbidden = True
                break
            if i < len(written.reply):
                law.accept(token)
                looser.accept(token)
    return Drawn(float(np.mean(logs)) if logs else 0.0, evidence.value(), forbidden, borderline)


def _merged(law: Distribution, reader: Rereader) -> Distribution:
    """`law` with all end tokens counted as one, the first: which of them ended a reply is not kept."""
    ends = np.isin(law.ids, reader.ends)
    if not ends.any():
        return law
    first: TokenId = int(reader.ends[0])
    ids, probs = np.append(law.ids[~ends], first), np.append(law.probs[~ends], law.probs[ends].sum())
    order = np.argsort(ids)
    return Distribution(ids[order].astype(np.int32), probs[order])


def _loosened(params: SamplingParams) -> SamplingParams:
    """Filters whose edges are moved by what rounding may do."""
    tail = math.exp(-2 * BORDER)
    return replace(
        params, top_k=params.top_k + 8 if params.top_k else 0, top_p=1 - (1 - params.top_p) * tail, min_p=params.min_p * tail,
        typical_p=1 - (1 - params.typical_p) * tail,
    )
