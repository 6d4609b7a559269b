"""llama.cpp's quantiser on real tiny models: whole or absent, stoppable, and silent."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from gguf import GGUFReader

from engine import BadRequest
from engine.errors import QuantizeFailed, WorkCancelled
from engine.llama.model import Model
from engine.llama.quantizer import file_types
from engine.quantize import quantize


def matrix_types(path: Path) -> set[str]:
    return {tensor.tensor_type.name for tensor in GGUFReader(path).tensors if len(tensor.shape) > 1}


def test_the_result_is_whole_smaller_and_loads(
    target: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    result, log = tmp_path / "q8.gguf", tmp_path / "engine.log"
    sizes: list[int | None] = []
    seen: list[float] = []
    checked: list[int] = []
    quantize(
        target, result, "q8_0", threads=1, log_file=log, on_size=sizes.append, on_progress=seen.append,
        check=lambda part: checked.append(part.stat().st_size),
    )
    size = result.stat().st_size
    assert size < 0.5 * target.stat().st_size
    assert sizes == [pytest.approx(size, abs=20_000)]
    assert checked == [size]
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert "Q8_0" in matrix_types(result)
    assert stat.S_IMODE(result.stat().st_mode) & 0o077 == 0
    assert sorted(os.listdir(tmp_path)) == ["engine.log", "q8.gguf"]
    assert "quant size" in log.read_text()
    assert capfd.readouterr() == ("", "")
    model = Model(result)
    assert model.n_vocab > 256
    model.close()


def test_rows_too_short_for_a_k_format_fall_back(target: Path, tmp_path: Path) -> None:
    quantize(target, tmp_path / "out.gguf", "Q4_K_M")
    assert matrix_types(tmp_path / "out.gguf") <= {"Q5_0", "Q8_0", "Q5_1", "Q4_0", "F32", "F16"}


def test_what_is_quantised_can_be_quantised_again(target: Path, tmp_path: Path) -> None:
    quantize(target, tmp_path / "q8.gguf", "Q8_0")
    quantize(tmp_path / "q8.gguf", tmp_path / "q4.gguf", "Q4_0")
    assert (tmp_path / "q4.gguf").stat().st_size < (tmp_path / "q8.gguf").stat().st_size


def test_stopping_leaves_nothing(target: Path, tmp_path: Path) -> None:
    seen: list[float] = []
    with pytest.raises(WorkCancelled):
        quantize(target, tmp_path / "out.gguf", "Q8_0", on_progress=seen.append, cancelled=lambda: bool(seen))
    assert seen
    assert os.listdir(tmp_path) == []


def test_what_the_caller_raises_leaves_nothing_and_the_old_file_alone(target: Path, tmp_path: Path) -> None:
    old = tmp_path / "out.gguf"
    old.write_text("old")

    def refuse(_: object) -> None:
        raise OSError("no room")

    for hook in ("on_size", "on_progress", "check"):
        with pytest.raises(OSError, match="no room"):
            quantize(target, old, "Q8_0", **{hook: refuse})  # type: ignore[arg-type]
        assert (os.listdir(tmp_path), old.read_text()) == (["out.gguf"], "old")


def test_the_size_is_told_before_a_byte_is_written(target: Path, tmp_path: Path) -> None:
    def on_size(_: int | None) -> None:
        assert os.listdir(tmp_path) == []
        raise OSError("enough")

    with pytest.raises(OSError, match="enough"):
        quantize(target, tmp_path / "out.gguf", "Q8_0", on_size=on_size)


def test_what_llama_cpp_cannot_do_is_one_reason(truncated: Path, aborting: Path, tmp_path: Path) -> None:
    for source in (truncated, aborting, tmp_path / "nothing.gguf"):
        with pytest.raises(QuantizeFailed, match="cannot quantise") as caught:
            quantize(source, tmp_path / "out.gguf", "Q8_0")
        assert len(str(caught.value).splitlines()) == 1
        assert os.listdir(tmp_path) == []


def test_unknown_and_impossible_formats(target: Path, tmp_path: Path) -> None:
    assert {"Q4_K_M", "Q4_0", "Q8_0", "F16"} <= set(file_types())
    assert "IQ1_S" not in file_types()
    with pytest.raises(BadRequest, match=r"there is no format Q99; there are .*Q4_K_M"):
        quantize(target, tmp_path / "out.gguf", "Q99")
    with pytest.raises(BadRequest, match="importance matrix"):
        quantize(target, tmp_path / "out.gguf", "IQ1_S")


def test_a_full_disk_says_so(target: Path, tmp_path: Path) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("no /dev/full here")
    (tmp_path / "out.gguf.quantising").symlink_to(full)  # leads the writer there
    with pytest.raises(QuantizeFailed, match="disk full"):
        quantize(target, tmp_path / "out.gguf", "Q8_0")
    assert os.listdir(tmp_path) == []
