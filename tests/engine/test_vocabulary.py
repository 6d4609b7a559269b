"""Which pairs speak one vocabulary, and what is said of those that do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gguf import GGUFReader

from engine.errors import IncompatibleDraft
from engine.llama.model import Model
from engine.vocabulary import check_vocabularies
from tests import tiny_models as tiny

Open = Callable[[Path], Model]


@pytest.fixture
def load() -> Iterator[Open]:
    opened: list[Model] = []

    def open_model(path: Path) -> Model:
        opened.append(Model(path, vocab_only=True))
        return opened[-1]

    yield open_model
    for model in opened:
        model.close()


def edited(path: Path, name: str, change: Callable[[GGUFReader], None]) -> Path:
    """A copy of `path` beside it, with `change` made to its metadata in place."""
    copy = path.with_name(f"{name}.gguf")
    copy.write_bytes(path.read_bytes())
    reader = GGUFReader(copy, "r+")
    change(reader)
    reader.data.flush()
    return copy


def set_number(key: str, value: int) -> Callable[[GGUFReader], None]:
    def change(reader: GGUFReader) -> None:
        field = reader.fields[key]
        field.parts[field.data[0]][0] = value

    return change


def test_equal_vocabularies_are_shared_whole(target: Path, draft: Path, load: Open) -> None:
    assert check_vocabularies(load(target), load(draft)).size == tiny.VOCAB


@pytest.mark.parametrize("padding", [1, 128, 384, 5000])
def test_padding_is_ignored_on_either_side(padding: int, target: Path, tmp_path: Path, load: Open) -> None:
    """llama.cpp's own check refuses more than 128 rows of it."""
    padded = tiny.padded_vocab(tmp_path, padding)
    for pair in ((target, padded), (padded, target)):
        assert check_vocabularies(*map(load, pair)).size == tiny.VOCAB
    assert check_vocabularies(load(padded), load(padded)).size == tiny.VOCAB + padding


def test_swapped_texts_are_counted_and_the_first_is_named(target: Path, mismatched: Path, load: Open) -> None:
    with pytest.raises(IncompatibleDraft) as error:
        check_vocabularies(load(target), load(mismatched))
    text = str(error.value)
    assert "mismatched.gguf cannot draft for target.gguf" in text
    assert "4 of 262 token texts differ, first id 81 ('X' against 'Q')" in text
    assert text.endswith("use a draft of the same family as target.gguf, from the same converter")


def test_ids_in_use_that_only_one_has_are_no_padding(target: Path, tmp_path: Path, load: Open) -> None:
    padded = tiny.padded_vocab(tmp_path, 40)

    def use_the_last(reader: GGUFReader) -> None:
        kinds = reader.fields["tokenizer.ggml.token_type"]
        texts = reader.fields["tokenizer.ggml.tokens"]
        last = texts.parts[texts.data[-1]]
        last[:] = list(b"word".ljust(len(last), b"!"))
        kinds.parts[kinds.data[-1]][0] = 1

    used = edited(padded, "used", use_the_last)
    for pair in ((target, used), (used, target)):
        with pytest.raises(IncompatibleDraft, match=r"only used\.gguf has ids 301 to 301, and they are in use \('word!"):
            check_vocabularies(*map(load, pair))


@pytest.mark.parametrize(
    ("role", "key"),
    [("BOS", "tokenizer.ggml.bos_token_id"), ("EOS", "tokenizer.ggml.eos_token_id"), ("EOT", "tokenizer.ggml.eot_token_id")],
)
def test_other_special_tokens_are_a_mismatch(role: str, key: str, target: Path, tmp_path: Path, load: Open) -> None:
    own = tiny.tiny_target(tmp_path)
    other = edited(own, "other", set_number(key, tiny.THINK))
    with pytest.raises(IncompatibleDraft, match=f"its {role} token is {tiny.THINK}, the target's"):
        check_vocabularies(load(target), load(other))


def test_only_one_that_starts_texts_with_bos_is_a_mismatch(target: Path, tmp_path: Path, load: Open) -> None:
    other = tiny.tiny_target(tmp_path, "bos", add_bos=True)
    with pytest.raises(IncompatibleDraft, match="only one of them starts texts with BOS"):
        check_vocabularies(load(target), load(other))
