"""What other programs keep on a disk is found by their own layouts, and only looked at."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from models.importer import find_models, standard_folders

HASH = "ab" * 32


def put(path: Path, text: str = "weights") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def ollama(store: Path, manifest: str, *, digest: str = HASH, media: str = "application/vnd.ollama.image.model") -> Path:
    layers = [
        {"mediaType": "application/vnd.ollama.image.license", "digest": f"sha256:{'cd' * 32}"},
        {"mediaType": media, "digest": f"sha256:{digest}"},
    ]
    put(store / "manifests" / manifest, json.dumps({"layers": layers}))
    return put(store / "blobs" / f"sha256-{digest}")


def test_ollama_names_its_blobs_in_manifests(tmp_path: Path) -> None:
    blob = ollama(tmp_path, "registry.example/library/llama3.2/1b")
    put(tmp_path / "blobs" / f"sha256-{'cd' * 32}", "a licence, not a model")
    [found] = find_models([tmp_path])
    assert (found.path, found.name, found.origin, found.claimed_sha256) == (blob, "llama3.2:1b", "Ollama", HASH)


def test_one_blob_under_two_tags_is_one_model(tmp_path: Path) -> None:
    ollama(tmp_path, "registry.example/library/llama3.2/1b")
    ollama(tmp_path, "registry.example/someone/copy/latest")
    assert [found.name for found in find_models([tmp_path])] == ["llama3.2:1b"]


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"layers": 3}', '{"layers": [4, {"digest": 5}]}', "\0", "[" * 100_000])
def test_a_broken_manifest_is_passed_over(tmp_path: Path, manifest: str) -> None:
    ollama(tmp_path, "registry.example/someone/good/latest")
    put(tmp_path / "manifests" / "registry.example" / "library" / "bad" / "latest", manifest)
    assert [found.name for found in find_models([tmp_path])] == ["someone-good:latest"]


def test_a_manifest_cannot_name_a_file_outside_the_store(tmp_path: Path) -> None:
    put(tmp_path / "secret.txt")
    ollama(tmp_path / "store", "registry.example/library/bad/latest", digest="../../secret.txt")
    assert find_models([tmp_path / "store"]) == []


def test_the_hubs_cache_is_links_to_blobs(tmp_path: Path) -> None:
    repo = tmp_path / "hub" / "models--acme--tiny-GGUF"
    blob = put(repo / "blobs" / HASH)
    for revision in ("a" * 40, "b" * 40):
        link = repo / "snapshots" / revision / "tiny-q4_0.gguf"
        link.parent.mkdir(parents=True)
        link.symlink_to(blob)
    [found] = find_models([tmp_path / "hub"])
    assert (found.name, found.origin, found.claimed_sha256) == ("tiny-q4_0", "hub cache", HASH)
    assert found.path.name == "tiny-q4_0.gguf"


def test_lm_studio_and_plain_folders(tmp_path: Path) -> None:
    put(tmp_path / ".lmstudio" / "models" / "acme" / "tiny" / "tiny.gguf")
    put(tmp_path / ".lmstudio" / "models" / "acme" / "tiny" / "mmproj-tiny.gguf")
    put(tmp_path / "plain" / "Odd näme (1).GGUF")
    put(tmp_path / "plain" / "notes.txt")
    found = {one.name: one.origin for one in find_models([tmp_path])}
    assert found == {"tiny": "LM Studio", "Odd-n-me-1": "file"}


def test_of_a_split_model_the_first_piece_stands_for_all(tmp_path: Path) -> None:
    for number in (1, 2, 3):
        put(tmp_path / f"large-0000{number}-of-00003.gguf")
    [found] = find_models([tmp_path])
    assert (found.name, found.path.name) == ("large", "large-00001-of-00003.gguf")


def test_links_between_folders_end(tmp_path: Path) -> None:
    put(tmp_path / "a" / "model.gguf")
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "broken.gguf").symlink_to(tmp_path / "nothing")
    assert "model" in [found.name for found in find_models([tmp_path])]


def test_a_link_that_leads_to_itself_hides_no_model(tmp_path: Path) -> None:
    put(tmp_path / "model.gguf")
    (tmp_path / "loop.gguf").symlink_to(tmp_path / "loop.gguf")
    assert [found.name for found in find_models([tmp_path])] == ["model"]


def test_only_folders_that_exist_are_searched(tmp_path: Path) -> None:
    assert standard_folders({}, tmp_path) == [f for f in [Path("/usr/share/ollama/.ollama/models")] if f.is_dir()]
    moved = put(tmp_path / "elsewhere" / "models" / "x.gguf").parent
    put(tmp_path / ".lmstudio-home-pointer", f"{tmp_path / 'elsewhere'}\n")
    hub, ollamas = tmp_path / "hub", tmp_path / "ollama"
    for folder in (hub, ollamas):
        folder.mkdir()
    found = standard_folders({"HF_HUB_CACHE": str(hub), "OLLAMA_MODELS": str(ollamas)}, tmp_path)
    assert [folder for folder in found if tmp_path in folder.parents] == [moved, ollamas, hub]
