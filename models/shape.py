"""What a model's size in memory depends on, taken from its GGUF header; or, before it is downloaded, from the catalogue.

Pure. KV widths come from the tensors themselves where they can (`attn_k` has as many rows as a token has keys), since the
metadata keys differ between architectures; layers without keys of their own (shared caches, recurrent layers) fall out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from models.catalogue import ModelFile
from models.gguf import GgufInfo, Tensor

# Architectures whose every n-th layer is global and the rest local, where the file itself does not say so.
_SWA_PATTERNS = {"gemma2": 2, "gemma3": 6, "cohere2": 4, "gpt-oss": 2, "gemma3n": 5}
# Recurrent architectures for which llama.cpp can keep a state per recent token (llm_arch_supports_rs_rollback).
_KEEPS_SNAPSHOTS = frozenset(
    [
        "kimi-k3",
        "qwen35",
        "qwen35moe",
        "qwen4exp",
        "deepseek4",
        "glm5-next",
        "nemotron_h",
        "nemotron_h_moe",
        "lfm2",
        "lfm2moe",
        "bailingmoe3",
    ]
)
_REPACKABLE = ("Q4_0", "Q4_K", "Q2_K", "Q5_K", "Q6_K", "Q8_0", "IQ4_NL", "MXFP4")


@dataclass(frozen=True, slots=True)
class Layer:
    """One repeating layer."""

    weight_bytes: int
    matrix_bytes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of its matrices by number format: what a CPU may keep a second, repacked copy of."""
    key_width: int = 0
    """Numbers one token leaves in the K cache of this layer; 0 for layers without a cache."""
    value_width: int = 0
    window: bool = False
    """Attends to the last `ModelShape.window` tokens only."""
    state_bytes: int = 0
    """Recurrent state of one sequence."""


@dataclass(frozen=True, slots=True)
class ModelShape:
    name: str
    layers: tuple[Layer, ...]
    embedding: int
    feed_forward: int
    """Width of the widest intermediate of a layer; of a mixture, of the experts used at once."""
    heads: int
    vocabulary: int
    texts: int
    """Tokens and merges, which the tokenizer keeps as strings."""
    trained_context: int
    window: int
    input_bytes: int
    """Weights outside the layers that stay on the host, the embedding above all."""
    output_bytes: int
    output_type: str
    output_is_tied: bool
    """The output matrix is the embedding: no bytes of its own in the file, but a copy when it is moved or repacked."""
    file_bytes: int
    keeps_snapshots: bool = False
    """llama.cpp can take single tokens back from its recurrent state, at the price of a copy for each."""
    measured: bool = True
    """False when it was estimated from catalogue facts."""


def shape_of(info: GgufInfo) -> ModelShape:
    """The shape of a model from its header."""
    meta = _Metadata(info)
    by_layer: dict[int, list[Tensor]] = defaultdict(list)
    outside: list[Tensor] = []
    for tensor in info.tensors:
        parts = tensor.name.split(".")
        if parts[0] == "blk" and len(parts) > 2 and parts[1].isdigit():
            by_layer[int(parts[1])].append(tensor)
        else:
            outside.append(tensor)
    count = meta.number("block_count") or (max(by_layer, default=-1) + 1)
    layers = tuple(_layer(meta, index, by_layer.get(index, [])) for index in range(count))
    output = next((t for t in outside if t.name == "output.weight"), None)
    embedding = next((t for t in outside if t.name == "token_embd.weight"), None)
    head = output or embedding
    merges = info.arrays.get("tokenizer.ggml.merges")
    vocabulary = info.vocabulary or (embedding.shape[1] if embedding and len(embedding.shape) > 1 else 0)
    return ModelShape(
        name=info.paths[0].name,
        layers=layers,
        embedding=meta.number("embedding_length"),
        feed_forward=meta.feed_forward(),
        heads=max(meta.per_layer("attention.head_count", 0), 1),
        vocabulary=vocabulary,
        texts=vocabulary + (merges.length if merges else 0),
        trained_context=meta.number("context_length"),
        window=meta.number("attention.sliding_window"),
        input_bytes=sum(tensor.bytes for tensor in outside if tensor is not output),
        output_bytes=head.bytes if head else 0,
        output_type=head.type if head else "F16",
        output_is_tied=output is None,
        file_bytes=info.file_bytes,
        keeps_snapshots=info.architecture in _KEEPS_SNAPSHOTS,
    )


def shape_from_facts(file: ModelFile) -> ModelShape | None:
    """An estimate for a file that is not here yet; None where too little is known. Good to about a tenth.

    A quantised model has about 12 d^2 weights in each of its L layers, which gives its width d from its size; 4.5 d is
    a usual feed-forward width, and 4.85 bits a weight is what Q4_K_M comes to.
    """
    if file.bytes is None or file.layers is None:
        return None
    weights = file.bytes * 8 / (8.5 if file.quant == "Q8_0" else 4.85)
    width = math.isqrt(int(weights / (12 * file.layers)))
    vocabulary = file.vocabulary or 262_208
    table = min(int(vocabulary * width * file.bytes / weights), file.bytes // 2)
    cache = (file.kv_heads or 8) * (file.head_dim or 256)
    per_layer = (file.bytes - table) // file.layers
    local = (
        file.attention.local_per_global
        if file.attention and file.attention.kind == "sliding-window"
        else None
    )
    return ModelShape(
        name=file.name,
        layers=tuple(
            Layer(
                per_layer,
                {"Q4_K": per_layer * 3 // 4},
                cache,
                cache,
                bool(local) and index % ((local or 0) + 1) != local,
            )
            for index in range(file.layers)
        ),
        embedding=width,
        feed_forward=int(4.5 * width),
        heads=max(1, width // (file.head_dim or 128)),
        vocabulary=vocabulary,
        texts=2 * vocabulary,
        trained_context=file.context or 8192,
        window=(file.attention.window or 0) if file.attention else 0,
        input_bytes=table,
        output_bytes=table,
        output_type="Q6_K",
        output_is_tied=True,
        file_bytes=file.bytes,
        measured=False,
    )


class _Metadata:
    """Numbers under the architecture's own prefix; a missing or odd one is 0."""

    def __init__(self, info: GgufInfo) -> None:
        self._values = info.metadata
        self.architecture = info.architecture

    def raw(self, key: str) -> object:
        return self._values.get(f"{self.architecture}.{key}")

    def number(self, key: str) -> int:
        return _as_count(self.raw(key))

    def per_layer(self, key: str, index: int) -> int:
        value = self.raw(key)
        if isinstance(value, tuple):
            return _as_count(value[index]) if index < len(value) else 0
        return _as_count(value)

    def feed_forward(self) -> int:
        widths = self.raw("feed_forward_length")
        dense = (
            max((_as_count(w) for w in widths), default=0) if isinstance(widths, tuple) else _as_count(widths)
        )
        expert = self.number("expert_feed_forward_length") or (dense if self.number("expert_count") else 0)
        return max(dense, expert * self.number("expert_used_count"))

    def is_window(self, index: int) -> bool:
        if not self.number("attention.sliding_window"):
            return False
        pattern = self.raw("attention.sliding_window_pattern")
        if isinstance(pattern, tuple):
            return index < len(pattern) and bool(pattern[index])
        every = _as_count(pattern) or _SWA_PATTERNS.get(self.architecture, 0)
        return every > 0 and index % every < every - 1

    def state_bytes(self) -> int:
        """One sequence's recurrent state in one layer, as llama.cpp lays it out (F32)."""
        if kept := self.number("shortconv.l_cache"):
            return 4 * self.number("embedding_length") * (kept - 1)
        if head := self.number("wkv.head_size"):
            return 4 * self.number("embedding_length") * (head + (self.number("token_shift_count") or 2))
        inner, state = self.number("ssm.inner_size"), self.number("ssm.state_size")
        convolved = inner + 2 * self.number("ssm.group_count") * state
        return 4 * (max(self.number("ssm.conv_kernel") - 1, 0) * convolved + state * inner)


def _layer(meta: _Metadata, index: int, tensors: list[Tensor]) -> Layer:
    rows = {t.name.split(".", 2)[2]: t.shape[1] for t in tensors if len(t.shape) > 1}
    recurrent = any(name.startswith(("ssm_", "shortconv.", "time_mix_")) for name in rows)
    matrices: dict[str, int] = defaultdict(int)
    for tensor in tensors:
        if len(tensor.shape) in (2, 3) and tensor.type in _REPACKABLE and tensor.shape[1] % 8 == 0:
            matrices[tensor.type] += tensor.bytes
    keys, values = _cache_widths(meta, index, rows)
    return Layer(
        weight_bytes=sum(tensor.bytes for tensor in tensors),
        matrix_bytes=dict(matrices),
        key_width=keys,
        value_width=values,
        window=meta.is_window(index),
        state_bytes=meta.state_bytes() if recurrent else 0,
    )


def _cache_widths(meta: _Metadata, index: int, rows: Mapping[str, int]) -> tuple[int, int]:
    if index >= meta.number("block_count") - meta.number("attention.shared_kv_layers"):
        return 0, 0  # reads the cache of an earlier layer
    if "attn_kv_a_mqa.weight" in rows:
        return rows["attn_kv_a_mqa.weight"], 0  # latent attention: values are a view of the keys
    if "attn_k.weight" in rows:
        return rows["attn_k.weight"], rows.get("attn_v.weight", rows["attn_k.weight"])
    if "attn_qkv.weight" in rows and not any(name.startswith("ssm_") for name in rows):
        heads = meta.per_layer("attention.head_count", index)
        kv_heads = meta.per_layer("attention.head_count_kv", index) or heads
        size = meta.number("embedding_length") // max(heads, 1)
        return (
            kv_heads * (meta.number("attention.key_length") or size),
            kv_heads * (meta.number("attention.value_length") or size),
        )
    return 0, 0


def _as_count(value: object) -> int:
    """A metadata number that is plausible as a size; files may hold anything."""
    return value if type(value) is int and 0 <= value < 1 << 32 else 0
