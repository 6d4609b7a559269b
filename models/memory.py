"""How much memory a model takes, by formula. Pure.

For one model with L layers, context n, batch b, r rows of logits, key and value widths k_l and v_l, KV type t:

    KV cache   sum over layers of cells_l * (bytes_t(k_l) + bytes_t(v_l)); cells_l = n rounded up to 256, and for a
               sliding-window layer min(n, window + b) rounded up to 256 unless the cache is full-sized
    state      per recurrent layer, once for each snapshot kept, and one
    compute    b * 4 * (3 ff + 4 d)  the gate, up and product of a feed-forward block and four activations
               + b * n * 2           the attention mask (twice with a sliding window, none without attention)
               + b * n * heads * 4   the scores, only without flash attention
               or r * (vocabulary + d) * 4 where that is more: the logits come last and reuse the room
    logits     r * vocabulary * 4    their copy on the host
    texts      165 bytes for each token and merge of the tokenizer
    weights    the mapped file; on the CPU, matrices of some formats once more, repacked

Checked against llama.cpp's own figures (tests) and the measured resident size of the starter pair: for Qwen2.5-Coder
1.5B and 0.5B at 2,048, 8,192 and 32,768 tokens, batch 512, its CPU compute buffers are 64.5 + n/1024 and 35.5 + n/1024
MiB, which is exactly this. With layers on a GPU, llama.cpp moves the output matrix first, then layers from the last;
their share of KV, state and compute moves with them. The embedding always stays on the host.

The formula is the fast path. Where it is close, llama.cpp is asked for its own figures (engine/buffer_sizes.py), and what
it says in proportion to the formula is a Scale.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from models.ggml_types import ggml_type
from models.shape import Layer, ModelShape

TEXT_BYTES = 165
"""Measured: 49 MB for 303,323 tokens and merges, 50 MB for as many in the second model."""
PROCESS_BYTES = 100 << 20
"""Python, numpy, llama.cpp's code and its threads' work buffers, measured without a model's own memory."""
DEVICE_OVERHEAD_BYTES = 420 << 20
"""What a driver takes per device before the first tensor (CUDA context, cuBLAS workspace); none on unified memory."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How one model is to be loaded."""

    context: int
    kv_type: str = "f16"
    batch: int = 512
    output_rows: int = 64
    gpu_layers: int = 0
    """As llama.cpp counts: 1 is the output matrix, then layers from the last; layers + 1 is everything."""
    flash_attention: bool = True
    full_window: bool = True
    """Sliding-window layers get a cache of the whole context, so that tokens can be taken back."""
    snapshots: int = 8
    """Recurrent states kept for the same purpose, where the architecture allows it."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes by purpose. `mapped` is the part of the file that stays mapped on the host; of it, `cold` is never read
    again once loaded (it exists repacked), so the system may drop it, but it counts as resident until then."""

    mapped: int = 0
    cold: int = 0
    repacked: int = 0
    kv: int = 0
    compute: int = 0
    logits: int = 0
    texts: int = 0
    device_weights: int = 0
    device_kv: int = 0
    device_compute: int = 0

    @property
    def host_resident(self) -> int:
        """What the process's resident size grows by."""
        return self.mapped + self.repacked + self.kv + self.compute + self.logits + self.texts

    @property
    def host_needed(self) -> int:
        """What must stay in memory for the model to run at speed."""
        return self.host_resident - self.cold

    @property
    def device(self) -> int:
        return self.device_weights + self.device_kv + self.device_compute

    def scaled(self, scale: Scale) -> Memory:
        """With caches and compute buffers as llama.cpp has them."""
        return replace(
            self,
            kv=round(self.kv * scale.caches),
            device_kv=round(self.device_kv * scale.caches),
            compute=round(self.compute * scale.host_compute),
            device_compute=round(self.device_compute * scale.device_compute),
        )

    def __add__(self, other: Memory) -> Memory:
        return Memory(*(getattr(self, name) + getattr(other, name) for name in self.__dataclass_fields__))


@dataclass(frozen=True, slots=True)
class Scale:
    """llama.cpp's sizes in proportion to the formula's."""

    caches: float = 1.0
    host_compute: float = 1.0
    device_compute: float = 1.0

    def times(self, other: Scale) -> Scale:
        return Scale(*(getattr(self, name) * getattr(other, name) for name in self.__dataclass_fields__))

    @classmethod
    def largest(cls, scales: Sequence[Scale]) -> Scale:
        return cls(*(max(getattr(scale, name) for scale in scales) for name in cls.__dataclass_fields__))

    @classmethod
    def of(cls, formula: Memory, caches: int, host_compute: int, device_compute: int) -> Scale:
        """From llama.cpp's bytes for the settings that `formula` is for. What the formula has none of keeps a 1."""
        return cls(
            *(
                theirs / ours if ours else 1.0
                for theirs, ours in (
                    (caches, formula.kv + formula.device_kv),
                    (host_compute, formula.compute),
                    (device_compute, formula.device_compute),
                )
            )
        )


def memory_of(shape: ModelShape, settings: Settings, repacked_types: frozenset[str] = frozenset()) -> Memory:
    """What one model takes on host and device."""
    count = len(shape.layers)
    output_on_device = settings.gpu_layers > 0
    first_on_device = max(0, count + 1 - settings.gpu_layers) if output_on_device else count
    on_host, on_device = shape.layers[:first_on_device], shape.layers[first_on_device:]
    device_file_bytes = sum(layer.weight_bytes for layer in on_device)
    device_file_bytes += shape.output_bytes if output_on_device and not shape.output_is_tied else 0
    repacked = sum(
        size for layer in on_host for kind, size in layer.matrix_bytes.items() if kind in repacked_types
    )
    cold = repacked
    if not output_on_device and shape.output_type in repacked_types:
        repacked += shape.output_bytes
        cold += 0 if shape.output_is_tied else shape.output_bytes
    compute, logits = _compute_bytes(shape, settings), settings.output_rows * shape.vocabulary * 4
    memory = Memory(
        mapped=shape.file_bytes - device_file_bytes,
        cold=cold,
        repacked=repacked,
        kv=sum(_layer_cache_bytes(shape, layer, settings) for layer in on_host),
        compute=compute,
        logits=logits,
        texts=shape.texts * TEXT_BYTES,
    )
    if not output_on_device:
        return memory
    inputs = settings.batch * (4 * shape.embedding + 2 * settings.context)
    return replace(
        memory,
        compute=compute if on_host else inputs,
        device_weights=sum(layer.weight_bytes for layer in on_device) + shape.output_bytes,
        device_kv=sum(_layer_cache_bytes(shape, layer, settings) for layer in on_device),
        device_compute=compute,
    )


def kv_type_fits(shape: ModelShape, kv_type: str) -> bool:
    """Whether a token's keys and values divide into the type's blocks, as llama.cpp demands."""
    block = ggml_type(kv_type).block_elements
    return all(layer.key_width % block == 0 and layer.value_width % block == 0 for layer in shape.layers)


def _layer_cache_bytes(shape: ModelShape, layer: Layer, settings: Settings) -> int:
    cells = settings.context
    if layer.window and shape.window and not settings.full_window:
        cells = min(cells, shape.window + settings.batch)
    cells = -(-cells // 256) * 256
    kind = ggml_type(settings.kv_type)
    per_token = kind.row_bytes(layer.key_width) + kind.row_bytes(layer.value_width)
    return cells * per_token + layer.state_bytes * (1 + (settings.snapshots if shape.keeps_snapshots else 0))


def _compute_bytes(shape: ModelShape, settings: Settings) -> int:
    masks = (2 if shape.window else 1) if any(layer.key_width for layer in shape.layers) else 0
    during = settings.batch * (
        4 * (3 * shape.feed_forward + 4 * shape.embedding)
        + 2 * settings.context * masks
        + (0 if settings.flash_attention else 4 * settings.context * shape.heads)
    )
    return max(during, settings.output_rows * (shape.vocabulary + shape.embedding) * 4)
