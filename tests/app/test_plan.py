"""What memory leaves no choice about: decided before anything is loaded, said in one line, refused with what would fit."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from app import plan as planning
from app.cli import main
from app.errors import AppError
from app.machine import shares_memory
from app.options import LoadChoices
from app.plan import (
    DEFAULT_CONTEXT,
    PLENTY_BYTES,
    PLENTY_CONTEXT,
    PLENTY_FACTOR,
    Fitted,
    changes,
    fit_into_memory,
    plan_pair,
    plentiful,
)
from engine.llama.binding import Device as EngineDevice
from engine.values import LoadConfig
from models import (
    Device,
    DoesNotFit,
    Hardware,
    LoadPlan,
    load_catalogue,
    read_gguf,
    shape_from_facts,
    shape_of,
)
from models.planner import BATCHES, KV_TYPES
from tests import tiny_models

MIB, GIB = 1 << 20, 1 << 30
OPEN = LoadChoices()
X86 = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"})
PAIRS = {pair.name: pair for pair in load_catalogue().pairs if all(shape_from_facts(file) for file in pair.files)}


def cpu(free: int) -> Hardware:
    """All of it may be used: without a total there is no reserve."""
    return Hardware(0, free, 4, 8, 500 * GIB, (), X86)


def gpu(free: int) -> Hardware:
    return replace(cpu(64 * GIB), devices=(Device("CUDA0", free, free),))


def nothing() -> str | None:
    return None


def test_the_defaults_are_the_engines() -> None:
    defaults = {field.name: field.default for field in fields(LoadConfig)}
    assert (defaults["context"], defaults["kv_type"], defaults["batch"]) == (DEFAULT_CONTEXT, KV_TYPES[0], BATCHES[0])


@pytest.mark.parametrize("name", PAIRS)
def test_what_counts_as_plentiful_fits_with_nothing_given_up(name: str) -> None:
    """Only then may the headers stay unread: for every pair, at the largest context this is trusted for."""
    target, draft = shape_from_facts(PAIRS[name].target), shape_from_facts(PAIRS[name].draft) if PAIRS[name].draft else None  # type: ignore[arg-type]
    assert target is not None
    room = PLENTY_FACTOR * (target.file_bytes + (draft.file_bytes if draft else 0)) + PLENTY_BYTES
    for machine in (cpu(room), gpu(room)):
        answer = plan_pair(target, draft, machine, LoadChoices(ctx=PLENTY_CONTEXT), keep_draft=True)
        assert isinstance(answer, LoadPlan)
        assert answer.given_up == ()


def test_headers_are_read_only_where_memory_is_not_plentiful(
    target: Path, draft: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []
    monkeypatch.setattr(planning, "read_gguf", lambda path: read.append(path) or read_gguf(path))
    fit_into_memory(target, draft, OPEN, cpu(8 * GIB), keep_draft=False, instead=nothing)
    assert read == []
    fit_into_memory(target, draft, OPEN, cpu(GIB), keep_draft=False, instead=nothing)
    fit_into_memory(target, draft, LoadChoices(ctx=PLENTY_CONTEXT + 1), cpu(8 * GIB), keep_draft=False, instead=nothing)
    assert read == [target, draft, target, draft]


def test_a_gpu_with_little_room_is_not_plentiful(target: Path) -> None:
    assert plentiful([target], OPEN, gpu(8 * GIB))
    assert not plentiful([target], OPEN, gpu(GIB))


def test_all_pieces_of_a_split_model_count(tmp_path: Path) -> None:
    pieces = [tmp_path / f"big-{n:05d}-of-00002.gguf" for n in (1, 2)]
    for piece in pieces:
        with piece.open("wb") as file:
            file.truncate(GIB)
    assert not plentiful(pieces[:1], OPEN, cpu(6 * GIB))
    assert plentiful(pieces[:1], OPEN, cpu(8 * GIB + MIB))


# -- what the plan changes ------------------------------------------------------------------------------------


def shapes(name: str) -> tuple[Any, Any]:
    pair = PAIRS[name]
    assert pair.draft
    return shape_from_facts(pair.target), shape_from_facts(pair.draft)


def planned(name: str, machine: Hardware, choices: LoadChoices = OPEN) -> dict[str, Any]:
    target, draft = shapes(name)
    answer = plan_pair(target, draft, machine, choices)
    assert isinstance(answer, LoadPlan), answer.reason
    return changes(answer, target, draft, choices, machine)


def test_a_plan_that_gives_nothing_up_leaves_every_setting_to_the_engine() -> None:
    for machine in (cpu(32 * GIB), gpu(24 * GIB)):
        assert planned("llama-3.1-8b", machine) == {}
        assert planned("llama-3.1-8b", machine, LoadChoices(ctx=16_384, kv_type="q8_0", gpu_layers=5)) == {}


def test_less_memory_means_less_context_first_and_never_what_was_asked_for() -> None:
    target, draft = shapes("llama-2-13b")
    full = plan_pair(target, draft, cpu(64 * GIB), OPEN)
    assert isinstance(full, LoadPlan)
    assert full.context == min(DEFAULT_CONTEXT, target.trained_context)
    tight = cpu(full.host_needed_bytes - 100 * MIB)
    assert planned("llama-2-13b", tight) == {"context": 2048}
    kept = planned("llama-2-13b", tight, LoadChoices(ctx=4096))
    assert "context" not in kept
    assert kept["kv_type"] == "q8_0"


def test_layers_that_have_no_room_on_the_gpu_stay_on_the_host_and_the_draft_keeps_its_place() -> None:
    changed = planned("llama-3.1-8b", gpu(5 * GIB))
    assert 0 < changed["target_gpu_layers"] < 32
    assert "draft_gpu_layers" not in changed
    assert "target_gpu_layers" not in planned("llama-3.1-8b", gpu(5 * GIB), LoadChoices(gpu_layers=3))


def test_a_context_beyond_what_the_model_learned_is_planned_as_it_will_be_loaded() -> None:
    target, draft = shapes("llama-2-13b")
    answer = plan_pair(target, draft, cpu(64 * GIB), LoadChoices(ctx=1_000_000))
    assert isinstance(answer, LoadPlan)
    assert answer.context == target.trained_context


# -- refusals -------------------------------------------------------------------------------------------------


@pytest.fixture
def not_for_both(target: Path, draft: Path) -> int:
    """One byte less than the tiny pair needs with everything given up but the draft."""
    answer = plan_pair(shape_of(read_gguf(target)), shape_of(read_gguf(draft)), cpu(1), OPEN, keep_draft=True)
    assert isinstance(answer, DoesNotFit)
    return answer.needed_bytes - 1


@pytest.fixture
def needed(target: Path, draft: Path) -> int:
    """Bytes that the tiny pair takes at 2,048 tokens, which is all it learned."""
    answer = plan_pair(shape_of(read_gguf(target)), shape_of(read_gguf(draft)), cpu(GIB), OPEN)
    assert isinstance(answer, LoadPlan)
    return answer.host_needed_bytes


def fit(target: Path, draft: Path | None, free: int, choices: LoadChoices = OPEN, *, keep_draft: bool = False,
        instead: Callable[[], str | None] = nothing) -> Fitted:
    return fit_into_memory(target, draft, choices, cpu(free), keep_draft=keep_draft, instead=instead)


def test_a_draft_nobody_asked_for_goes_and_that_is_said(
    target: Path, draft: Path, needed: int, not_for_both: int
) -> None:
    assert fit(target, draft, needed) == Fitted()
    assert fit(target, draft, not_for_both + 1).use_draft
    without = fit(target, draft, not_for_both)
    assert not without.use_draft
    assert without.remark is not None
    assert without.remark.startswith("to fit into memory: ")
    assert "no draft model" in without.remark


def test_what_does_not_fit_is_refused_with_numbers_and_what_would(target: Path, draft: Path) -> None:
    with pytest.raises(AppError) as refusal:
        fit(target, draft, 50 * MIB, instead=lambda: "--target small would fit")
    assert str(refusal.value) == (
        "target.gguf needs 0.1 GB of memory and 0.1 GB are free, even with 2,048 tokens of context and without its draft; "
        "--target small would fit; --force loads it all the same"
    )


def test_where_only_the_wishes_stand_in_the_way_they_are_named(
    target: Path, draft: Path, not_for_both: int, tmp_path: Path
) -> None:
    with pytest.raises(AppError, match="without the draft it fits with 2,048 tokens of context"):
        fit(target, draft, not_for_both, keep_draft=True, instead=lambda: pytest.fail("nothing else is needed"))
    longer = tiny_models.tiny_target(tmp_path, "longer", context=1 << 20)
    with pytest.raises(AppError, match="without --ctx it fits with"):
        fit(longer, None, 200 * MIB, LoadChoices(ctx=1 << 20), instead=nothing)


def test_force_overrides_and_says_what_it_overrides(target: Path, draft: Path) -> None:
    forced = fit(target, draft, 50 * MIB, LoadChoices(force=True))
    assert (forced.use_draft, forced.settings) == (True, {})
    assert forced.remark is not None
    assert "--force" in forced.remark


def test_a_file_whose_header_cannot_be_read_is_left_to_the_load(truncated: Path) -> None:
    assert fit(truncated, None, 50 * MIB) == Fitted()


# -- as a user meets it ---------------------------------------------------------------------------------------


@pytest.fixture
def ask(
    home: Path, target: Path, draft: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115 - pytest's own stdin refuses to be read

    def run(free: int, *args: str, with_draft: bool = False) -> tuple[int, str, str]:
        monkeypatch.setattr("app.wiring.this_machine", lambda _: cpu(free))
        models = ["--target", str(target), *(["--draft", str(draft)] if with_draft else [])]
        code = main(["ask", *models, "-n", "4", "-t", "0", "--threads", "1", *args, "hello"])
        return code, *capsys.readouterr()

    return run


def test_ask_refuses_before_it_loads(ask: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.wiring.Engine", lambda *_: pytest.fail("something was loaded"))
    code, out, err = ask(50 * MIB)
    assert (code, out) == (1, "")
    assert err.startswith("paceline: target.gguf needs ")
    assert len(err.splitlines()) == 1


def test_ask_loads_it_all_the_same_when_forced(ask: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = ask(50 * MIB, "--force")
    assert (code, bool(out.strip())) == (0, True)
    assert "--force" in err


def test_ask_runs_with_what_the_plan_left(
    ask: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    configs: list[LoadConfig] = []
    from app import wiring

    real = wiring.Engine
    monkeypatch.setattr("app.wiring.Engine", lambda config, *rest: configs.append(config) or real(config, *rest))
    monkeypatch.setattr(
        "app.wiring.fit_into_memory",
        lambda *_, **__: Fitted(use_draft=False, settings={"context": 512}, remark="to fit into memory: less"),
    )
    code, out, err = ask(GIB, with_draft=True)
    assert (code, bool(out.strip())) == (0, True)
    assert err.splitlines()[0] == "paceline: to fit into memory: less"
    assert [(config.context, config.draft) for config in configs] == [(512, None)]


def test_what_cannot_run_here_is_not_even_fetched(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("app.wiring.this_machine", lambda _: cpu(6 * GIB))
    monkeypatch.setattr("app.wiring.fetch", lambda *_, **__: pytest.fail("something was fetched"))
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115 - pytest's own stdin refuses to be read
    assert main(["ask", "--yes", "--target", "qwen2.5-coder-32b", "hello"]) == 1
    err = capsys.readouterr().err
    assert re.search(r"qwen2\.5-coder-32b needs .* \(an estimate, before it is downloaded\); --target \S+ would fit; --force", err)
    monkeypatch.setattr("app.wiring.fetch", lambda *_, **__: (_ for _ in ()).throw(AppError("on its way")))
    assert main(["ask", "--yes", "--target", "qwen2.5-coder-32b", "--force", "hello"]) == 1
    assert capsys.readouterr().err == "paceline: on its way\n"
    monkeypatch.setattr("app.wiring.this_machine", lambda _: cpu(20 * GIB))
    assert main(["ask", "--yes", "--target", "qwen2.5-coder-32b", "--ctx", "32768", "hello"]) == 1
    doubt, fetched = capsys.readouterr().err.splitlines()
    assert "(an estimate, before it is downloaded); --target" in doubt, "an estimate that may be wrong is only said"
    assert fetched == "paceline: on its way"


def test_the_smallest_plan_of_a_refusal_has_the_numbers(target: Path) -> None:
    answer = plan_pair(shape_of(read_gguf(target)), None, cpu(50 * MIB), OPEN)
    assert isinstance(answer, DoesNotFit)
    assert answer.needed_bytes > answer.available_bytes


@pytest.mark.parametrize(
    ("name", "description", "shared"),
    [
        ("CUDA0", "NVIDIA GeForce RTX 3060", False), ("MTL0", "Apple M2", True), ("Metal", "Apple M1", True),
        ("Vulkan0", "Intel(R) UHD Graphics 770", True), ("Vulkan0", "Intel(R) Arc(tm) A770 Graphics", False),
        ("Vulkan0", "AMD Radeon Graphics (RADV RENOIR)", True), ("Vulkan0", "AMD Radeon RX 7900 XTX", False),
    ],
)
def test_which_gpus_share_the_machines_memory(name: str, description: str, shared: bool) -> None:
    assert shares_memory(EngineDevice(name, description, 1, 1)) == shared
