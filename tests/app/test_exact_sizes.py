"""Where the formula is close, llama.cpp's own figures decide."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.exact_sizes import exact_sizes
from app.options import LoadChoices
from app.plan import CLEAR, QUESTIONS, Figures, fit_into_memory, plan_exactly, plan_pair
from models import DoesNotFit, Hardware, LoadPlan, ModelShape, read_gguf, shape_of
from models.memory import Settings, memory_of
from models.planner import room_for
from tests import tiny_models

MIB, GIB = 1 << 20, 1 << 30
OPEN = LoadChoices()


def cpu(free: int) -> Hardware:
    return Hardware(0, free, 4, 8, 500 * GIB, (), frozenset())


class Told:
    """Answers as llama.cpp would if its sizes were `factor` times the formula's, and counts the questions."""

    def __init__(self, shapes: list[ModelShape], factor: float) -> None:
        self.shapes, self.factor, self.questions = shapes, factor, list[tuple[bool, Mapping[str, Any]]]()

    def __call__(self, use_draft: bool, settings: Mapping[str, Any]) -> list[Figures]:
        self.questions.append((use_draft, settings))
        how = Settings(settings["context"], settings["kv_type"], settings["batch"])
        memories = [
            memory_of(shape, replace(how, output_rows=rows))
            for shape, rows in zip(self.shapes[: 1 + use_draft], (64, 1), strict=False)
        ]
        return [(round(memory.kv * self.factor), round(memory.compute * self.factor), 0) for memory in memories]


@pytest.fixture
def shapes(tmp_path: Path) -> list[ModelShape]:
    """Two models whose caches and buffers are most of what they take."""
    paths = [tiny_models.tiny_target(tmp_path, name, context=1 << 15, seed=seed) for seed, name in enumerate("ab")]
    return [shape_of(read_gguf(path)) for path in paths]


def exactly(shapes: list[ModelShape], free: int, told: Told) -> LoadPlan | DoesNotFit:
    return plan_exactly(shapes[0], shapes[1], cpu(free), LoadChoices(ctx=1 << 15), told)


@pytest.fixture
def needed(shapes: list[ModelShape]) -> int:
    plan = plan_pair(shapes[0], shapes[1], cpu(GIB), LoadChoices(ctx=1 << 15))
    assert isinstance(plan, LoadPlan)
    return plan.host_needed_bytes


def test_a_clear_answer_asks_nobody(shapes: list[ModelShape], needed: int) -> None:
    told = Told(shapes, 5.0)
    assert isinstance(exactly(shapes, round(needed * CLEAR) + 1, told), LoadPlan)
    assert isinstance(exactly(shapes, 20 * MIB, told), DoesNotFit)
    assert told.questions == []


def test_what_llama_cpp_takes_more_is_given_up(shapes: list[ModelShape], needed: int) -> None:
    answer = exactly(shapes, round(needed * 1.02), told := Told(shapes, 1.3))
    assert isinstance(answer, LoadPlan)
    assert answer.given_up
    assert room_for(answer, cpu(round(needed * 1.02))) >= 1
    assert told.questions[0] == (
        True, {"context": 1 << 15, "kv_type": "f16", "batch": 512, "flash_attention": None,
         "target_gpu_layers": 0, "draft_gpu_layers": 0},
    )
    assert 1 < len(told.questions) <= QUESTIONS, "the plan that comes out is asked about too"


def test_what_llama_cpp_takes_less_fits_after_all(shapes: list[ModelShape], needed: int) -> None:
    free = round(needed * 0.97)
    formula = plan_pair(shapes[0], shapes[1], cpu(free), LoadChoices(ctx=1 << 15))
    assert isinstance(formula, LoadPlan)
    assert formula.given_up
    answer = exactly(shapes, free, Told(shapes, 0.8))
    assert isinstance(answer, LoadPlan)
    assert answer.given_up == ()


def test_a_refusal_that_is_close_is_asked_about_too(shapes: list[ModelShape]) -> None:
    smallest = plan_pair(shapes[0], None, cpu(1), LoadChoices(ctx=1 << 15))
    assert isinstance(smallest, DoesNotFit)
    free = smallest.needed_bytes - 1
    assert isinstance(plan_pair(shapes[0], None, cpu(free), LoadChoices(ctx=1 << 15)), DoesNotFit)
    for factor, kind in ((0.9, LoadPlan), (1.1, DoesNotFit)):
        told = Told(shapes, factor)
        answer = plan_exactly(shapes[0], None, cpu(free), LoadChoices(ctx=1 << 15), told)
        assert isinstance(answer, kind)
        assert told.questions


def test_where_llama_cpp_cannot_tell_the_formula_stands(shapes: list[ModelShape], needed: int) -> None:
    choices = LoadChoices(ctx=1 << 15)
    assert plan_exactly(shapes[0], None, cpu(needed), choices, lambda *_: None) == plan_pair(shapes[0], None, cpu(needed), choices)


@pytest.mark.parametrize("kind", ["target", "sliding", "recurrent", "hybrid"])
@pytest.mark.parametrize("kv_type", ["f16", "q8_0"])
def test_the_formula_is_near_llama_cpp_s_figures(kind: str, kv_type: str, request: pytest.FixtureRequest) -> None:
    """Caches to the hundredth of a MiB that it prints, compute buffers within a quarter or a MiB."""
    path = request.getfixturevalue(kind)
    plan = plan_pair(shape_of(read_gguf(path)), None, cpu(GIB), LoadChoices(ctx=2048, kv_type=kv_type))
    assert isinstance(plan, LoadPlan)
    figures = exact_sizes(path, None, {"context": 2048, "kv_type": kv_type})
    assert figures is not None
    ((caches, compute, device),) = figures
    assert caches == pytest.approx(plan.target.kv, abs=0.02 * MIB)
    assert compute == pytest.approx(plan.target.compute, rel=0.25, abs=MIB)
    assert device == 0


def test_files_that_llama_cpp_cannot_read_have_no_figures(truncated: Path, tmp_path: Path) -> None:
    assert exact_sizes(truncated, None, {}) is None
    assert exact_sizes(tmp_path / "none.gguf", None, {}) is None


def test_a_load_that_is_close_asks_llama_cpp(
    target: Path, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a user meets it: the figures that llama.cpp gives this very file decide."""
    shape = shape_of(read_gguf(target))
    plan = plan_pair(shape, None, cpu(GIB), OPEN)
    assert isinstance(plan, LoadPlan)
    figures = exact_sizes(target, None, {"context": plan.context})
    assert figures is not None
    really = plan.host_needed_bytes - plan.target.kv - plan.target.compute + sum(figures[0])
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115 - pytest's own stdin refuses to be read
    for free, fits in ((really + 1000, True), (really - 1000, False)):
        monkeypatch.setattr("app.wiring.this_machine", lambda _, free=free: cpu(free))
        arguments = ["--target", str(target), "--draft", "none", "--ctx", "2048", "--kv-type", "f16"]
        code = main(["ask", *arguments, "-n", "4", "-t", "0", "--threads", "1", "hello"])
        err = capsys.readouterr().err
        assert code == 0
        assert ("to fit into memory" not in err) is fits, err


def test_fit_into_memory_passes_the_figures_on(target: Path) -> None:
    asked = []

    def sizes(use_draft: bool, settings: Mapping[str, Any]) -> None:
        asked.append((use_draft, settings["context"]))

    plan = plan_pair(shape_of(read_gguf(target)), None, cpu(GIB), OPEN)
    assert isinstance(plan, LoadPlan)
    fit_into_memory(target, None, OPEN, cpu(plan.host_needed_bytes), keep_draft=False, instead=lambda: None, sizes=sizes)
    assert asked == [(False, 2048)]
