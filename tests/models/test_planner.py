"""Plans for simulated machines: what fits stays fitting, what was asked for is kept, what is given up is said."""

from __future__ import annotations

import functools
import itertools

import pytest

from models import load_catalogue
from models.hardware import Device, Hardware
from models.memory import Memory
from models.planner import DoesNotFit, LoadPlan, Wishes, plan_load
from models.shape import Layer, ModelShape, shape_from_facts

CATALOGUE = load_catalogue()
GIB = 1 << 30
X86 = frozenset({"Q4_0", "Q4_K", "IQ4_NL", "MXFP4"})
ARM = X86 | {"Q5_K", "Q6_K", "Q8_0"}


def cuda(gib: int, ram: int = 32) -> Hardware:
    device = Device("CUDA0", gib * GIB, int(gib * GIB * 0.96))
    return Hardware(ram * GIB, int(ram * GIB * 0.85), 8, 16, 500 * GIB, (device,), X86)


def metal(gib: int) -> Hardware:
    """Apple's GPU may use about 70 % of the memory it shares."""
    device = Device("Metal", gib * GIB, int(gib * GIB * 0.7), unified=True)
    return Hardware(gib * GIB, int(gib * GIB * 0.75), 8, 8, 500 * GIB, (device,), ARM)


def cpu(gib: int) -> Hardware:
    return Hardware(gib * GIB, int(gib * GIB * 0.75), 4, 8, 500 * GIB, (), X86)


MACHINES = {
    "cuda8": cuda(8), "cuda12": cuda(12), "cuda16": cuda(16), "cuda24": cuda(24),
    "metal8": metal(8), "metal16": metal(16), "metal32": metal(32), "cpu8": cpu(8), "cpu16": cpu(16),
}  # fmt: skip


@functools.cache
def facts(name: str) -> tuple[ModelShape, ModelShape | None]:
    pair = CATALOGUE.pair(name)
    target = shape_from_facts(pair.target)
    assert target is not None
    return target, shape_from_facts(pair.draft) if pair.draft else None


def plan(name: str, machine: Hardware, wishes: Wishes | None = None) -> LoadPlan | DoesNotFit:
    return plan_load(*facts(name), machine, wishes)


def fits(name: str, machine: Hardware, wishes: Wishes | None = None) -> LoadPlan:
    answer = plan(name, machine, wishes)
    assert isinstance(answer, LoadPlan), answer.reason
    return answer


# Placement of every pair whose files are known well enough: (g)pu, (s)plit, (c)pu, (-) does not fit; with a d: only
# without the draft.


def label(answer: LoadPlan | DoesNotFit, has_draft: bool) -> str:
    if isinstance(answer, DoesNotFit):
        return "-"
    return answer.placement[0] + ("d" if has_draft and not answer.use_draft else "")


PLACEMENTS = {
    #  cuda: 8 12 16 24 GB, metal: 8 16 32 GB, CPU only: 8 16 GB
    "starter": "g g g g g g g c c",
    "qwen2.5-coder-3b": "g g g g g g g c c",
    "qwen2.5-coder-7b": "g g g g gd g g c c",
    "qwen2.5-coder-14b": "s g g g - g g - c",
    "qwen2.5-coder-32b": "s s s g - - g - -",
    "qwen2.5-coder-7b-1.5b": "g g g g gd g g cd c",
    "qwen2.5-coder-14b-1.5b": "s g g g - g g - c",
    "qwen2.5-coder-32b-1.5b": "s s s g - - g - -",
    "qwen2.5-7b": "g g g g gd g g c c",
    "qwen2.5-14b": "s g g g - g g - c",
    "qwen3-4b": "g g g g g g g c c",
    "qwen3-8b": "g g g g gd g g cd c",
    "qwen3-14b": "s g g g - g g - c",
    "qwen3-32b": "s s s g - - g - -",
    "qwen3-32b-1.7b": "s s s g - - g - -",
    "qwen3-4b-2507": "g g g g g g g c c",
    "llama-3.2-3b": "g g g g g g g c c",
    "llama-3.1-8b": "g g g g gd g g cd c",
    "llama-3.1-8b-3b": "g g g g gd g g cd c",
    "gemma-3-4b": "g g g g g g g c c",
    "gemma-3-12b": "s g g g - g g - c",
    "gemma-3-27b": "s s s g - - g - -",
    "gemma-3-4b-270m": "g g g g g g g c c",
    "gemma-3-12b-270m": "s g g g - g g - c",
    "smollm2-1.7b": "g g g g g g g c c",
    "smollm2-1.7b-360m": "g g g g g g g c c",
    "smollm3-3b": "g g g g g g g c c",
    "deepseek-r1-7b": "g g g g gd g g cd c",
    "deepseek-r1-14b": "s g g g - g g - c",
    "gemma-4-12b": "s g g g - gd g - c",
    "gemma-4-31b": "s s s g - - gd - -",
    "gemma-4-e4b": "g g g g - g g c c",
    "qwen3.5-27b": "s s s g - - g - -",
    "gemma-2-9b": "s g g g - g g - c",
    "llama-2-13b": "s g g g - g g - c",
    "mixtral-8x7b": "s s s s - - - - -",
}


@pytest.mark.parametrize("name", PLACEMENTS)
def test_where_each_catalogue_pair_runs(name: str) -> None:
    target, draft = facts(name)
    got = " ".join(
        label(plan_load(target, draft, machine), draft is not None) for machine in MACHINES.values()
    )
    assert got == " ".join(PLACEMENTS[name].split())


def test_the_table_has_every_pair_whose_sizes_are_known() -> None:
    known = {
        pair.name
        for pair in CATALOGUE.pairs
        if not pair.unusable and all(shape_from_facts(file) for file in pair.files)
    }
    assert known == set(PLACEMENTS)


@pytest.mark.parametrize(("name", "machine"), list(itertools.product(PLACEMENTS, MACHINES)))
def test_a_plan_is_within_the_machine_and_says_what_it_gave_up(name: str, machine: str) -> None:
    hardware = MACHINES[machine]
    answer = plan(name, hardware)
    if isinstance(answer, DoesNotFit):
        assert answer.needed_bytes > answer.available_bytes
        assert "GB" in answer.reason
        return
    assert answer.device_bytes <= sum(device.free_bytes for device in hardware.devices)
    unified = answer.device_bytes if any(device.unified for device in hardware.devices) else 0
    assert answer.host_needed_bytes + unified <= hardware.available_bytes
    assert answer.host_needed_bytes <= answer.host_peak_bytes
    text = " ".join(answer.given_up)
    assert ("context" in text) == (answer.context < min(8192, facts(name)[0].trained_context))
    assert ("KV" in text) == (answer.kv_type != "f16")
    if not hardware.devices:
        assert answer.device_bytes == 0
    elif answer.use_draft and answer.draft is not None and answer.target_gpu_layers:
        assert answer.draft.device_kv > 0, "the draft goes to the GPU first"


def test_gemma_2_2b_and_9b_fit_a_12_gb_card_with_4096_tokens() -> None:
    answer = fits("gemma-2-9b", cuda(12), Wishes(context=4096, keep_draft=True))
    assert answer.placement == "gpu"
    assert answer.use_draft
    assert answer.given_up == ()
    assert 8e9 < answer.device_bytes < 12 * GIB


def test_what_the_user_fixed_is_kept_or_refused() -> None:
    for name, machine in itertools.product(PLACEMENTS, MACHINES.values()):
        answer = plan(
            name,
            machine,
            Wishes(context=6000, kv_type="q4_0", batch=384, target_gpu_layers=3, keep_draft=True),
        )
        chosen = answer.smallest if isinstance(answer, DoesNotFit) else answer
        assert (chosen.context, chosen.kv_type, chosen.batch) == (6000, "q4_0", 384)
        assert chosen.target_gpu_layers == (3 if machine.devices else 0)
        assert chosen.use_draft == (facts(name)[1] is not None)


# -- the order of what is given up, on a machine that shrinks ------------------------------------------------


def toy(layers: int, layer_mb: int, width: int) -> ModelShape:
    size = layer_mb << 20
    return ModelShape(
        name="toy",
        layers=tuple(Layer(size, {"Q4_K": size}, width, width) for _ in range(layers)),
        embedding=1024,
        feed_forward=4096,
        heads=16,
        vocabulary=32_000,
        texts=64_000,
        trained_context=32_768,
        window=0,
        input_bytes=20 << 20,
        output_bytes=20 << 20,
        output_type="Q6_K",
        output_is_tied=False,
        file_bytes=layers * size + (40 << 20),
    )


def shrinking(kind: str) -> list[LoadPlan | DoesNotFit]:
    target, draft = toy(24, 200, 1024), toy(12, 40, 512)
    answers = []
    for tenths in range(120, 2, -1):
        free = int(tenths * 0.1 * GIB)
        if kind == "gpu":
            device = (Device("CUDA0", free, free),)
            machine = Hardware(64 * GIB, 60 * GIB, 8, 8, GIB, device, X86)
        else:
            machine = Hardware(0, free, 8, 8, GIB, (), X86)
        answers.append(plan_load(target, draft, machine))
    return answers


def test_a_shrinking_gpu_gives_up_context_then_kv_then_batch_then_layers_and_keeps_the_draft() -> None:
    answers = shrinking("gpu")
    assert all(isinstance(answer, LoadPlan) for answer in answers)
    plans = [answer for answer in answers if isinstance(answer, LoadPlan)]
    assert plans[0].given_up == ()
    first = {
        what: next(i for i, p in enumerate(plans) if any(what in text for text in p.given_up))
        for what in ("context 4,096", "context 2,048", "q8_0", "layers run on the CPU")
    }
    assert list(first.values()) == sorted(first.values())
    layers = [p.target_gpu_layers for p in plans]
    assert layers == sorted(layers, reverse=True)
    assert all(p.draft_gpu_layers == 13 for p in plans if p.target_gpu_layers > 0)
    assert plans[-1].placement == "cpu"


def test_a_shrinking_host_gives_up_the_draft_last() -> None:
    answers = shrinking("cpu")
    drafts = [answer.use_draft for answer in answers if isinstance(answer, LoadPlan)]
    assert drafts == sorted(drafts, reverse=True)
    assert set(drafts) == {True, False}
    assert isinstance(answers[-1], DoesNotFit)
    assert "without its draft" in answers[-1].reason
    first_without = next(a for a in answers if isinstance(a, LoadPlan) and not a.use_draft)
    assert first_without.context == 8192, "what the draft had taken goes to the context"


def test_a_gpu_without_a_model_on_it_costs_nothing() -> None:
    answer = plan_load(toy(4, 10, 256), None, cuda(8), Wishes(target_gpu_layers=0))
    assert isinstance(answer, LoadPlan)
    assert answer.device_bytes == 0
    assert answer.draft is None
    assert answer.target.device == Memory().device == 0


def test_q8_kv_is_not_chosen_for_widths_it_cannot_hold() -> None:
    target = toy(24, 200, 1000)
    answer = plan_load(target, None, Hardware(0, int(5.2 * GIB), 8, 8, GIB, (), frozenset()))
    chosen = answer.smallest if isinstance(answer, DoesNotFit) else answer
    assert chosen.kv_type == "f16"
