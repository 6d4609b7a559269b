"""The catalogue: our own data is sound, a user's is read with the same rules, and mistakes are pointed at."""

from __future__ import annotations

from pathlib import Path

import pytest

from models import BadCatalogue, UnknownModel, load_catalogue, parse_hub_reference
from models.toml_lines import line_of

GOOD = """
[[files]]
name = "mine-big"
repo = "me/big-GGUF"
file = "big.gguf"

[[files]]
name = "mine-small"
repo = "me/small-GGUF"
file = "small.gguf"
bytes = 10
attention = { kind = "sliding-window", window = 512 }

[[pairs]]
name = "mine"
title = "My own"
target = "mine-big"
draft = "mine-small"
"""


def user_file(directory: Path, text: str, name: str = "catalogue.toml") -> Path:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return path


def test_the_starter_pair_is_pinned_mirrored_and_first() -> None:
    catalogue = load_catalogue()
    starter = catalogue.pair("starter")
    assert catalogue.pairs[0] == starter
    for file in starter.files:
        assert file.revision
        assert file.sha256
        assert file.mirror
        assert file.bytes
        assert catalogue.find_file(file.name) == catalogue.find_file(file.file) == file


def test_our_own_entries_keep_the_rules() -> None:
    catalogue = load_catalogue()
    hashes = [file.sha256 for file in catalogue.files if file.sha256]
    assert len(set(hashes)) == len(hashes)
    assert len({file.relative_path for file in catalogue.files}) == len(catalogue.files)
    names = {file.name for file in catalogue.files} | {pair.name for pair in catalogue.pairs}
    for entry in [*catalogue.files, *catalogue.pairs]:
        assert entry.title
        if entry.unusable:  # says what to take instead, by a name that exists
            assert any(f"se {name}" in entry.unusable for name in names)
    for file in catalogue.files:
        assert file.licence
        assert file.bytes is None or file.sha256, "a size without a hash cannot be checked"
    for pair in catalogue.pairs:
        assert (pair.vocabulary.shared is False) <= (pair.unusable is not None)
        assert not any(file.unusable for file in pair.files)
        if pair.draft is not None:
            assert pair.vocabulary.evidence
            if pair.draft.bytes and pair.target.bytes:
                assert pair.draft.bytes < pair.target.bytes


@pytest.mark.parametrize(
    "name",
    [
        "starter",
        "qwen2.5-7b",
        "qwen2.5-14b",
        "qwen2.5-32b",
        "qwen2.5-coder-7b",
        "qwen2.5-coder-14b",
        "qwen2.5-coder-32b",
        "qwen3-4b",
        "qwen3-8b",
        "qwen3-14b",
        "qwen3-32b",
        "llama-3.1-8b",
        "gemma-3-4b",
        "gemma-3-12b",
        "gemma-3-27b",
        "smollm2-1.7b",
        "deepseek-r1-7b",
        "deepseek-r1-14b",
        "gemma-4-12b",
        "gemma-4-31b",
        "ministral-3-8b",
        "granite-4.1-8b",
        "qwen3.5-27b",
        "gemma-2-9b",
        "gemma-1.1-7b",
        "llama-2-13b",
        "mixtral-8x7b",
        "pythia-12b",
    ],
)
def test_the_pairs_people_ask_for_are_there(name: str) -> None:
    pair = load_catalogue().pair(name)
    assert pair.draft is not None
    assert pair.unusable is None


def test_unknown_names_say_what_there_is() -> None:
    with pytest.raises(UnknownModel, match="starter"):
        load_catalogue().pair("nope")
    with pytest.raises(UnknownModel, match="hf:owner/repo"):
        load_catalogue().find_file("nope")


def test_a_user_adds_pairs_and_overrides_ours(tmp_path: Path) -> None:
    user_file(tmp_path, GOOD + GOOD[GOOD.index("[[pairs]]") :].replace('"mine"', '"starter"'))
    catalogue = load_catalogue(tmp_path)
    pair = catalogue.pair("mine")
    assert pair.draft is not None
    assert pair.draft.attention is not None
    assert pair.draft.attention.window == 512
    assert catalogue.pair("starter").target.name == "mine-big"


def test_a_user_s_file_takes_its_place_in_our_pairs(tmp_path: Path) -> None:
    user_file(tmp_path, '[[files]]\nname = "qwen2.5-coder-0.5b"\nrepo = "me/mine"\nfile = "mine.gguf"\n')
    draft = load_catalogue(tmp_path).pair("starter").draft
    assert draft is not None
    assert draft.repo == "me/mine"


def test_a_directory_that_is_not_there_adds_nothing(tmp_path: Path) -> None:
    assert load_catalogue(tmp_path / "none").pairs == load_catalogue().pairs


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("bytes = 10", 'bytes = "ten"', 11, "files.bytes"),
        ("bytes = 10", "bytes = -1", 11, "files.bytes"),
        ("window = 512", "windows = 512", 12, "attention.windows"),
        ('repo = "me/small-GGUF"', 'repo = "small"', 9, "owner/repository"),
        ('file = "small.gguf"', 'file = "../small.gguf"', 10, "inside the repository"),
        ('file = "small.gguf"', 'file = "small.bin"', 10, "gguf"),
        ('name = "mine-small"', 'name = "mine small"', 8, "files.name"),
        ('title = "My own"', "", 14, "title: is missing"),
        ('draft = "mine-small"', 'draft = "mine-tiny"', 18, "'mine-tiny'"),
        ("bytes = 10", "bytes = ", 11, "not valid TOML"),
        ('name = "mine-small"', 'name = "mine-big"', 8, "twice"),
    ],
)
def test_a_mistake_is_named_with_its_line_and_field(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    assert old in GOOD
    path = user_file(tmp_path, GOOD.replace(old, new))
    with pytest.raises(BadCatalogue) as caught:
        load_catalogue(tmp_path)
    message = str(caught.value)
    assert str(path) in message
    assert f"line {line}" in message
    assert says in message
    assert "\n" not in message


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "catalogue.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadCatalogue, match="cannot be read"):
        load_catalogue(tmp_path)


def test_a_mirror_cannot_smuggle_options_into_pip(tmp_path: Path) -> None:
    mirror = '\n[files.mirror]\nproject = "--index-url=evil{n}"\nversion = "1"\nmember = "m"\npart_bytes = 1\npart_sha256 = []\n'
    user_file(tmp_path, '[[files]]\nname = "a"\nrepo = "a/b"\nfile = "c.gguf"\nbytes = 1\n' + mirror)
    with pytest.raises(BadCatalogue, match=r"line 8: files\.mirror\.project"):
        load_catalogue(tmp_path)


def test_hub_references() -> None:
    file = parse_hub_reference("hf:owner/repo/sub/file.gguf")
    assert (file.repo, file.file, file.revision) == ("owner/repo", "sub/file.gguf", None)
    assert parse_hub_reference(f"hf:owner/repo@{'a' * 40}/f.gguf").revision == "a" * 40
    assert str(file.relative_path) == "owner/repo/sub/file.gguf"


@pytest.mark.parametrize(
    "reference",
    ["hf:owner/repo", "owner/repo/f.gguf", "hf:owner/repo/f.bin", "hf:../../x/f.gguf", "hf:o/r/../../f.gguf",
     "hf:o/r//etc/f.gguf", "hf:o/r/a\\b.gguf", "hf:o/..x/f.gguf", "hf:", ""],
)  # fmt: skip
def test_bad_references_are_one_line(reference: str) -> None:
    with pytest.raises(UnknownModel, match=r"hf:owner/repo/file\.gguf"):
        parse_hub_reference(reference)


def test_pieces_of_a_split_model() -> None:
    pieces = parse_hub_reference("hf:o/r/m-00001-of-00003.gguf").pieces()
    assert [p.file for p in pieces] == [f"m-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    assert len(parse_hub_reference("hf:o/r/m.gguf").pieces()) == 1


def test_lines_are_found_in_nested_tables() -> None:
    text = "[[a]]\nx = 1\n[[a.b]]\ny = 1\n[[a.b]]\ny = 2\n[[a]]\n[[a.b]]\ny = 3\n[c.d]\nz = 1\n"
    assert line_of(text, ("a", 0, "b", 1, "y")) == 6
    assert line_of(text, ("a", 1, "b", 0, "y")) == 9
    assert line_of(text, ("c", "d", "z")) == 11
    assert line_of(text, ("a", 1, "x")) == 7
