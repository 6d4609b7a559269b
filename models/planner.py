"""Chooses how to load a pair so that it fits. Pure: the same shapes, machine and wishes give the same plan.

What the caller fixed is never changed. What was left open starts at its best value: context 8,192 (or what the target
was trained on), f16 KV, batch 512, every layer on the GPU where there is one. While it does not fit, something is given
up, in this order, each as little as helps:

    1. context       8,192, 4,096, 2,048 tokens
    2. KV type       q8_0 (q4_0 costs quality, so only a person chooses it)
    3. batch         256, 128
    4. target layers from the GPU to the host; the draft keeps its place there, since it runs once for every token
    5. the draft     first to the host, then not loaded at all

A late step may free more than was missing, so earlier ones are then taken back as far as there is room, context first.

Fits means: on each device, weights + KV + compute + DEVICE_OVERHEAD_BYTES <= free; on the host, all that must stay in
memory + PROCESS_BYTES <= available minus 5 % of the RAM; on unified memory both together must also fit the host. Memory
of several devices counts as one pool, as llama.cpp splits layers over all of them. A pair that does not fit is an
answer (DoesNotFit, with numbers), not an exception.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

from models.hardware import Hardware
from models.memory import (
    DEVICE_OVERHEAD_BYTES,
    PROCESS_BYTES,
    Memory,
    Scale,
    Settings,
    kv_type_fits,
    memory_of,
)
from models.shape import ModelShape

BEST_CONTEXT = 8192
CONTEXTS = (8192, 4096, 2048)
KV_TYPES = ("f16", "q8_0")
BATCHES = (512, 256, 128)
HOST_RESERVE_SHARE = 0.05

Placement = Literal["gpu", "split", "cpu"]


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the user fixed; None leaves it to the planner."""

    context: int | None = None
    kv_type: str | None = None
    batch: int | None = None
    target_gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    keep_draft: bool = False
    """The draft was asked for by name: rather refuse than go without it."""
    flash_attention: bool = True
    output_rows: int = 64


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """A way of loading that fits."""

    context: int
    kv_type: str
    batch: int
    target_gpu_layers: int
    """0 is none; layers + 1 is all, the output matrix included."""
    draft_gpu_layers: int
    use_draft: bool
    placement: Placement
    host_needed_bytes: int
    """Must stay in memory."""
    host_peak_bytes: int
    """Predicted peak resident size of the process, pages that the system may drop included."""
    device_bytes: int
    target: Memory
    draft: Memory | None
    given_up: tuple[str, ...]
    """What was left open and had to be less than the best, in words."""
    estimated: bool
    """From catalogue facts, before the files are here."""


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """No allowed way of loading fits; the figures are those of the smallest one."""

    where: Literal["host", "device"]
    needed_bytes: int
    available_bytes: int
    smallest: LoadPlan

    @property
    def reason(self) -> str:
        place = "memory" if self.where == "host" else "GPU memory"
        return (
            f"needs {self.needed_bytes / 1e9:.1f} GB of {place} and {self.available_bytes / 1e9:.1f} GB are free, "
            f"even with {self.smallest.context:,} tokens of context"
            + ("" if self.smallest.use_draft else " and without its draft")
        )


def plan_load(
    target: ModelShape,
    draft: ModelShape | None,
    hardware: Hardware,
    wishes: Wishes | None = None,
    scales: tuple[Scale, Scale] = (Scale(), Scale()),
) -> LoadPlan | DoesNotFit:
    """The first way of loading, in the order above, that fits the machine. `scales`: of the target and the draft."""
    return _Planner(target, draft, hardware, wishes or Wishes(), scales).plan()


def room_for(plan: LoadPlan, hardware: Hardware) -> float:
    """What is free in proportion to what the plan takes, on the host or the devices, whichever is scarcer; below 1 it
    does not fit."""
    return min(free / needed for needed, free in _demands(plan, hardware).values() if needed)


def _demands(plan: LoadPlan, hardware: Hardware) -> dict[Literal["device", "host"], tuple[int, int]]:
    """Bytes needed and free, by place."""
    shared = plan.device_bytes if any(device.unified for device in hardware.devices) else 0
    host_free = max(0, hardware.available_bytes - int(HOST_RESERVE_SHARE * hardware.ram_bytes))
    return {
        "device": (plan.device_bytes, sum(device.free_bytes for device in hardware.devices)),
        "host": (plan.host_needed_bytes + shared, host_free),
    }


@dataclass(frozen=True, slots=True)
class _Choice:
    context: int
    kv_type: str
    batch: int
    target_layers: int
    draft_layers: int
    use_draft: bool


class _Planner:
    def __init__(
        self,
        target: ModelShape,
        draft: ModelShape | None,
        hardware: Hardware,
        wishes: Wishes,
        scales: tuple[Scale, Scale],
    ) -> None:
        self._target, self._draft, self._hardware, self._wishes = target, draft, hardware, wishes
        self._scales = scales
        self._overhead = sum(DEVICE_OVERHEAD_BYTES for device in hardware.devices if not device.unified)

    def plan(self) -> LoadPlan | DoesNotFit:
        best = last = None
        for choice in self._choices():
            best = best or choice
            last = plan = self._make(choice, best)
            if self._shortage(plan) is None:
                return self._take_back(choice, best, plan)
        assert last is not None, "there is always a first choice"
        shortage = self._shortage(last)
        assert shortage is not None
        return shortage

    def _take_back(self, choice: _Choice, best: _Choice, plan: LoadPlan) -> LoadPlan:
        """The largest context, then the best KV type and batch, that the chosen placement has room for."""
        contexts = [
            best.context,
            *(context for context in CONTEXTS if choice.context <= context < best.context),
        ]
        for context, kv_type, batch in product(
            contexts, dict.fromkeys((best.kv_type, choice.kv_type)), dict.fromkeys((best.batch, choice.batch))
        ):
            richer = self._make(replace(choice, context=context, kv_type=kv_type, batch=batch), best)
            if self._shortage(richer) is None:
                return richer
        return plan

    def _choices(self) -> Iterator[_Choice]:
        """From the best to the smallest, each giving up a little more."""
        wishes = self._wishes
        trained = self._target.trained_context or BEST_CONTEXT
        contexts = [wishes.context or min(BEST_CONTEXT, trained)]
        if wishes.context is None:
            contexts += [context for context in CONTEXTS if context < contexts[0]]
        choice = _Choice(
            contexts[0],
            wishes.kv_type or KV_TYPES[0],
            wishes.batch or BATCHES[0],
            self._layers(self._target, wishes.target_gpu_layers),
            self._layers(self._draft, wishes.draft_gpu_layers) if self._draft else 0,
            self._draft is not None,
        )
        for context in contexts:
            yield (choice := replace(choice, context=context))
        if wishes.kv_type is None:
            for kv_type in KV_TYPES[1:]:
                if wishes.flash_attention and self._all(kv_type):
                    yield (choice := replace(choice, kv_type=kv_type))
        if wishes.batch is None:
            for batch in BATCHES[1:]:
                yield (choice := replace(choice, batch=batch))
        if wishes.target_gpu_layers is None:
            for layers in range(choice.target_layers - 1, -1, -1):
                yield (choice := replace(choice, target_layers=layers))
        if choice.use_draft and wishes.draft_gpu_layers is None and choice.draft_layers:
            yield (choice := replace(choice, draft_layers=0))
        if choice.use_draft and not wishes.keep_draft:
            yield from self._without_draft(choice)

    def _without_draft(self, choice: _Choice) -> Iterator[_Choice]:
        """The draft's room may let the target's layers go back to the GPU."""
        choice = replace(choice, use_draft=False, draft_layers=0)
        most = self._layers(self._target, self._wishes.target_gpu_layers)
        for layers in range(most, choice.target_layers - 1, -1):
            yield replace(choice, target_layers=layers)

    def _layers(self, shape: ModelShape | None, wish: int | None) -> int:
        """Layers for the GPU in llama.cpp's counting, where a negative wish means all."""
        if shape is None or not self._hardware.devices:
            return 0
        everything = len(shape.layers) + 1
        return everything if wish is None or wish < 0 else min(wish, everything)

    def _all(self, kv_type: str) -> bool:
        return all(kv_type_fits(shape, kv_type) for shape in (self._target, self._draft) if shape)

    def _make(self, choice: _Choice, best: _Choice) -> LoadPlan:
        wishes = self._wishes
        settings = Settings(
            context=choice.context,
            kv_type=choice.kv_type,
            batch=min(choice.batch, choice.context),
            output_rows=wishes.output_rows,
            gpu_layers=choice.target_layers,
            flash_attention=wishes.flash_attention,
        )
        repacked = self._hardware.repacked_types
        target = memory_of(self._target, settings, repacked).scaled(self._scales[0])
        draft = None
        if self._draft is not None and choice.use_draft:
            context = min(choice.context, self._draft.trained_context or choice.context)
            settings = replace(settings, context=context, output_rows=1, gpu_layers=choice.draft_layers)
            draft = memory_of(self._draft, settings, repacked).scaled(self._scales[1])
        both = target + draft if draft else target
        shapes = [self._target, *([self._draft] if self._draft and draft else [])]
        return LoadPlan(
            context=choice.context,
            kv_type=choice.kv_type,
            batch=choice.batch,
            target_gpu_layers=choice.target_layers,
            draft_gpu_layers=choice.draft_layers,
            use_draft=draft is not None,
            placement=self._placement(choice),
            host_needed_bytes=both.host_needed + PROCESS_BYTES,
            host_peak_bytes=both.host_resident + PROCESS_BYTES,
            device_bytes=both.device + (self._overhead if both.device else 0),
            target=target,
            draft=draft,
            given_up=self._given_up(best, choice),
            estimated=not all(shape.measured for shape in shapes),
        )

    def _shortage(self, plan: LoadPlan) -> DoesNotFit | None:
        for where, (needed, free) in _demands(plan, self._hardware).items():
            if needed > free:
                return DoesNotFit(where, needed, free, plan)
        return None

    def _placement(self, choice: _Choice) -> Placement:
        if choice.target_layers == 0 and choice.draft_layers == 0:
            return "cpu"
        whole = choice.target_layers > len(self._target.layers)
        if self._draft is not None and choice.use_draft:
            whole = whole and choice.draft_layers > len(self._draft.layers)
        return "gpu" if whole else "split"

    def _given_up(self, best: _Choice, choice: _Choice) -> tuple[str, ...]:
        changes = []
        if choice.context != best.context:
            changes.append(f"context {choice.context:,} instead of {best.context:,} tokens")
        if choice.kv_type != best.kv_type:
            changes.append(f"KV cache in {choice.kv_type} instead of {best.kv_type}")
        if choice.batch != best.batch:
            changes.append(f"prompt batches of {choice.batch} instead of {best.batch}")
        if choice.target_layers != best.target_layers:
            moved = best.target_layers - choice.target_layers
            changes.append(f"{moved} of the target's {best.target_layers} layers run on the CPU")
        if not choice.use_draft and best.use_draft:
            changes.append("no draft model")
        elif choice.draft_layers != best.draft_layers:
            changes.append("the draft runs on the CPU")
        return tuple(changes)
