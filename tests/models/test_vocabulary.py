"""Two vocabularies agree by their texts, not by their sizes; and what the weights are stored as."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from models import read_gguf
from models.file_types import is_quantised, main_format, parameters_of, quantisation_of
from models.vocabulary import Vocabulary, mismatch, read_vocabulary
from tests.models.gguf_bytes import ARCHITECTURE, STRING, U32, T, array, gguf, key
from tests.tiny_models import VOCAB, tiny_target


def vocabulary(path: Path) -> Vocabulary:
    found = read_vocabulary(read_gguf(path))
    assert found is not None
    return found


def written(folder: Path, name: str, *keys: bytes) -> Path:
    path = folder / f"{name}.gguf"
    path.write_bytes(gguf([ARCHITECTURE, *keys]))
    return path


def test_the_same_texts_are_the_same_vocabulary(target: Path, draft: Path) -> None:
    ours = vocabulary(target)
    assert (ours.size, ours.used, ours.tokenizer, ours.bos) == (VOCAB, VOCAB, "gpt2", 256)
    assert mismatch(vocabulary(draft), ours) is None


def test_unused_ids_at_the_end_do_not_matter(target: Path, padded: Path) -> None:
    ours, theirs = vocabulary(target), vocabulary(padded)
    assert theirs.size == ours.size + 384
    assert mismatch(theirs, ours) is None
    assert mismatch(ours, theirs) is None


def test_four_texts_that_trade_places_are_another_vocabulary(target: Path, mismatched: Path) -> None:
    assert "token texts differ" in (mismatch(vocabulary(mismatched), vocabulary(target)) or "")


def test_another_tokenizer_says_so(target: Path, tmp_path: Path) -> None:
    assert "different kinds (llama and gpt2)" in (
        mismatch(vocabulary(tiny_target(tmp_path, spm=True)), vocabulary(target)) or ""
    )


def test_special_tokens_count_only_where_both_files_name_them(target: Path) -> None:
    ours = vocabulary(target)
    assert mismatch(replace(ours, eos=5), ours) == f"their end-of-text tokens differ (5 and {ours.eos})"
    assert mismatch(replace(ours, eos=None, adds_bos=None), ours) is None
    assert "beginning-of-text" in (mismatch(replace(ours, adds_bos=True), ours) or "")


def test_used_ids_beyond_the_others_are_a_difference(tmp_path: Path) -> None:
    short = written(tmp_path, "short", array("tokenizer.ggml.tokens", STRING, ["a", "b"]))
    longer = written(tmp_path, "longer", array("tokenizer.ggml.tokens", STRING, ["a", "b", "c"]))
    padded = written(tmp_path, "padded", array("tokenizer.ggml.tokens", STRING, ["a", "b", "[PAD2]", "<unused7>"]))
    assert mismatch(vocabulary(short), vocabulary(longer)) is not None
    assert mismatch(vocabulary(short), vocabulary(padded)) is None


def test_a_file_without_tokens_has_none(tmp_path: Path) -> None:
    assert read_vocabulary(read_gguf(written(tmp_path, "bare"))) is None


@pytest.mark.parametrize(
    ("stated", "tensor_type", "size", "named"),
    [(15, 12, 144, "Q4_K_M"), (7, 8, 272, "Q8_0"), (None, 12, 144, "Q4_K"), (0, 12, 144, "Q4_K"), (999, 8, 272, "Q8_0")],
)
def test_what_the_weights_are_stored_as(
    tmp_path: Path, stated: int | None, tensor_type: int, size: int, named: str
) -> None:
    keys = [ARCHITECTURE, *([key("general.file_type", U32, stated)] if stated is not None else [])]
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf(keys, [T("norm", (8,), 0, 32), T("matrix", (256, 1), tensor_type, size)]))
    info = read_gguf(path)
    assert (quantisation_of(info), is_quantised(info)) == (named, True)
    assert parameters_of(info) == 264


def test_full_precision_is_not_quantised(target: Path) -> None:
    info = read_gguf(target)
    assert (main_format(info), quantisation_of(info), is_quantised(info)) == ("F32", "F32", False)


@pytest.mark.parametrize(("number", "named"), [(15, "Q4_K_M"), (18, "Q6_K"), (25, "IQ4_NL"), (30, "IQ4_XS"), (38, "MXFP4")])
def test_the_numbers_are_those_of_llama_h(tmp_path: Path, number: int, named: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf([ARCHITECTURE, key("general.file_type", U32, number)], [T("matrix", (256, 1), 12, 144)]))
    assert quantisation_of(read_gguf(path)) == named
