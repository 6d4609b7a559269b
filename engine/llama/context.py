"""A KV cache over a model, and the decodes that fill it. Owns the native context, its batch and its memory.

Everything is addressed by sequence id, so that one context can later hold several replies; `decode` takes
blocks of (sequence, first position, tokens). Positions count tokens from 0.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import psutil
from numpy.typing import NDArray

from engine.errors import DecodeAborted, DecodeFailed, LoadFailed, NoCacheSlot, StateNotSaved
from engine.llama.binding import CancelFlag, count_native, lib, take_complaints
from engine.llama.model import Model

KV_TYPES: dict[str, int] = {"f16": lib.GGML_TYPE_F16, "q8_0": lib.GGML_TYPE_Q8_0, "q4_0": lib.GGML_TYPE_Q4_0}
RECURRENT_SNAPSHOTS = 8
"""Recurrent layers keep one state per token that may be taken back; a state of a current hybrid model is
tens of MB, so few are kept and blocks on such models are short."""
STATE_RESERVE = 256 << 20
"""Memory that a copy of a cache leaves free."""
_BYTES = ctypes.POINTER(ctypes.c_uint8)


class Context:
    """One native context. Not thread-safe; `cancel` may be raised from anywhere."""

    def __init__(
        self, model: Model, *, n_ctx: int, batch: int, max_outputs: int, threads: int, batch_threads: int,
        flash_attention: bool | None = None, kv_type: Literal["f16", "q8_0", "q4_0"] = "f16",
        cancel: CancelFlag | None = None,
    ) -> None:
        """max_outputs: most rows of logits one decode may ask for; sizes buffers, so keep it small.

        flash_attention None lets llama.cpp decide. Raises LoadFailed.
        """
        self.model = model
        self.cancel = cancel or CancelFlag()
        self.batch_size = batch
        params = lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = n_ctx, batch, batch
        params.n_outputs_max = params.n_outputs_max_per_seq = max_outputs
        params.n_threads, params.n_threads_batch = threads, batch_threads
        params.type_k = params.type_v = KV_TYPES[kv_type]
        params.flash_attn_type = {
            None: lib.LLAMA_FLASH_ATTN_TYPE_AUTO, True: lib.LLAMA_FLASH_ATTN_TYPE_ENABLED,
            False: lib.LLAMA_FLASH_ATTN_TYPE_DISABLED,
        }[flash_attention]
        params.no_perf = True
        params.swa_full = model.sliding_window > 0  # a window-sized cache cannot take tokens back
        params.n_rs_seq = RECURRENT_SNAPSHOTS if model.is_recurrent else 0
        params.abort_callback = self.cancel.callback
        params.abort_callback_data = self.cancel.address
        take_complaints()
        pointer = lib.llama_init_from_model(model.pointer, params)
        if not pointer:
            raise LoadFailed(
                f"no context of {n_ctx} tokens for {model.path.name}: {take_complaints() or 'out of memory?'};"
                " try a smaller --ctx"
            )
        self._pointer: Any = pointer
        self._memory: Any = lib.llama_get_memory(pointer)
        self.n_ctx: int = lib.llama_n_ctx(pointer)
        self._batch: Any = lib.llama_batch_init(batch, 0, 1)
        # One numpy view per field: filling them by slice costs microseconds where ctypes items cost a loop.
        view = np.ctypeslib.as_array
        self._tokens = view(self._batch.token, (batch,))
        self._positions = view(self._batch.pos, (batch,))
        self._outputs = view(self._batch.logits, (batch,))
        view(self._batch.n_seq_id, (batch,))[:] = 1
        self._sequences = [self._batch.seq_id[i] for i in range(batch)]
        for slot in self._sequences:
            slot[0] = 0
        self._sequence_in_batch = 0
        self._first_output = 0
        self._last_rows: dict[int, int] = {}

    # ---- decoding

    def decode(self, tokens: Sequence[int], position: int, outputs: int, sequence: int = 0) -> None:
        """Read `tokens` (at most batch_size) into the cache from `position`; the last `outputs` rows give logits.

        Raises NoCacheSlot (1), DecodeAborted (2), DecodeFailed (others). After an error the cache may hold some
        of the tokens, or on recurrent models nothing at all: read `length`.
        """
        n = len(tokens)
        self._tokens[:n] = tokens
        self._positions[:n] = np.arange(position, position + n, dtype=np.int32)
        self._outputs[:n] = 0
        self._outputs[n - outputs : n] = 1
        if sequence != self._sequence_in_batch:
            for slot in self._sequences:
                slot[0] = sequence
            self._sequence_in_batch = sequence
        self._batch.n_tokens = n
        self._first_output = n - outputs
        started = time.perf_counter()
        code = lib.llama_decode(self._pointer, self._batch)
        if code == 0:
            lib.llama_synchronize(self._pointer)  # so that a GPU's time is counted where it is spent
        count_native(started)
        if code == 0:
            self._last_rows[sequence] = n
            return
        if self.model.is_recurrent and code not in (1, -1):  # its states were being overwritten
            self.clear(sequence)
        if code == 1:
            raise NoCacheSlot(f"no room in the KV cache for {n} tokens at {position} of {self.n_ctx}")
        if code == 2:
            raise DecodeAborted("cancelled")
        raise DecodeFailed(f"llama.cpp failed a decode of {n} tokens (code {code}): {take_complaints() or 'no reason given'}")

    def logits(self, row: int) -> NDArray[np.float32]:
        """Zero-copy view (n_vocab,) of an output row of the last decode, counted among outputs; valid until the next."""
        address = lib.llama_get_logits_ith(self._pointer, self._first_output + row)
        if not address:
            raise DecodeFailed(f"llama.cpp has no logits for row {row}")
        return np.ctypeslib.as_array(address, (self.model.n_vocab,))

    # ---- the cache

    def length(self, sequence: int = 0) -> int:
        """Tokens of `sequence` in the cache."""
        return int(lib.llama_memory_seq_pos_max(self._memory, sequence)) + 1

    def truncate(self, length: int, sequence: int = 0) -> bool:
        """Forget the tokens from position `length` on. False if this cache cannot (nothing has changed then).

        Recurrent layers: a decode of n rows writes n snapshots, one for each row, and leaves older ones where they
        are, now in wrong places. llama.cpp 0.3.36 would go back to those; only what lies within the last decode
        is taken back here. Sliding windows: a state that was saved and loaded lacks what no longer is in any window.
        """
        if self.model.is_recurrent and self.length(sequence) - length >= self._last_rows.get(sequence, 0):
            return False
        window = self.model.sliding_window
        if window and lib.llama_memory_seq_pos_min(self._memory, sequence) > max(0, length - window):
            return False
        return bool(lib.llama_memory_seq_rm(self._memory, sequence, length, -1))

    def clear(self, sequence: int = 0) -> None:
        """Forget all of `sequence`; always possible."""
        self._last_rows.pop(sequence, None)
        lib.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def state_bytes(self, sequence: int = 0) -> int:
        """What the cache holds of `sequence`, in bytes."""
        return int(lib.llama_state_seq_get_size(self._pointer, sequence))

    def state(self, sequence: int = 0) -> memoryview:
        """A copy of what the cache holds of `sequence`. Raises StateNotSaved where that needs more memory than is free."""
        size = self.state_bytes(sequence)
        if size > psutil.virtual_memory().available - STATE_RESERVE:
            raise StateNotSaved(f"saving what was read of this chat takes {size / 1e9:.1f} GB of memory, which are not free")
        buffer = np.empty(size, dtype=np.uint8)
        if lib.llama_state_seq_get_data(self._pointer, buffer.ctypes.data_as(_BYTES), size, sequence) != size:
            raise StateNotSaved(f"llama.cpp cannot save this model's cache: {take_complaints() or 'no reason given'}")
        return buffer.data

    def load_state(self, state: memoryview, sequence: int = 0) -> bool:
        """Put back what `state` gave, in a context of the same model and settings. False if llama.cpp refuses: `sequence`
        is then to be cleared. The bytes must be as they were given; llama.cpp ends the process over some that are not."""
        self._last_rows.pop(sequence, None)
        data = np.frombuffer(state, dtype=np.uint8)
        read = lib.llama_state_seq_set_data(self._pointer, data.ctypes.data_as(_BYTES), len(data), sequence)
        lib.llama_synchronize(self._pointer)
        return bool(read == len(data))

    def close(self) -> None:
        """Free the cache and the batch. Safe to call twice."""
        if self._pointer is not None:
            lib.llama_batch_free(self._batch)
            lib.llama_free(self._pointer)
            self._pointer = None
