from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from engine import GenerationRequest, LoadCancelled, LoadConfig, LoadFailed, SamplingParams
from engine.engine import Engine
from engine.likelihood import Continuation, _log_probability, likelihoods
from engine.values import Finished

PROMPT = "The quick brown fox "


def config(target: Path) -> LoadConfig:
    return LoadConfig(target=target, context=512, threads=1)


def written(target: Path) -> str:
    with Engine(config(target)) as engine:
        request = GenerationRequest(prompt=PROMPT, sampling=SamplingParams(temperature=0.0), max_tokens=100, mode="plain")
        return next(event.text for event in engine.generate(request) if isinstance(event, Finished))


def test_a_model_finds_its_own_greedy_reply_likelier_than_another_text(target: Path) -> None:
    own = written(target)
    mine, other, nothing = likelihoods(
        config(target), [Continuation(PROMPT, own), Continuation(PROMPT, own[::-1]), Continuation(PROMPT, "")]
    )
    assert mine.total / mine.tokens > other.total / other.tokens
    assert mine.total < 0
    assert (nothing.total, nothing.tokens) == (0.0, 0)


def test_only_the_reply_counts_and_it_counts_after_its_prompt(target: Path) -> None:
    """log p(ab) after the prompt = log p(a) after the prompt + log p(b) after prompt and a, across the window's edge."""
    a, b = "x" * 70, "y" * 30
    whole, first, second = likelihoods(
        config(target), [Continuation(PROMPT, a + b), Continuation(PROMPT, a), Continuation(PROMPT + a, b)]
    )
    assert whole.total == pytest.approx(first.total + second.total, rel=1e-3)
    assert (whole.tokens, first.tokens, second.tokens) == (100, 70, 30)
    assert math.isfinite(whole.total)


def test_progress_cancelling_and_what_cannot_be_loaded(target: Path, truncated: Path) -> None:
    seen: list[float] = []
    likelihoods(config(target), [Continuation("a", "b")] * 2, on_progress=seen.append)
    assert seen == [0.5, 1.0]
    with pytest.raises(LoadFailed):
        likelihoods(config(truncated), [Continuation("a", "b")])
    with pytest.raises(LoadCancelled):
        likelihoods(config(target), [Continuation("a", "b")], cancelled=lambda: True)


def test_a_log_probability_is_one() -> None:
    logits = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    assert _log_probability(logits, 2) == pytest.approx(3 - math.log(sum(map(math.exp, (1, 2, 3)))))
