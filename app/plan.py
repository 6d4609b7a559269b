"""Whether a pair fits into memory, and what a load has to do without so that it does. Reads two headers, loads nothing.

A load starts from the engine's defaults, or from what `paceline tune` found to be faster here; what was tuned is given
up first, all of it that takes memory, when it would cost anything else. Then models/planner.py gives up what the user left
open, and only that reaches the engine: a setting the plan did not touch stays the engine's own, so that costs measured
earlier still count. A load that cannot fit is refused here, before anything is allocated, unless it was forced.

Headers are read only where memory is not plentiful (see `plentiful`): they take a seventh of a second each, which the
start of every `ask` would otherwise pay to learn that 2 GB fit into 20. Where the formula's answer is close (CLEAR),
llama.cpp's own figures decide; they take a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from app.errors import AppError
from app.options import LoadChoices
from app.tune.store import MEMORY, in_words
from models import BadGguf, DoesNotFit, Hardware, LoadPlan, ModelShape, Wishes, plan_load, read_gguf, shape_of
from models.memory import Scale
from models.planner import BATCHES, HOST_RESERVE_SHARE, KV_TYPES, room_for

DEFAULT_CONTEXT = 4096
"""The engine's default (a test compares them): what a load takes when nobody said anything."""
PLENTY_FACTOR, PLENTY_BYTES, PLENTY_CONTEXT = 3, 2 << 30, 8192
"""Weights, their repacked copy and as much again, and 2 GiB, cover the caches of a pair up to 8,192 tokens (a test holds
this for every pair of the catalogue)."""
CLEAR = 1.25
"""Room that makes the formula's answer certain; its tests hold it to a quarter of the compute buffers, which are part
of the whole."""
QUESTIONS = 3
"""Times that llama.cpp is asked, at most: each answer may change the plan."""
_ENDLESS = 1 << 62
_UNTUNED: Mapping[str, Any] = {}

Figures = tuple[int, int, int]
"""Bytes of caches, and of compute buffers on the host and on devices."""
Sizes = Callable[[bool, Mapping[str, Any]], Sequence[Figures] | None]
"""llama.cpp's figures for the target, and for the draft if it is to be loaded, with these LoadConfig fields."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """How to load a pair so that it fits."""

    use_draft: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
    """LoadConfig fields that have to differ from the engine's defaults."""
    remark: str | None = None
    """What was given up, in one line."""
    tuned: Mapping[str, Any] = field(default_factory=dict)
    """What there is room for of the tuned LoadConfig fields."""


def plan_pair(
    target: ModelShape, draft: ModelShape | None, machine: Hardware, choices: LoadChoices, *, keep_draft: bool = False,
    scales: tuple[Scale, Scale] = (Scale(), Scale()), tuned: Mapping[str, Any] = _UNTUNED,
) -> LoadPlan | DoesNotFit:
    """The planner's answer for a load with these choices. A context beyond what the target learned is cut, as on load.
    tuned: LoadConfig fields that the choices leave open and that are settled too."""
    most = usual_context(target, choices)
    wishes = Wishes(
        context=most if choices.ctx else None,
        kv_type=choices.kv_type or tuned.get("kv_type"),
        batch=tuned.get("batch"),
        target_gpu_layers=tuned.get("target_gpu_layers", choices.gpu_layers),
        draft_gpu_layers=tuned.get("draft_gpu_layers", choices.draft_gpu_layers),
        keep_draft=keep_draft,
        flash_attention=tuned.get("flash_attention", choices.flash_attention) is not False,
    )
    return plan_load(replace(target, trained_context=most), draft, machine, wishes, scales)


def plan_exactly(
    target: ModelShape, draft: ModelShape | None, machine: Hardware, choices: LoadChoices, sizes: Sizes, *,
    keep_draft: bool = False, tuned: Mapping[str, Any] = _UNTUNED,
) -> LoadPlan | DoesNotFit:
    """As plan_pair, but what is close is decided by llama.cpp's figures for the very settings in question: first those one
    would like best, then those of the plan that its figures leave, until that plan is one it was asked about."""
    plan_with = partial(plan_pair, target, draft, choices=choices, keep_draft=keep_draft, tuned=tuned)
    answer, plan = plan_with(machine), _nearest(plan_with(without_limits(machine)))
    if room_for(plan, machine) < 1 / CLEAR:
        plan = _nearest(answer)
    scales, used = [(Scale(), Scale())], (Scale(), Scale())
    asked: list[tuple[bool, dict[str, Any]]] = []
    while 1 / CLEAR < room_for(plan, machine) < CLEAR and len(asked) < QUESTIONS:
        question = plan.use_draft, {
            "context": plan.context, "kv_type": plan.kv_type, "batch": plan.batch,
            "flash_attention": tuned.get("flash_attention", choices.flash_attention),
            "target_gpu_layers": plan.target_gpu_layers, "draft_gpu_layers": plan.draft_gpu_layers,
        }
        if question in asked or (figures := sizes(*question)) is None:
            break
        asked.append(question)
        parts = (plan.target, plan.draft) if plan.draft else (plan.target,)
        found = [scale.times(Scale.of(part, *theirs)) for scale, part, theirs in zip(used, parts, figures, strict=False)]
        scales = [*(scales if len(asked) > 1 else []), (found[0], found[-1] if plan.draft else used[1])]
        # The largest of all: what its figures ruled out must not come back by those for other settings.
        used = Scale.largest([scale for scale, _ in scales]), Scale.largest([scale for _, scale in scales])
        answer = plan_with(machine, scales=used)
        plan = _nearest(answer)
    return answer


def _nearest(answer: LoadPlan | DoesNotFit) -> LoadPlan:
    return answer if isinstance(answer, LoadPlan) else answer.smallest


def without_limits(machine: Hardware) -> Hardware:
    """The machine with memory for anything."""
    devices = tuple(replace(device, free_bytes=_ENDLESS) for device in machine.devices)
    return replace(machine, available_bytes=_ENDLESS, devices=devices)


def usual_context(target: ModelShape, choices: LoadChoices) -> int:
    """The context a load takes where there is room."""
    asked = choices.ctx or DEFAULT_CONTEXT
    return min(asked, target.trained_context or asked)


def fit_into_memory(
    target: Path, draft: Path | None, choices: LoadChoices, machine: Hardware, *, keep_draft: bool,
    instead: Callable[[], str | None], sizes: Sizes = lambda _draft, _settings: None, tuned: Mapping[str, Any] = _UNTUNED,
) -> Fitted:
    """How to load these files. `instead` names something that would fit; it is asked only when this does not. `sizes` asks
    llama.cpp. `tuned`: LoadConfig fields to load with if there is room.

    Raises AppError when they do not fit and --force was not given.
    """
    files = [target, *([draft] if draft else [])]
    if plentiful(files, choices, machine, tuned):
        return Fitted(tuned=tuned)
    try:
        shapes = [shape_of(read_gguf(path)) for path in files]
    except BadGguf:
        return Fitted(tuned=tuned)  # whether llama.cpp can do more with it than we can is for the load to say
    shape, draft_shape = shapes[0], shapes[1] if draft else None
    plan_with = partial(plan_exactly, shape, draft_shape, machine, choices, sizes, keep_draft=keep_draft)
    answer, in_use = plan_tuned(plan_with, tuned, draft=draft is not None)
    if isinstance(answer, LoadPlan):
        if any(name in MEMORY for name in in_use):
            return Fitted(tuned=in_use)
        left_out = {name: value for name, value in tuned.items() if name in MEMORY}
        use_draft, left = draft is None or answer.use_draft, changes(answer, shape, draft_shape, choices, machine)
        return Fitted(use_draft, left, remark_on(answer, left_out), in_use)
    refusal = f"{target.name} {answer.reason}"
    if choices.force:
        return Fitted(remark=f"{refusal}; loading it all the same (--force)", tuned=in_use)
    open_choices = LoadChoices(flash_attention=choices.flash_attention)
    freer = plan_pair(shape, draft_shape, machine, open_choices)
    advice = _settings_that_fit(freer, choices, keep_draft) if isinstance(freer, LoadPlan) else instead()
    raise AppError("; ".join(part for part in (refusal, advice, "--force loads it all the same") if part))


def plan_tuned(
    plan_with: Callable[..., LoadPlan | DoesNotFit], tuned: Mapping[str, Any], *, draft: bool
) -> tuple[LoadPlan | DoesNotFit, Mapping[str, Any]]:
    """What a load does with tuned LoadConfig fields: the plan with them if nothing has to be given up for them, else the
    plan without those that take memory; and the fields that are left, none where the draft they were tuned with is given
    up. `plan_with` is plan_pair or plan_exactly but for `tuned`; draft: whether there is one."""
    if takes_memory := {name: value for name, value in tuned.items() if name in MEMORY}:
        answer = plan_with(tuned=takes_memory)
        if isinstance(answer, LoadPlan) and not answer.given_up:
            return answer, tuned
    answer = plan_with()
    free = {name: value for name, value in tuned.items() if name not in MEMORY}
    return answer, free if isinstance(answer, DoesNotFit) or answer.use_draft or not draft else {}


def plentiful(files: Sequence[Path], choices: LoadChoices, machine: Hardware, tuned: Mapping[str, Any] = _UNTUNED) -> bool:
    """True if the sizes of the files alone say that they fit with nothing given up."""
    if (choices.ctx or DEFAULT_CONTEXT) > PLENTY_CONTEXT or tuned.get("batch", 0) > BATCHES[0]:
        return False
    if tuned.get("flash_attention", choices.flash_attention) is False:
        return False
    room = machine.available_bytes - int(HOST_RESERVE_SHARE * machine.ram_bytes)
    if machine.devices:
        room = min(room, sum(device.free_bytes for device in machine.devices))
    return room > PLENTY_FACTOR * sum(_size(path) for path in files) + PLENTY_BYTES


def changes(
    plan: LoadPlan, target: ModelShape, draft: ModelShape | None, choices: LoadChoices, machine: Hardware
) -> dict[str, Any]:
    """The LoadConfig fields that the plan sets: those the user left open and the engine would have set higher."""
    found: dict[str, Any] = {}
    if choices.ctx is None and plan.context < usual_context(target, choices):
        found["context"] = plan.context
    if choices.kv_type is None and plan.kv_type != KV_TYPES[0]:
        found["kv_type"] = plan.kv_type
    if plan.batch < BATCHES[0]:
        found["batch"] = plan.batch
    if not machine.devices:
        return found
    if choices.gpu_layers is None and plan.target_gpu_layers <= len(target.layers):
        found["target_gpu_layers"] = plan.target_gpu_layers
    if draft and plan.use_draft and choices.draft_gpu_layers is None and plan.draft_gpu_layers <= len(draft.layers):
        found["draft_gpu_layers"] = plan.draft_gpu_layers
    return found


def remark_on(plan: LoadPlan, not_tuned: Mapping[str, Any] = _UNTUNED) -> str | None:
    """not_tuned: what `tune` found and there is no room for."""
    given_up = [f"without what `paceline tune` found ({in_words(not_tuned)})"] if not_tuned else []
    given_up += plan.given_up
    return f"to fit into memory: {', '.join(given_up)}" if given_up else None


def _settings_that_fit(plan: LoadPlan, choices: LoadChoices, keep_draft: bool) -> str:
    """Which of the wishes to drop: they alone stood in the way."""
    given = {"--ctx": choices.ctx, "--kv-type": choices.kv_type, "--gpu-layers": choices.gpu_layers,
             "--draft-gpu-layers": choices.draft_gpu_layers}
    named = [name for name, value in given.items() if value is not None]
    if keep_draft and not plan.use_draft:
        named.append("the draft")
    without = f"without {' and '.join(named)} " if named else ""
    return f"{without}it fits with {plan.context:,} tokens of context"


def _size(path: Path) -> int:
    """Bytes of a model; of a split one all pieces, since the first alone would make it look small."""
    stem, _, pieces = path.stem.rpartition("-of-")
    if stem and pieces.isdigit():
        return sum(piece.stat().st_size for piece in path.parent.glob(f"*-of-{pieces}.gguf"))
    return path.stat().st_size
