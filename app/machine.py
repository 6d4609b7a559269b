"""This machine as the memory plan sees it, and in one line of words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from app.units import gb
from models import Device, Hardware, probe


class Gpu(Protocol):
    """A device as llama.cpp reports it, whoever asked."""

    @property
    def name(self) -> str: ...
    @property
    def description(self) -> str: ...
    @property
    def free_bytes(self) -> int: ...
    @property
    def total_bytes(self) -> int: ...


def machine_with(models_dir: Path, gpus: Iterable[Gpu]) -> Hardware:
    """Memory, cores, disk, and the GPUs that llama.cpp can use."""
    return probe(models_dir, [Device(gpu.name, gpu.total_bytes, gpu.free_bytes, shares_memory(gpu)) for gpu in gpus])


def shares_memory(gpu: Gpu) -> bool:
    """Whether a GPU works in the machine's own memory. llama.cpp does not say; for the usual kinds the names do."""
    words = gpu.description.lower()
    if gpu.name.lower().startswith(("metal", "mtl")):
        return True
    return ("intel" in words and "arc" not in words) or re.search(r"radeon (\d+m )?graphics", words) is not None or "tegra" in words


def describe_machine(machine: Hardware) -> str:
    """`8 cores, 12.1 of 16.0 GB memory free, CUDA0 7.5 GB free, 80 GB of disk free`."""
    gpus = [f"{device.name} {gb(device.free_bytes)} of {gb(device.total_bytes)} GB free" for device in machine.devices]
    disk = f"{gb(machine.disk_free_bytes, 0)} GB of disk free"
    return ", ".join([*cores_and_memory(machine), *(gpus or ["no GPU that this build can use"]), disk])


def cores_and_memory(machine: Hardware) -> tuple[str, str]:
    """`8 cores` and `12.1 of 16.0 GB memory free`."""
    cores = f"{machine.physical_cores} core{'s' if machine.physical_cores != 1 else ''}"
    return cores, f"{gb(machine.available_bytes)} of {gb(machine.ram_bytes)} GB memory free"
