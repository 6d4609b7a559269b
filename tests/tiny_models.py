"""Real GGUF models small enough to write in a test: two layers, width 64, one token per byte, about 0.6 MB.

llama.cpp loads and decodes them like any other model, so correctness is tested on real kernels and caches.
Every weight is drawn by a generator seeded from (seed, tensor name): a file is the same on every run, and two
files of one seed share the tensors they have in common. Token ids below 256 are that byte; then SPECIALS.

A draft is a noisy copy of its target: greedy agreement falls smoothly with the noise (test_tiny_models.py
measures it), so any acceptance rate can be had without training anything.
"""

from __future__ import annotations

import shutil
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFWriter, TokenType
from numpy.typing import NDArray

WIDTH, HEADS, HEAD, FFN, LAYERS = 64, 2, 32, 160, 2  # heads of 32, so that q8_0 and q4_0 KV caches fit too
BOS, END_OF_TEXT, IM_START, IM_END, THINK, END_THINK = range(256, 262)
MARKERS = ("<|bos|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>")
SPECIALS = dict.fromkeys(MARKERS, TokenType.CONTROL) | dict.fromkeys(("<think>", "</think>"), TokenType.USER_DEFINED)
VOCAB = SPACE = 256 + len(SPECIALS)  # a SentencePiece vocabulary has its space after the others

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHATML_WITH_BOS = "{{ bos_token }}" + CHATML
THINKING = (
    "{% for m in messages %}{% set text = m.content %}"
    "{% if m.role == 'assistant' and '</think>' in text %}"
    "{% set text = text.split('</think>')[-1].lstrip('\\n') %}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ text }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""Forgets the thinking of earlier replies, as the templates of thinking models do (K20)."""


@dataclass(frozen=True, slots=True)
class Tiny:
    """What to write; every function below takes these fields as keyword arguments."""

    seed: int = 0
    sharpness: float = 4.0
    """Standard deviation of the logits: at 4 the best token has about half of the mass, at 1 it is nearly flat."""
    ending: float = 0.0
    """Weight of <|im_end|> among the bytes. 0 fixes its logit at 0, so a reply almost never ends by itself."""
    context: int = 2048
    template: str | None = CHATML
    add_bos: bool = False
    padding: int = 0
    """Unused ids after the vocabulary, as models padded to a round number of rows have."""
    spm: bool = False
    """A SentencePiece vocabulary as Llama 2 has: it puts a space before text, and has one token more for it."""
    swapped: str = ""
    """Characters whose tokens trade places in pairs: 'xyab' swaps x with y and a with b."""
    window: int = 24
    """Sliding window of `sliding_window`'s first layer."""


def tiny_target(folder: Path, name: str = "target", **fields: Any) -> Path:
    """A plain attention model (llama architecture)."""
    tiny = Tiny(**fields)
    return _write(folder / f"{name}.gguf", "llama", tiny, _transformer(tiny))


def sliding_window(folder: Path, name: str = "sliding", **fields: Any) -> Path:
    """One layer that sees `window` tokens and one that sees all (gemma3). Unless the context is made with
    `swa_full`, its cache has window + n_ubatch cells, rounded up to 256: fill more to see it forget."""
    tiny = Tiny(**fields)
    w = _transformer(tiny)
    for b in range(LAYERS):
        w.head_norms(b)
        w.ones(f"blk.{b}.post_attention_norm")
        w.ones(f"blk.{b}.post_ffw_norm")
    w["token_embd.weight"] /= np.sqrt(WIDTH)  # gemma3 multiplies what it reads by this
    sliding = {"attention.sliding_window": tiny.window, "attention.sliding_window_pattern": 2}
    return _write(folder / f"{name}.gguf", "gemma3", tiny, w, sliding)


def recurrent(folder: Path, name: str = "recurrent", **fields: Any) -> Path:
    """A Mamba: no partial rollback at all, only whole saved states."""
    tiny = Tiny(**fields)
    w, (inner, state, rank, kernel) = _Weights(tiny), (2 * WIDTH, 8, 4, 4)
    for b in range(LAYERS):
        w.ones(f"blk.{b}.attn_norm")
        w.matrix(f"blk.{b}.ssm_in", 2 * inner, WIDTH)
        w.matrix(f"blk.{b}.ssm_conv1d", inner, kernel)
        w.matrix(f"blk.{b}.ssm_x", rank + 2 * state, inner)
        w.matrix(f"blk.{b}.ssm_dt", inner, rank)
        w.matrix(f"blk.{b}.ssm_out", WIDTH, inner)
        w[f"blk.{b}.ssm_conv1d.bias"] = np.zeros(inner)
        w[f"blk.{b}.ssm_dt.bias"] = np.full(inner, -2.0)  # softplus(-2) = 0.13: memories of tens of tokens
        w[f"blk.{b}.ssm_a"] = -np.tile(np.arange(1.0, state + 1) / state, (inner, 1))
        w[f"blk.{b}.ssm_d"] = np.ones(inner)
    ssm = {"ssm.conv_kernel": kernel, "ssm.inner_size": inner, "ssm.state_size": state, "ssm.time_step_rank": rank}
    return _write(folder / f"{name}.gguf", "mamba", tiny, w, ssm)


def hybrid(folder: Path, name: str = "hybrid", **fields: Any) -> Path:
    """A short convolution and an attention layer (lfm2): rolls back as far as `n_rs_seq` snapshots reach."""
    tiny = Tiny(**fields)
    w, kernel = _Weights(tiny), 3
    w.matrix("blk.0.shortconv.conv", WIDTH, kernel)
    w.matrix("blk.0.shortconv.in_proj", 3 * WIDTH, WIDTH)
    w.matrix("blk.0.shortconv.out_proj", WIDTH, WIDTH)
    w.ones("blk.0.attn_norm")
    w.attention(1)
    w.head_norms(1)
    for b in range(LAYERS):
        w.feed_forward(b)
    w["token_embd_norm.weight"] = w.pop("output_norm.weight")
    layers = {"shortconv.l_cache": kernel, "attention.head_count_kv": [0, HEADS]}
    return _write(folder / f"{name}.gguf", "lfm2", tiny, w, layers)


def noisy_copy(path: Path, noise: float, *, seed: int = 1) -> Path:
    """A draft beside `path`: to every matrix, Gaussian noise relative to the matrix's own spread is added."""
    copy = path.with_name(f"{path.stem}-noise{noise:g}-{seed}.gguf")
    shutil.copyfile(path, copy)
    for tensor in GGUFReader(copy, "r+").tensors:
        if len(tensor.shape) > 1:
            tensor.data[:] += noise * tensor.data.std() * _rng(seed, tensor.name).standard_normal(tensor.data.shape)
    return copy


def mismatched_vocab(folder: Path, name: str = "mismatched", **fields: Any) -> Path:
    """As tiny_target, but the tokens of q and x, and of Q and X, have traded places: four texts differ."""
    return tiny_target(folder, name, swapped="qxQX", **fields)


def padded_vocab(folder: Path, padding: int = 384, name: str = "padded", **fields: Any) -> Path:
    """As tiny_target, with `padding` unused ids after the shared ones."""
    return tiny_target(folder, name, padding=padding, **fields)


def truncated(path: Path, keep: float = 0.6) -> Path:
    """A copy beside `path` with only the first part of its bytes."""
    copy = path.with_name(f"{path.stem}-truncated.gguf")
    copy.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    return copy


def aborting(folder: Path, name: str = "aborting") -> Path:
    """A well-formed file with float64 tensors. It loads; the first decode makes ggml call abort(), which no
    exception handler sees. Set GGML_NO_BACKTRACE=1 where it may run: ggml calls a debugger otherwise."""
    return _write(folder / f"{name}.gguf", "llama", Tiny(), _transformer(Tiny()), dtype=np.float64)


def _rng(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


class _Weights(dict[str, NDArray[Any]]):
    """Tensors by their GGUF names, in numpy's order (rows, columns). Starts with embeddings and output."""

    def __init__(self, tiny: Tiny) -> None:
        super().__init__()
        self.seed = tiny.seed
        rows = VOCAB + tiny.spm + tiny.padding
        self.matrix("token_embd", rows, WIDTH, gain=np.sqrt(WIDTH))
        self.ones("output_norm")
        self.matrix("output", rows, WIDTH, gain=tiny.sharpness)
        unlikely = [b for b in range(256) if not 32 <= b < 127 and b != 10]
        self["output.weight"][unlikely] *= 0.3  # so that replies are mostly legible, with some stray bytes
        self["output.weight"][256:] *= 0
        self.matrix("ending", 1, WIDTH, gain=tiny.sharpness * tiny.ending)
        self["output.weight"][IM_END] = self.pop("ending.weight")

    def matrix(self, name: str, rows: int, columns: int, gain: float = 1.0) -> None:
        """Gaussian, scaled so that it keeps the size of what it is applied to, times `gain`."""
        self[f"{name}.weight"] = _rng(self.seed, name).standard_normal((rows, columns)) * (gain / np.sqrt(columns))

    def ones(self, name: str, size: int = WIDTH, gain: float = 1.0) -> None:
        self[f"{name}.weight"] = np.full(size, gain)

    def attention(self, b: int) -> None:
        """Gains found by trying: sharp attention keeps greedy text out of loops, yet follows small noise."""
        self.ones(f"blk.{b}.attn_norm")
        self.matrix(f"blk.{b}.attn_q", HEADS * HEAD, WIDTH, gain=1.75)
        self.matrix(f"blk.{b}.attn_k", HEADS * HEAD, WIDTH, gain=1.75)
        self.matrix(f"blk.{b}.attn_v", HEADS * HEAD, WIDTH)
        self.matrix(f"blk.{b}.attn_output", WIDTH, HEADS * HEAD)

    def head_norms(self, b: int) -> None:
        for which in "qk":
            self.ones(f"blk.{b}.attn_{which}_norm", HEAD, gain=2.0)  # norms make attention blunt; this sharpens it

    def feed_forward(self, b: int) -> None:
        self.ones(f"blk.{b}.ffn_norm")
        self.matrix(f"blk.{b}.ffn_gate", FFN, WIDTH)
        self.matrix(f"blk.{b}.ffn_up", FFN, WIDTH)
        self.matrix(f"blk.{b}.ffn_down", WIDTH, FFN, gain=0.7)


def _transformer(tiny: Tiny) -> _Weights:
    w = _Weights(tiny)
    for b in range(LAYERS):
        w.attention(b)
        w.feed_forward(b)
    return w


def _vocabulary(writer: GGUFWriter, tiny: Tiny) -> None:
    """In GPT-2's byte alphabet printable bytes are themselves, and the rest move up past U+00FF."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    moved = iter(range(256, 512))
    texts = [f"<0x{b:02X}>" if tiny.spm else chr(b if b in printable else next(moved)) for b in range(256)]
    for a, b in zip(tiny.swapped[::2], tiny.swapped[1::2], strict=True):
        texts[ord(a)], texts[ord(b)] = texts[ord(b)], texts[ord(a)]
    tail = ["\u2581"] * tiny.spm + [f"[PAD{VOCAB + i}]" for i in range(tiny.padding)]
    kinds = [TokenType.NORMAL] * tiny.spm + [TokenType.UNUSED] * tiny.padding
    writer.add_tokenizer_model("llama" if tiny.spm else "gpt2")
    writer.add_tokenizer_pre("default" if tiny.spm else "gpt-2")
    writer.add_token_list([*texts, *SPECIALS, *tail])
    writer.add_token_types([TokenType.BYTE if tiny.spm else TokenType.NORMAL] * 256 + [*SPECIALS.values(), *kinds])
    writer.add_token_merges(["\u00ff \u00ff"])  # llama.cpp wants a list; no UTF-8 text has these two bytes
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(END_OF_TEXT)
    writer.add_eot_token_id(IM_END)
    writer.add_add_bos_token(tiny.add_bos)


def _write(
    path: Path, architecture: str, tiny: Tiny, weights: _Weights, extra: dict[str, Any] | None = None, dtype: Any = np.float32
) -> Path:
    writer = GGUFWriter(path, architecture)
    numbers: dict[str, Any] = {
        "context_length": tiny.context, "embedding_length": WIDTH, "block_count": LAYERS,
        "feed_forward_length": FFN, "attention.head_count": HEADS, "attention.head_count_kv": HEADS,
        "attention.key_length": HEAD, "attention.value_length": HEAD, **(extra or {}),
    }
    for key, value in numbers.items():
        (writer.add_array if isinstance(value, list) else writer.add_uint32)(f"{architecture}.{key}", value)
    writer.add_layer_norm_rms_eps(1e-6)
    _vocabulary(writer, tiny)
    if tiny.template is not None:
        writer.add_chat_template(tiny.template)
    for name, data in weights.items():
        writer.add_tensor(name, data.astype(dtype))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
