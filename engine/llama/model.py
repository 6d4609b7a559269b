"""A loaded model: its weights and its vocabulary. Owns the native model pointer."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.errors import BadRequest, LoadCancelled, LoadFailed
from engine.llama.binding import lib, start, take_complaints

CONTROL, UNUSED = 1 << 3, 1 << 5
"""llama_token_attr bits: markers such as <|im_end|>, and padding rows of the embedding."""


class Model:
    """Weights plus vocabulary. Also the tokenizer that engine.prompt and engine.text_stream use."""

    def __init__(
        self, path: Path, *, gpu_layers: int = 0, vocab_only: bool = False, no_alloc: bool = False,
        on_progress: Callable[[float], bool] | None = None,
    ) -> None:
        """Load `path` (any part of a split GGUF's first file). `gpu_layers` -1 puts all layers on the GPU.

        no_alloc: read no weights; contexts of such a model say in the log what they would allocate, and cannot decode.
        on_progress gets a fraction and returns False to stop. Raises LoadFailed, LoadCancelled.
        """
        start()
        self.path = path
        if not path.is_file():
            raise LoadFailed(f"{path}: {'a folder, not a model file' if path.is_dir() else 'no such file'}")
        params = lib.llama_model_default_params()
        params.n_gpu_layers = gpu_layers
        params.vocab_only = vocab_only
        if no_alloc:
            params.no_alloc, params.load_mode = True, lib.LLAMA_LOAD_MODE_NONE  # which llama.cpp demands then
        cancelled = False

        def progress(fraction: float, _data: Any) -> bool:
            nonlocal cancelled
            cancelled = on_progress is not None and not on_progress(fraction)
            return not cancelled

        callback = lib.llama_progress_callback(progress)  # kept alive by this frame while loading
        params.progress_callback = callback
        take_complaints()
        pointer = lib.llama_model_load_from_file(os.fsencode(path), params)
        if not pointer:
            if cancelled:
                raise LoadCancelled(f"loading {path.name} was cancelled")
            raise LoadFailed(f"llama.cpp cannot load {path.name}: {take_complaints() or 'no reason given'}")
        self._pointer: Any = pointer
        self._vocab: Any = lib.llama_model_get_vocab(pointer)
        self.n_vocab: int = lib.llama_vocab_n_tokens(self._vocab)
        self.add_bos: bool = bool(lib.llama_vocab_get_add_bos(self._vocab))
        self._pieces: dict[int, bytes] = {}

    # ---- facts

    @property
    def pointer(self) -> Any:
        """The native model; raises LoadFailed after close()."""
        if self._pointer is None:
            raise LoadFailed(f"{self.path.name} has been closed")
        return self._pointer

    @property
    def vocab(self) -> Any:
        return self._vocab

    @property
    def trained_context(self) -> int:
        return int(lib.llama_model_n_ctx_train(self.pointer))

    @property
    def description(self) -> str:
        """Architecture, size and quantisation as llama.cpp puts it, e.g. `qwen2 1.5B Q4_K - Medium`."""
        buffer = ctypes.create_string_buffer(256)
        lib.llama_model_desc(self.pointer, buffer, 256)
        return buffer.value.decode("utf-8", errors="replace")

    @property
    def sliding_window(self) -> int:
        """Tokens that its sliding-window layers see; 0 where there are none."""
        return int(lib.llama_model_n_swa(self.pointer))

    @property
    def is_recurrent(self) -> bool:
        """Has recurrent layers, alone or beside attention: its state cannot be cut like a KV cache."""
        return bool(lib.llama_model_is_recurrent(self.pointer) or lib.llama_model_is_hybrid(self.pointer))

    @property
    def can_decode(self) -> bool:
        """False for embedding models and encoders, which cannot write a reply."""
        return bool(lib.llama_model_has_decoder(self.pointer)) and not lib.llama_model_has_encoder(self.pointer)

    def metadata(self, key: str) -> str | None:
        """A GGUF metadata value as text; None when absent."""
        buffer = ctypes.create_string_buffer(1 << 16)
        length = lib.llama_model_meta_val_str(self.pointer, key.encode(), buffer, len(buffer))
        if length >= len(buffer):
            buffer = ctypes.create_string_buffer(length + 1)
            lib.llama_model_meta_val_str(self.pointer, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", errors="replace") if length >= 0 else None

    @property
    def chat_template(self) -> str | None:
        return self.metadata("tokenizer.chat_template")

    # ---- vocabulary

    @property
    def bos(self) -> int | None:
        return self._special(lib.llama_vocab_bos(self._vocab))

    @property
    def eos(self) -> int | None:
        return self._special(lib.llama_vocab_eos(self._vocab))

    @staticmethod
    def _special(token: int) -> int | None:
        return None if token < 0 else token

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Token ids of `text`, without BOS. special: whether markers such as <|im_end|> become their control token."""
        raw = text.encode("utf-8", errors="replace")
        capacity = len(raw) + 16
        buffer = (lib.llama_token * capacity)()
        n = lib.llama_tokenize(self._vocab, raw, len(raw), buffer, capacity, False, special)
        if n < 0:
            buffer = (lib.llama_token * -n)()
            n = lib.llama_tokenize(self._vocab, raw, len(raw), buffer, -n, False, special)
        if n < 0:
            raise BadRequest("the model's tokenizer cannot encode this text")
        return list(buffer[:n])

    def piece(self, token: int) -> bytes:
        """The bytes a reply shows for `token`; b'' for control tokens. May be part of a UTF-8 character."""
        cached = self._pieces.get(token)
        if cached is None:
            cached = self._pieces[token] = self._piece(token, special=False)
        return cached

    def marker(self, token: int | None) -> str:
        """A control token's text, as chat templates write it; '' for None."""
        return "" if token is None else self._piece(token, special=True).decode("utf-8", errors="replace")

    def _piece(self, token: int, *, special: bool) -> bytes:
        buffer = ctypes.create_string_buffer(128)
        n = lib.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        if n < 0:
            buffer = ctypes.create_string_buffer(-n)
            n = lib.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, special)
        return buffer.raw[: max(n, 0)]

    def is_end(self, token: int) -> bool:
        """True for every end-of-generation token of the model."""
        return bool(lib.llama_vocab_is_eog(self._vocab, token))

    def token_text(self, token: int) -> bytes:
        """The vocabulary entry itself, as stored in the file."""
        return lib.llama_vocab_get_text(self._vocab, token) or b""

    def is_unused(self, token: int) -> bool:
        return bool(lib.llama_vocab_get_attr(self._vocab, token) & UNUSED)

    def special_ids(self) -> dict[str, int]:
        """The ids that must agree between a target and its draft, by role; -1 where the model has none."""
        vocab = self._vocab
        return {
            "BOS": lib.llama_vocab_bos(vocab), "EOS": lib.llama_vocab_eos(vocab), "EOT": lib.llama_vocab_eot(vocab),
        }

    def close(self) -> None:
        """Free the weights. Contexts made from the model must be closed first. Safe to call twice."""
        if self._pointer is not None:
            lib.llama_model_free(self._pointer)
            self._pointer = None
