"""The tiny models are what they say: llama.cpp itself loads them, decodes them, and refuses what it should."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as lib
import numpy as np
import pytest
from numpy.typing import NDArray

from tests import tiny_models as tiny

PROMPT = list(b"def main():\n    print('hello')\n")


@lib.llama_log_callback
def _quiet(*_: Any) -> None:
    pass


class Loaded:
    """The least one needs of llama.cpp to look at a model."""

    def __init__(self, path: Path, **context: Any) -> None:
        lib.llama_log_set(_quiet, None)
        self.model = lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params())
        assert self.model, f"{path.name} does not load"
        self.vocab = lib.llama_model_get_vocab(self.model)
        self.rows = lib.llama_vocab_n_tokens(self.vocab)
        params = lib.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = 512
        params.n_threads = params.n_threads_batch = 1
        for key, value in context.items():
            setattr(params, key, value)
        self.context = lib.llama_init_from_model(self.model, params)
        self.memory = lib.llama_get_memory(self.context)

    def decode(self, tokens: list[int], start: int) -> NDArray[np.float32]:
        """Logits of every row."""
        batch = lib.llama_batch_init(len(tokens), 0, 1)
        batch.n_tokens = len(tokens)
        for i, token in enumerate(tokens):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, start + i, 1, 1
            batch.seq_id[i][0] = 0
        assert lib.llama_decode(self.context, batch) == 0
        lib.llama_batch_free(batch)
        return np.ctypeslib.as_array(lib.llama_get_logits(self.context), (len(tokens), self.rows)).copy()

    def greedy(self, count: int) -> list[int]:
        tokens, logits = list(PROMPT), self.decode(PROMPT, 0)
        for _ in range(count):
            tokens.append(int(logits[-1].argmax()))
            logits = self.decode(tokens[-1:], len(tokens) - 1)
        return tokens

    def encode(self, text: str, special: bool = False) -> list[int]:
        raw = text.encode()
        out = (lib.llama_token * (len(raw) + 8))()
        count = lib.llama_tokenize(self.vocab, raw, len(raw), out, len(out), False, special)
        return list(out[:count])

    def piece(self, token: int) -> bytes:
        buffer = (lib.ctypes.c_char * 64)()
        return bytes(buffer[: lib.llama_token_to_piece(self.vocab, token, buffer, 64, 0, True)])

    def roll_back(self, to: int) -> bool:
        return bool(lib.llama_memory_seq_rm(self.memory, 0, to, -1))

    def close(self) -> None:
        lib.llama_free(self.context)
        lib.llama_model_free(self.model)


Open = Callable[..., Loaded]


@pytest.fixture
def load() -> Iterator[Open]:
    opened: list[Loaded] = []

    def open_model(path: Path, **context: Any) -> Loaded:
        opened.append(Loaded(path, **context))
        return opened[-1]

    yield open_model
    for model in opened:
        model.close()


@pytest.mark.parametrize("kind", ["target", "sliding", "recurrent", "hybrid", "padded", "mismatched"])
def test_greedy_text_is_varied_sharp_and_repeatable(kind: str, load: Open, request: pytest.FixtureRequest) -> None:
    model = load(request.getfixturevalue(kind))
    tokens = model.greedy(150)
    tail = tokens[-100:]
    assert len(set(zip(tail, tail[1:], tail[2:], strict=False))) > 40, "the reply fell into a loop"
    lib.llama_memory_clear(model.memory, True)
    logits = model.decode(tokens, 0)[len(PROMPT) :]
    best = np.exp(logits.max(1)) / np.exp(logits).sum(1)
    assert 0.35 < best.mean() < 0.75
    lib.llama_memory_clear(model.memory, True)
    assert model.greedy(150) == tokens


def test_drafts_agree_as_their_names_say(target: Path, drafts: dict[str, Path], load: Open) -> None:
    model = load(target)
    tokens = model.greedy(400)
    agreement = {}
    for name, path in drafts.items():
        guesses = load(path).decode(tokens[:-1], 0).argmax(1)[len(PROMPT) :]
        agreement[name] = float((guesses == tokens[len(PROMPT) + 1 :]).mean())
    assert 0.7 < agreement["good"] < 0.95
    assert 0.25 < agreement["fair"] < 0.6
    assert agreement["poor"] < 0.25


def test_files_repeat_byte_for_byte_and_follow_the_seed(target: Path, tmp_path: Path) -> None:
    assert tiny.tiny_target(tmp_path).read_bytes() == target.read_bytes()
    assert tiny.tiny_target(tmp_path, "other", seed=1).read_bytes() != target.read_bytes()


def test_any_text_round_trips_one_token_per_byte(target: Path, load: Open) -> None:
    model = load(target)
    text = "naïve 北京 👩‍👩‍👧 \t\r\n  the end\x00?<|im_end|>"
    tokens = model.encode(text)
    assert tokens == list(text.encode())
    assert b"".join(map(model.piece, tokens)) == text.encode()
    assert model.encode("<|im_start|>a<think>", special=True) == [tiny.IM_START, ord("a"), tiny.THINK]
    assert model.piece(tiny.IM_END) == b"<|im_end|>"


def test_sentencepiece_vocabulary_puts_a_space_before_text(tmp_path: Path, load: Open) -> None:
    model = load(tiny.tiny_target(tmp_path, "spm", spm=True))
    tokens = model.encode("<|im_start|>a b", special=True)
    assert tokens == [tiny.IM_START, tiny.SPACE, ord("a"), tiny.SPACE, ord("b")]
    assert b"".join(map(model.piece, tokens[1:])) == b" a b"
    assert len(model.greedy(20)) == len(PROMPT) + 20


def test_ending_makes_replies_end(tmp_path: Path, load: Open) -> None:
    never = load(tiny.tiny_target(tmp_path, "never")).greedy(300)
    often = load(tiny.tiny_target(tmp_path, "often", ending=1.5)).greedy(300)
    assert tiny.IM_END not in never
    assert tiny.IM_END in often


def test_rollback_is_refused_where_states_are_not_kept(target: Path, recurrent: Path, hybrid: Path, load: Open) -> None:
    outcome = {}
    for name, path, snapshots in (
        ("plain", target, 0), ("recurrent", recurrent, 0), ("hybrid", hybrid, 0), ("snapshots", hybrid, 4),
    ):
        model = load(path, n_rs_seq=snapshots)
        for i in range(40):
            model.decode([65 + i], i)
        outcome[name] = (model.roll_back(37), model.roll_back(20))
    assert outcome == {
        "plain": (True, True), "recurrent": (False, False), "hybrid": (False, False), "snapshots": (True, False)
    }


@pytest.mark.parametrize("swa_full", [False, True])
def test_sliding_window_rolls_back_without_complaint_but_forgets(sliding: Path, swa_full: bool, load: Open) -> None:
    """llama.cpp keeps window + n_ubatch cells, rounded up to 256, and accepts a rollback past them: only the
    least position left in the cache tells that the tokens before it are gone."""
    tokens = [65 + i % 50 for i in range(450)]
    fresh = load(sliding, n_ubatch=32)
    error = {}
    for to in (430, 20):
        model = load(sliding, n_ubatch=32, swa_full=swa_full)
        for i, token in enumerate(tokens):
            model.decode([token], i)
        assert (lib.llama_memory_seq_pos_min(model.memory, 0) > 0) is not swa_full
        assert model.roll_back(to)
        lib.llama_memory_clear(fresh.memory, True)
        fresh.decode(tokens[:to], 0)
        error[to] = float(np.abs(model.decode([70], to) - fresh.decode([70], to)).max())
    assert error[430] < 0.05
    assert (error[20] < 0.05) is swa_full


def test_padded_rows_leave_the_shared_logits_alone(target: Path, padded: Path, load: Open) -> None:
    plain, wide = load(target), load(padded)
    assert wide.rows == plain.rows + 384
    np.testing.assert_allclose(wide.decode(PROMPT, 0)[:, : plain.rows], plain.decode(PROMPT, 0), atol=1e-3)
    assert [wide.piece(t) for t in range(plain.rows)] == [plain.piece(t) for t in range(plain.rows)]


def test_mismatched_vocabulary_differs_in_four_texts(target: Path, mismatched: Path, load: Open) -> None:
    ours, theirs = load(target), load(mismatched)
    differing = [t for t in range(ours.rows) if ours.piece(t) != theirs.piece(t)]
    assert differing == sorted(map(ord, "qxQX"))


def test_truncated_file_is_refused(truncated: Path) -> None:
    lib.llama_log_set(_quiet, None)
    assert not lib.llama_model_load_from_file(str(truncated).encode(), lib.llama_model_default_params())


def test_aborting_file_kills_the_process(aborting: Path) -> None:
    root = Path(__file__).parents[1]
    code = (
        "import sys; from pathlib import Path; from tests.test_tiny_models import Loaded;"
        "m = Loaded(Path(sys.argv[1])); print('loaded', flush=True); m.decode([1, 2], 0)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(aborting)], cwd=root, capture_output=True, text=True)
    assert run.stdout.startswith("loaded")
    assert run.returncode != 0
    assert "Traceback" not in run.stderr


def test_network_is_blocked_beyond_loopback() -> None:
    with pytest.raises(RuntimeError, match="no network"):
        socket.create_connection(("example.org", 80), timeout=1)
    with pytest.raises(RuntimeError, match="no network"), socket.socket() as sock:
        sock.connect(("192.0.2.1", 80))
    with socket.create_server(("127.0.0.1", 0)) as server:
        socket.create_connection(server.getsockname(), timeout=1).close()
