"""The memory formula against llama.cpp itself: tiny models are loaded and its reported buffer sizes compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from models import read_gguf
from models.hardware import probe
from models.memory import Memory, Settings, kv_type_fits, memory_of
from models.shape import ModelShape, shape_of
from tests import tiny_models

MIB = 1 << 20

# Each line of output: the kind of buffer and its size in MiB, as llama.cpp logs them.
LOAD = """
import sys
import llama_cpp.llama_cpp as lib
lines = []
@lib.llama_log_callback
def keep(level, text, data):
    lines.append(text.decode(errors="replace"))
lib.llama_log_set(keep, None)
lib.llama_backend_init()
path, context, kv, rows, full, snapshots = sys.argv[1], *sys.argv[2:]
params = lib.llama_model_default_params()
params.n_gpu_layers = 0
model = lib.llama_model_load_from_file(path.encode(), params)
params = lib.llama_context_default_params()
params.n_ctx = int(context)
params.n_batch = params.n_ubatch = 512
params.n_outputs_max = params.n_outputs_max_per_seq = int(rows)
params.type_k = params.type_v = getattr(lib, "GGML_TYPE_" + kv.upper())
params.swa_full = full == "1"
params.n_rs_seq = int(snapshots)
params.flash_attn_type = lib.LLAMA_FLASH_ATTN_TYPE_ENABLED
assert lib.llama_init_from_model(model, params)
print("".join(lines))
"""


def reported(path: Path, settings: Settings) -> dict[str, float]:
    """Buffer sizes by kind, in bytes; llama.cpp prints hundredths of a MiB."""
    full = "1" if settings.full_window else "0"
    arguments = [
        str(path),
        str(settings.context),
        settings.kv_type,
        str(settings.output_rows),
        full,
        str(settings.snapshots),
    ]
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *arguments],
        capture_output=True, text=True, check=True, timeout=60, env={**os.environ, "GGML_NO_BACKTRACE": "1"},
    )  # fmt: skip
    sizes: dict[str, float] = defaultdict(float)
    for kind, size in re.findall(
        r"(KV|RS|compute|CPU_REPACK model) buffer size = +([\d.]+) MiB", done.stdout
    ):
        sizes[kind] += float(size) * MIB
    return sizes


def close(ours: float, theirs: float) -> bool:
    return abs(ours - theirs) <= 0.02 * MIB


@pytest.mark.parametrize("kv_type", ["f16", "q8_0", "q4_0"])
def test_the_kv_cache_of_full_attention(target: Path, kv_type: str) -> None:
    shape, settings = shape_of(read_gguf(target)), Settings(2000, kv_type, output_rows=1)
    assert kv_type_fits(shape, kv_type)
    assert close(memory_of(shape, settings).kv, reported(target, settings)["KV"])


@pytest.mark.parametrize("full", [True, False])
def test_the_kv_cache_of_sliding_windows(tmp_path: Path, full: bool) -> None:
    path = tiny_models.sliding_window(tmp_path, context=16_384)
    shape = shape_of(read_gguf(path))
    assert [layer.window for layer in shape.layers] == [True, False]
    settings = Settings(16_384, output_rows=1, full_window=full)
    assert close(memory_of(shape, settings).kv, reported(path, settings)["KV"])


@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_recurrent_state_and_what_is_left_of_the_kv_cache(tmp_path: Path, kind: str) -> None:
    path = getattr(tiny_models, kind)(tmp_path)
    shape, settings = shape_of(read_gguf(path)), Settings(2048, output_rows=1)
    assert shape.keeps_snapshots == (kind == "hybrid")
    assert any(layer.state_bytes for layer in shape.layers)
    theirs = reported(path, settings)
    assert close(memory_of(shape, settings).kv, theirs["RS"] + theirs["KV"])


def test_the_compute_buffer_grows_with_the_context_as_llama_cpps_does(target: Path) -> None:
    shape = shape_of(read_gguf(target))
    ours, theirs = (
        [size(context) for context in (512, 2048)]
        for size in (
            lambda n: memory_of(shape, Settings(n, output_rows=1)).compute,
            lambda n: reported(target, Settings(n, output_rows=1))["compute"],
        )
    )
    assert close(ours[1] - ours[0], theirs[1] - theirs[0])
    assert ours[1] == pytest.approx(theirs[1], rel=0.25)


# -- placement ---------------------------------------------------------------------------------------------


def test_layers_move_to_the_device_from_the_last_and_nothing_is_counted_twice(target: Path) -> None:
    shape = shape_of(read_gguf(target))
    everything = memory_of(shape, Settings(2048, gpu_layers=len(shape.layers) + 1))
    nothing = memory_of(shape, Settings(2048, gpu_layers=0))
    weights = [
        memory_of(shape, Settings(2048, gpu_layers=n)).device_weights for n in range(len(shape.layers) + 2)
    ]
    assert nothing.device == 0
    assert nothing.mapped == shape.file_bytes
    assert everything.kv == 0
    assert everything.device_kv == nothing.kv
    assert weights == sorted(weights)
    assert weights[1] == shape.output_bytes
    assert weights[-1] == shape.output_bytes + sum(layer.weight_bytes for layer in shape.layers)
    assert everything.mapped + sum(layer.weight_bytes for layer in shape.layers) <= shape.file_bytes


def test_repacked_weights_exist_twice_but_need_to_be_there_once(target: Path) -> None:
    shape = shape_of(read_gguf(target))
    kinds = frozenset(kind for layer in shape.layers for kind in layer.matrix_bytes)
    doctored = shape if kinds else with_matrices(shape)
    memory = memory_of(doctored, Settings(2048), frozenset({"Q4_K"}) | kinds)
    assert memory.repacked > 0
    assert memory.host_resident - memory.host_needed == memory.cold > 0


def with_matrices(shape: ModelShape) -> ModelShape:
    from dataclasses import replace

    layers = tuple(replace(layer, matrix_bytes={"Q4_K": layer.weight_bytes}) for layer in shape.layers)
    return replace(shape, layers=layers)


def test_memories_add_up() -> None:
    one = Memory(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
    assert one + one == Memory(2, 4, 6, 8, 10, 12, 14, 16, 18, 20)
    assert one.host_resident == 1 + 3 + 4 + 5 + 6 + 7
    assert one.device == 27


def test_odd_metadata_gives_sizes_and_no_crash(target: Path) -> None:
    info = read_gguf(target)
    for value in (-1, 2**62, 1.5, "8", True, (), (1, 2, 3), None):
        metadata = {**info.metadata, **{k: value for k in info.metadata if k.startswith("llama.")}}
        broken = type(info)(info.paths, metadata, info.arrays, info.tensors, info.file_bytes)  # type: ignore[arg-type]
        memory = memory_of(shape_of(broken), Settings(2048))
        assert memory.host_resident >= info.file_bytes


def test_this_machine_is_probed(tmp_path: Path) -> None:
    machine = probe(tmp_path / "not" / "there")
    assert machine.ram_bytes >= machine.available_bytes > 0
    assert machine.logical_cores >= machine.physical_cores >= 1
    assert machine.disk_free_bytes > 0
    assert machine.devices == ()
