"""How the models and contexts of a LoadConfig are opened: one place, so that what is sized without memory
(engine/buffer_sizes.py) is what is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

import psutil

from engine.llama import binding
from engine.llama.context import RECURRENT_SNAPSHOTS, Context
from engine.llama.model import Model
from engine.values import LoadConfig


def open_model(
    config: LoadConfig, role: Literal["target", "draft"], *, no_alloc: bool = False,
    on_progress: Callable[[float], bool] | None = None,
) -> Model:
    """The model of that role. Raises as Model."""
    path, layers = (config.target, config.target_gpu_layers) if role == "target" else (config.draft, config.draft_gpu_layers)
    assert path is not None
    everything = -1 if binding.devices() else 0
    return Model(path, gpu_layers=everything if layers is None else layers, no_alloc=no_alloc, on_progress=on_progress)


def open_context(
    config: LoadConfig, model: Model, context: int, max_outputs: int, cancel: binding.CancelFlag | None = None
) -> Context:
    """A cache of `context` tokens, or of as many as the model has learned. Raises as Context."""
    threads = config.threads or physical_cores()
    n_ctx = min(context, model.trained_context or context)
    return Context(
        model, n_ctx=n_ctx, batch=min(config.batch, n_ctx), max_outputs=max_outputs,
        threads=threads, batch_threads=config.batch_threads or threads,
        flash_attention=config.flash_attention, kv_type=config.kv_type, cancel=cancel,
    )


def block_rows(config: LoadConfig, target: Model) -> int:
    """Most rows one verification may have."""
    return min(config.max_block, config.batch, RECURRENT_SNAPSHOTS if target.is_recurrent else config.max_block)


def physical_cores() -> int:
    """Threads to decode with: the physical cores this process may use (a second thread on a core only waits)."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(allowed, psutil.cpu_count(logical=False) or allowed))
