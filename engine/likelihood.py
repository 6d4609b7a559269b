"""How likely a model holds given replies to be, in a process of its own: the mean log-likelihood of texts after their prompts.

Nothing is sampled, so that replies of other models and settings can be judged by one model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from engine.child import child, redirect_output
from engine.errors import EngineError, LoadCancelled, LoadFailed, WorkCancelled
from engine.values import LoadConfig, TokenId

if TYPE_CHECKING:
    from engine.llama.context import Context

_ROWS = 64
"""Rows of logits kept at once; a row of a large vocabulary is 600 KB."""


@dataclass(frozen=True, slots=True)
class Continuation:
    """Raw text and what was written after it. Markers in the prompt are control tokens, in the reply letters."""

    prompt: str
    reply: str


@dataclass(frozen=True, slots=True)
class Likelihood:
    """Of one reply: the sum over its tokens, in nats, and how many they are."""

    total: float
    tokens: int


def likelihoods(
    config: LoadConfig, texts: Sequence[Continuation], *, on_progress: Callable[[float], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> list[Likelihood]:
    """Load `config`'s target alone and read every text; of one longer than `config.context` as much as fits.

    Raises EngineError as loading does, EngineDied, and LoadCancelled soon after `cancelled` turns true.
    """
    found: list[Likelihood] = []
    try:
        with child("paceline likelihood", _work, config, tuple(texts)) as process:
            for kind, value in process.reports(cancelled):
                if kind == "failed":
                    raise LoadFailed(str(value))
                if kind == "done":
                    return found
                found.append(Likelihood(*value))
                on_progress(len(found) / len(texts))
    except WorkCancelled:
        raise LoadCancelled("reading the texts was cancelled") from None
    return found


def log_likelihood(context: Context, tokens: Sequence[TokenId], begun: int, rows: int) -> float:
    """Of the tokens from number `begun` on, after those before them, in nats. Read `rows` at a time; the cache is lost."""
    context.clear()
    total = 0.0
    for first in range(0, len(tokens), rows):
        window = tokens[first : first + rows]
        context.decode(window, first, len(window))
        for row, following in enumerate(tokens[first + 1 : first + 1 + len(window)]):
            if first + row + 1 >= begun:
                total += _log_probability(context.logits(row), following)
    return total


def _log_probability(logits: NDArray[np.float32], token: TokenId) -> float:
    values = logits.astype(np.float64)
    top = float(values.max())
    return float(values[token]) - top - float(np.log(np.exp(values - top).sum()))


# ---- in the child


def _work(connection: Connection, config: LoadConfig, texts: Sequence[Continuation]) -> None:
    redirect_output(config.log_file).close()
    from engine.llama import binding
    from engine.loading import open_context, open_model

    binding.log_to(config.log_file)
    try:
        model = open_model(config, "target")
        context = open_context(config, model, config.context, _ROWS)
        start = [model.bos] if model.bos is not None and model.add_bos else []
        for text in texts:
            prompt = [*start, *model.encode(text.prompt, special=True)]
            tokens = [*prompt, *model.encode(text.reply, special=False)][: context.n_ctx]
            total = log_likelihood(context, tokens, len(prompt), _ROWS)
            connection.send(("text", (total, max(len(tokens) - len(prompt), 0))))
        context.close()
        model.close()
    except EngineError as error:
        connection.send(("failed", str(error)))
    else:
        connection.send(("done", None))
