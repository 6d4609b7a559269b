"""What `models compare` measures is what the engine does."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Engine, LoadCancelled, LoadConfig, LoadFailed, measure
from engine.llama.model import Model

PROMPTS, TEXTS = ("Count to ten.",), ("The quick brown fox jumps over the lazy dog. " * 5, "def f(x):\n    return x\n")


def config(target: Path, draft: Path | None = None) -> LoadConfig:
    return LoadConfig(target=target, draft=draft, context=512, threads=1)


def test_a_model_as_its_own_draft_keeps_everything(target: Path) -> None:
    seen: list[float] = []
    found = measure.measure(config(target, target), PROMPTS, TEXTS, max_tokens=16, on_progress=seen.append)
    assert found.acceptance == 1.0
    assert found.drafted_rate is not None
    assert found.drafted_rate > 0
    assert found.plain_rate > 0
    assert 0 < found.row_seconds < found.block_seconds * 2
    assert found.peak_bytes is None or found.peak_bytes > 1_000_000
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_the_same_file_scores_the_same_and_another_does_not(target: Path, drafts: dict[str, Path]) -> None:
    one, again, other = (measure.measure(config(path), PROMPTS, TEXTS, max_tokens=4) for path in (target, target, drafts["poor"]))
    assert (one.token_loglik, one.byte_loglik) == (again.token_loglik, again.byte_loglik)
    assert one.token_loglik != other.token_loglik
    assert one.token_loglik == pytest.approx(one.byte_loglik, rel=0.05)  # a token of these models is a byte
    assert one.acceptance is None
    assert one.drafted_rate is None


def test_a_text_longer_than_the_window_scores_as_in_one_piece(target: Path) -> None:
    with Engine(LoadConfig(target, context=512, threads=1, max_block=256)) as engine:
        scores = [measure._score(engine, engine.cache.context, window, TEXTS[0]) for window in (16, 64, 256)]
    assert {count for _, count in scores} == {len(TEXTS[0]) - 1}
    assert [total for total, _ in scores] == pytest.approx([scores[2][0]] * 3, rel=1e-3)


def test_what_cannot_be_loaded_and_stopping(target: Path, truncated: Path) -> None:
    with pytest.raises(LoadFailed):
        measure.measure(config(truncated), PROMPTS, TEXTS)
    with pytest.raises(LoadCancelled):
        measure.measure(config(target), PROMPTS, TEXTS, cancelled=lambda: True)


def test_the_text_is_read_with_the_models_own_start(bos_model: Path) -> None:
    with Engine(config(bos_model)) as engine:
        assert measure._score(engine, engine.cache.context, engine.max_block, "abc")[1] == 3
    model = Model(bos_model, vocab_only=True)
    assert model.add_bos
    model.close()
