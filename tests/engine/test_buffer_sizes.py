"""What a load without memory says it would take is what a real one takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine import LoadConfig, LoadFailed
from engine.buffer_sizes import BufferSizes, buffer_sizes, sizes_in
from engine.llama.binding import log_lines
from engine.loading import block_rows, open_context, open_model


def really_allocated(config: LoadConfig) -> BufferSizes:
    with log_lines() as lines:
        model = open_model(config, "target")
        open_context(config, model, config.context, block_rows(config, model)).close()
        model.close()
    return sizes_in(lines)


@pytest.mark.parametrize("how", [{}, {"kv_type": "q8_0", "context": 1000}, {"flash_attention": False, "batch": 128}], ids=str)
@pytest.mark.parametrize("kind", ["target", "sliding", "recurrent", "hybrid"])
def test_the_sizes_are_those_of_a_real_load(kind: str, how: dict[str, Any], request: pytest.FixtureRequest) -> None:
    config = LoadConfig(request.getfixturevalue(kind), **{"context": 2048, "threads": 1} | how)
    sizes, draft = buffer_sizes(config)
    assert draft is None
    assert sizes == really_allocated(config)
    assert sizes.caches > 0
    assert sizes.host_compute > 1 << 18
    assert sizes.device_compute == 0


def test_a_draft_has_sizes_of_its_own(target: Path, sliding: Path) -> None:
    config = LoadConfig(target, sliding, context=1024, threads=1)
    one, other = buffer_sizes(config)
    assert one == really_allocated(config)
    assert other is not None
    assert other.host_compute != one.host_compute


def test_no_weights_are_read(target: Path, tmp_path: Path) -> None:
    """A file whose weights are only a hole gives the same sizes."""
    hollow = tmp_path / "hollow.gguf"
    content = target.read_bytes()
    hollow.write_bytes(content[: len(content) // 2])
    with hollow.open("r+b") as file:
        file.truncate(len(content))
    config = LoadConfig(target, context=512, threads=1)
    assert buffer_sizes(LoadConfig(hollow, context=512, threads=1)) == buffer_sizes(config)


def test_a_file_that_does_not_load_is_one_line(truncated: Path) -> None:
    with pytest.raises(LoadFailed, match="cannot load"):
        buffer_sizes(LoadConfig(truncated))


def test_devices_and_their_staging_buffers_are_told_apart() -> None:
    """Lines as llama.cpp formats them, for a load on two GPUs that no test machine need have."""
    lines = [
        "llama_kv_cache:      CUDA0 KV buffer size =    64.00 MiB\n",
        "llama_kv_cache: size =  112.00 MiB (  4096 cells,  28 layers,  1/1 seqs), K (f16):   56.00 MiB, V (f16):   56.00 MiB\n",
        "llama_memory_recurrent: size =    2.50 MiB (     1 cells,   2 layers,  1 seqs  8 rs_seq), R (f32):    0.50 MiB\n",
        "sched_reserve:      CUDA0 compute buffer size =   300.00 MiB\n",
        "sched_reserve:      CUDA1 compute buffer size =   100.00 MiB\n",
        "sched_reserve:  CUDA_Host compute buffer size =    12.00 MiB\n",
        "sched_reserve:        CPU compute buffer size =     1.00 MiB\n",
    ]
    mib = 1 << 20
    assert sizes_in(lines) == BufferSizes(int(114.5 * mib), 13 * mib, 400 * mib)
