"""Disks that are full or cannot be written: said before anything is fetched, or kept for the next try."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import models.download_job
from models import DiskFull, Inventory, NotWritable, download
from tests.models.conftest import REPO, content, model_file
from tests.models.hub_server import HubServer

BODY = content(3_500_000)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MB, where the tests may mount one."""
    mount = tmp_path / "small"
    mount.mkdir()
    done = (
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(mount)], capture_output=True, check=False
        )
        if shutil.which("mount")
        else None
    )
    if done is None or done.returncode != 0:
        pytest.skip("a tmpfs cannot be mounted here")
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_a_disk_too_small_is_refused_before_the_hub_is_asked(hub: HubServer, small_disk: Path) -> None:
    hub.files[f"{REPO}/tiny.gguf"] = BODY
    with pytest.raises(DiskFull, match="GB free"):
        download([model_file(BODY)], small_disk)
    assert hub.requests == []


def test_room_is_checked_again_when_the_hub_tells_the_size(
    hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files[f"{REPO}/tiny.gguf"] = BODY
    monkeypatch.setattr(models.download_job, "SPARE_BYTES", shutil.disk_usage(tmp_path).total * 2)
    with pytest.raises(DiskFull):
        download([model_file(BODY, known=False)], tmp_path)
    assert hub.bodies() == []


def test_a_disk_that_fills_up_keeps_what_arrived(
    hub: HubServer, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files[f"{REPO}/tiny.gguf"] = BODY
    file = model_file(BODY)
    for module in ("models.download", "models.download_job"):  # `models.download` itself is the function
        monkeypatch.setattr(sys.modules[module], "check_room", lambda *_: None)
    with pytest.raises(DiskFull, match="what arrived is kept") as caught:
        download([file], small_disk)
    assert "\n" not in str(caught.value)
    inventory = Inventory(small_disk)
    assert inventory.partial_bytes(file) > 1_000_000
    assert inventory.path_of(file) is None
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    asked = len(hub.bodies())
    assert download([file], small_disk)[0].read_bytes() == BODY
    assert hub.bodies()[asked].range is not None


def test_a_directory_that_cannot_be_made_is_one_line(hub: HubServer, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("not a directory")
    with pytest.raises(NotWritable, match="choose another models directory"):
        download([model_file(BODY)], blocker / "models")
    assert hub.requests == []
