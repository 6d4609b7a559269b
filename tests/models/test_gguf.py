"""The header reader takes real files, and answers every broken one with BadGguf: no crash, hang or flood of memory."""

from __future__ import annotations

import os
import struct
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models import BadGguf
from models.gguf import GgufInfo, read_gguf
from tests.models.gguf_bytes import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    F32,
    F64,
    I32,
    STRING,
    U8,
    U16,
    U32,
    U64,
    T,
    array,
    gguf,
    key,
    text,
)

MAX_SECONDS = 2.0
MAX_MEMORY = 64 << 20


def written(directory: Path, data: bytes, name: str = "model.gguf") -> Path:
    path = directory / name
    path.write_bytes(data)
    return path


def read_within_bounds(path: Path) -> GgufInfo | BadGguf:
    """The answer, having checked that it came in time, in little memory and in one line."""
    tracemalloc.start()
    begun = time.monotonic()
    try:
        answer: GgufInfo | BadGguf = read_gguf(path)
    except BadGguf as error:
        answer = error
    seconds, peak = time.monotonic() - begun, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert seconds < MAX_SECONDS
    assert peak < MAX_MEMORY
    if isinstance(answer, BadGguf):
        assert "\n" not in str(answer)
        assert path.name in str(answer)
    return answer


# -- sound files -------------------------------------------------------------------------------------------


def test_a_real_models_header(target: Path) -> None:
    info = read_gguf(target)
    assert info.architecture == "llama"
    assert info.metadata["llama.block_count"] == 2
    assert info.vocabulary == 262
    assert info.file_bytes == target.stat().st_size
    assert {tensor.type for tensor in info.tensors} <= {"F32", "F16"}
    embedding = next(t for t in info.tensors if t.name == "token_embd.weight")
    assert embedding.shape == (64, 262)


def test_every_kind_of_value(tmp_path: Path) -> None:
    keys = [
        ARCHITECTURE,
        key("a", U8, 255),
        key("b", U16, 65535),
        key("c", BOOL, True),
        key("d", F64, 0.5),
        key("e", U64, 2**64 - 1),
        key("f", STRING, "über"),
        array("g", BOOL, [True, False]),
        array("h", STRING, ["x", ""]),
        array("i", I32, range(5000)),
        array("j", STRING, ["t"] * 5000),
        array("k", F32, []),
    ]
    info = read_gguf(written(tmp_path, gguf(keys)))
    assert [info.metadata[k] for k in "abcdef"] == [255, 65535, True, 0.5, 2**64 - 1, "über"]
    assert info.metadata["g"] == (True, False)
    assert info.metadata["h"] == ("x", "")
    assert "i" not in info.metadata
    assert "j" not in info.metadata
    assert [info.arrays[k].length for k in "ghijk"] == [2, 2, 5000, 5000, 0]


def test_alignment_and_block_formats_are_followed(tmp_path: Path) -> None:
    tensors = [T("a", (256, 3), 12, 432), T("b", (64,), 8, 68), T("c", (1,), 0, 4)]
    info = read_gguf(
        written(tmp_path, gguf([ARCHITECTURE, key("general.alignment", U32, 128)], tensors, alignment=128))
    )
    assert [(t.type, t.bytes, t.offset) for t in info.tensors] == [
        ("Q4_K", 432, 0),
        ("Q8_0", 68, 512),
        ("F32", 4, 640),
    ]
    assert info.weight_bytes == 504


# -- broken files ------------------------------------------------------------------------------------------

HUGE = 2**64 - 1
BROKEN: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "GGUF"),
    "short": (b"GG", "GGUF"),
    "other magic": (gguf(magic=b"GGML"), "GGUF"),
    "version 1": (gguf(version=1), "version is 1"),
    "version 4": (gguf(version=4), "version is 4"),
    "big-endian": (gguf(version=0x03000000), "big-endian"),
    "giant tensor count": (gguf(tensor_count=HUGE), "tensors"),
    "giant key count": (gguf(key_count=HUGE), "keys"),
    "more keys than there are": (gguf(key_count=2), ""),
    "no architecture": (gguf([]), "architecture"),
    "architecture of another type": (gguf([key("general.architecture", U32, 1)]), "architecture"),
    "empty key": (gguf([ARCHITECTURE, key("", U32, 1)]), "empty"),
    "key twice": (gguf([ARCHITECTURE, ARCHITECTURE]), "twice"),
    "key longer than the file": (gguf([text("k", HUGE)]), "long"),
    "key that is not UTF-8": (gguf([text(b"\xff\xfe") + struct.pack("<IB", U8, 1)]), "UTF-8"),
    "unknown type": (gguf([ARCHITECTURE, text("k") + struct.pack("<I", 13)]), "unknown type 13"),
    "array of arrays": (gguf([ARCHITECTURE, text("k") + struct.pack("<IIQ", ARRAY, ARRAY, 1)]), "unknown type 9"),
    "array longer than the file": (gguf([ARCHITECTURE, array("k", U8, [], HUGE)]), "too short"),
    "texts beyond the file": (gguf([ARCHITECTURE, array("k", STRING, ["a"], HUGE)]), "too short"),
    "text past the end": (gguf([ARCHITECTURE, array("k", STRING, ["a"]) + text("", HUGE - 7)]), ""),
    "alignment 0": (gguf([ARCHITECTURE, key("general.alignment", U32, 0)]), "power of two"),
    "alignment 3": (gguf([ARCHITECTURE, key("general.alignment", U32, 3)]), "power of two"),
    "alignment 2^31": (gguf([ARCHITECTURE, key("general.alignment", U32, 2**31)]), "power of two"),
    "alignment true": (gguf([ARCHITECTURE, key("general.alignment", BOOL, True)]), "power of two"),
    "tokens that are numbers": (gguf([ARCHITECTURE, array("tokenizer.ggml.tokens", I32, [1])]), "array of string"),
    "tokens that are one text": (gguf([ARCHITECTURE, key("tokenizer.ggml.tokens", STRING, "a")]), "array of string"),
    "the same token twice": (gguf([ARCHITECTURE, array("tokenizer.ggml.tokens", STRING, "aba")]), "same text"),
    "giant token": (gguf([ARCHITECTURE, array("tokenizer.ggml.tokens", STRING, ["a" * 300_000])]), "300,000 bytes"),
    "fewer scores than tokens": (
        gguf([ARCHITECTURE, array("tokenizer.ggml.tokens", STRING, "abc"), array("tokenizer.ggml.scores", F32, [1])]),
        "1 entries for 3 tokens",
    ),
    "long tensor name": (gguf(tensors=[T("n" * 64)]), "long"),
    "five dimensions": (gguf(tensors=[T(shape=(1, 1, 1, 1, 1))]), "5 dimensions"),
    "giant dimension count": (gguf(tensors=[T(dimensions=2**32 - 1)]), "dimensions"),
    "no elements": (gguf(tensors=[T(shape=(32, 0))]), "impossible shape"),
    "elements overflow": (gguf(tensors=[T(shape=(2**33, 2**33))]), "impossible shape"),
    "negative as unsigned": (gguf(tensors=[T(shape=(HUGE,))]), "impossible shape"),
    "bytes overflow": (gguf(tensors=[T(shape=(2**62,), type=1)]), "cut short"),
    "removed format": (gguf(tensors=[T(type=4)]), "unknown number format 4"),
    "future format": (gguf(tensors=[T(type=2**31)]), "unknown number format"),
    "F64": (gguf(tensors=[T(type=28, size=1024)]), "F64"),
    "I32": (gguf(tensors=[T(type=26)]), "I32"),
    "row not a block": (gguf(tensors=[T(shape=(33, 4), type=8)]), "block of 32"),
    "same name twice": (gguf(tensors=[T(), T()]), "same name"),
    "offset elsewhere": (gguf(tensors=[T(offset=32)]), "is due"),
    "overlap": (gguf(tensors=[T("a"), T("b", offset=0)]), "is due"),
    "cut short": (gguf(cut=1), "cut short"),
    "split without end": (gguf([ARCHITECTURE, key("split.count", U32, 2**32 - 1)]), "split.count"),
    "split count of another type": (gguf([ARCHITECTURE, key("split.count", STRING, "2")]), "split.count"),
    "split under a whole file's name": (gguf([ARCHITECTURE, key("split.count", U16, 2)]), "piece 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    data, says = BROKEN[name]
    answer = read_within_bounds(written(tmp_path, data))
    assert isinstance(answer, BadGguf)
    assert says in str(answer)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    keys = [ARCHITECTURE, array("tokenizer.ggml.tokens", STRING, ["a", "b"]), key("x", F32, 1.0)]
    data = gguf(keys, [T("a"), T("b", (32,), 8, 34)])
    assert read_gguf(written(tmp_path, data)).vocabulary == 2
    for length in range(len(data) - 30):  # the last tensor's padding may be absent
        with pytest.raises(BadGguf):
            read_gguf(written(tmp_path, data[:length]))


def test_a_sparse_giant_with_giant_counts_is_refused_quickly(tmp_path: Path) -> None:
    """A count that the file's size would allow must not be believed either."""
    for keys in (
        [ARCHITECTURE, array("k", STRING, [], 2**31)],
        [ARCHITECTURE, array("k", STRING, [], 4_000_000), array("l", STRING, [], 4_000_000)],
        [ARCHITECTURE, *(array(f"k{n}", U64, [], 4096) for n in range(2000))],
        [array("k", U8, [], 2**38)],
    ):
        path = written(tmp_path, gguf(keys, []))
        os.truncate(path, 1 << 40)
        assert isinstance(read_within_bounds(path), BadGguf)


def test_a_vocabulary_of_a_million_is_passed_over_in_time(tmp_path: Path) -> None:
    path = written(tmp_path, gguf([ARCHITECTURE, array("k", STRING, [], 1_000_000)], []))
    os.truncate(path, 1 << 30)
    assert isinstance(read_gguf(path), GgufInfo)


def test_the_largest_vocabulary_is_compared_within_bounds(tmp_path: Path) -> None:
    tokens = [f"t{n}" for n in range(1 << 18)] + [""] * 100
    path = written(tmp_path, gguf([ARCHITECTURE, array("tokenizer.ggml.tokens", STRING, tokens)], []))
    tracemalloc.start()
    assert read_gguf(path).vocabulary == len(tokens)
    assert tracemalloc.get_traced_memory()[1] < MAX_MEMORY / 2  # twice as many are allowed
    tracemalloc.stop()
    path = written(tmp_path, gguf([ARCHITECTURE, array("tokenizer.ggml.tokens", STRING, [], 1 << 20)], []))
    os.truncate(path, 1 << 30)
    assert isinstance(read_within_bounds(path), BadGguf)


def test_something_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadGguf):
        read_gguf(tmp_path)
    with pytest.raises(BadGguf, match="cannot be read"):
        read_gguf(tmp_path / "absent.gguf")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(BadGguf, match="regular file"):
        read_gguf(tmp_path / "pipe.gguf")  # without waiting for somebody who writes to it


# -- split files -------------------------------------------------------------------------------------------


def piece(number: int, count: int, total_tensors: int, tensors: list[T]) -> bytes:
    keys = [
        key("split.no", U16, number),
        key("split.count", U16, count),
        key("split.tensors.count", I32, total_tensors),
    ]
    return gguf([ARCHITECTURE, *keys] if number == 0 else keys, tensors)


def split_model(directory: Path, change: Callable[[dict[str, bytes]], None] = lambda _: None) -> Path:
    files = {f"m-{n + 1:05d}-of-00003.gguf": piece(n, 3, 2, [T(f"t{n}")] if n else []) for n in range(3)}
    change(files)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return directory / "m-00001-of-00003.gguf"


def test_a_split_model_is_read_as_one(tmp_path: Path) -> None:
    info = read_gguf(split_model(tmp_path))
    assert [tensor.name for tensor in info.tensors] == ["t1", "t2"]
    assert len(info.paths) == 3
    assert info.file_bytes == sum(path.stat().st_size for path in info.paths)


SPLIT_FAULTS: dict[str, tuple[Callable[[dict[str, bytes]], None], str]] = {
    "missing piece": (lambda f: f.pop("m-00002-of-00003.gguf") and None, "piece 2 of 3 is missing"),
    "the first again": (lambda f: f.update({"m-00002-of-00003.gguf": piece(0, 3, 2, [])}), "another piece"),
    "of another model": (
        lambda f: f.update({"m-00002-of-00003.gguf": piece(1, 4, 2, [T()])}),
        "another piece",
    ),
    "a tensor twice": (
        lambda f: f.update({"m-00003-of-00003.gguf": piece(2, 3, 2, [T("t1")])}),
        "same tensor",
    ),
    "tensors missing": (lambda f: f.update({"m-00003-of-00003.gguf": piece(2, 3, 2, [])}), "as many tensors"),
    "a broken piece": (lambda f: f.update({"m-00003-of-00003.gguf": b"GGUF"}), "piece 3"),
}


@pytest.mark.parametrize("name", SPLIT_FAULTS)
def test_a_broken_split_is_refused_with_the_reason(tmp_path: Path, name: str) -> None:
    change, says = SPLIT_FAULTS[name]
    answer = read_within_bounds(split_model(tmp_path, change))
    assert isinstance(answer, BadGguf)
    assert says in str(answer)


def test_pieces_that_point_at_each_other_are_refused(tmp_path: Path) -> None:
    first = split_model(tmp_path)
    second = tmp_path / "m-00002-of-00003.gguf"
    second.unlink()
    second.symlink_to(first)
    assert isinstance(read_within_bounds(first), BadGguf)
    second.unlink()
    second.symlink_to(second.name)  # a link to itself
    assert isinstance(read_within_bounds(first), BadGguf)


def test_the_second_piece_is_not_a_model(tmp_path: Path) -> None:
    first = split_model(tmp_path)
    answer = read_within_bounds(first.with_name("m-00002-of-00003.gguf"))
    assert isinstance(answer, BadGguf)


# -- fuzzing -----------------------------------------------------------------------------------------------

SOUND = gguf(
    [
        ARCHITECTURE,
        key("llama.block_count", U32, 2),
        key("general.alignment", U32, 32),
        array("tokenizer.ggml.tokens", STRING, ["a", "b", "c"]),
        array("tokenizer.ggml.scores", F32, [0.0, 1.0, 2.0]),
        array("llama.attention.head_count_kv", I32, [1, 2]),
        key("tokenizer.chat_template", STRING, "{{ x }}"),
    ],
    [T("token_embd.weight"), T("blk.0.attn_q.weight", (256, 2), 12, 288), T("output.weight", (32, 2), 8, 68)],
)
EXTREMES = st.sampled_from([0, 1, 7, 8, 9, 13, 255, 2**16, 2**31, 2**32 - 1, 2**53, 2**62, 2**63, HUGE])
EDIT = st.one_of(
    st.tuples(st.integers(0, len(SOUND) - 1), st.binary(min_size=1, max_size=8)),
    st.tuples(st.integers(0, len(SOUND) - 8), EXTREMES.map(lambda v: struct.pack("<Q", v))),
    st.tuples(st.integers(0, len(SOUND) - 4), EXTREMES.map(lambda v: struct.pack("<I", v & 0xFFFFFFFF))),
)


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(EDIT, min_size=1, max_size=4), keep=st.integers(0, len(SOUND)), drop=st.integers(0, 40))
def test_spoilt_files_are_read_or_refused(
    tmp_path: Path, edits: list[tuple[int, bytes]], keep: int, drop: int
) -> None:
    data = bytearray(SOUND)
    for at, patch in edits:
        data[at : at + len(patch)] = patch
    if keep % 3 == 0:
        del data[keep : keep + drop]
    answer = read_within_bounds(written(tmp_path, bytes(data)))
    assert isinstance(answer, GgufInfo | BadGguf)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tail=st.binary(max_size=400))
def test_noise_is_read_or_refused(tmp_path: Path, tail: bytes) -> None:
    assert isinstance(read_within_bounds(written(tmp_path, b"GGUF\3\0\0\0" + tail)), GgufInfo | BadGguf)
