"""Energy used while a reply is made, where the platform counts it: RAPL for processor packages (Linux), NVML for
NVIDIA GPUs. Both counters cover the whole device, whoever uses it. What cannot be read is absent, never zero."""

from __future__ import annotations

import ctypes
from pathlib import Path

RAPL = Path("/sys/class/powercap")


class EnergyMeter:
    """Reads the counters when made; `joules` is what they have counted since."""

    def __init__(self, rapl: Path = RAPL) -> None:
        self._packages = sorted(p for p in rapl.glob("intel-rapl:*") if p.name.count(":") == 1)
        self._start = {**self._read_packages(), **_read_gpus()}

    def joules(self) -> dict[str, float]:
        """By device (`package-0`, `gpu-0`); {} where nothing is counted."""
        now = {**self._read_packages(), **_read_gpus()}
        used = {}
        for name, (joules, wraps_at) in now.items():
            if name in self._start:
                difference = joules - self._start[name][0]
                used[name] = round(difference if difference >= 0 else difference + wraps_at, 3)
        return used

    def _read_packages(self) -> dict[str, tuple[float, float]]:
        """(joules, the value at which the counter wraps) by package; only root may read them on many systems."""
        found = {}
        for package in self._packages:
            try:
                name = (package / "name").read_text().strip()
                micro = int((package / "energy_uj").read_text())
                found[name] = (micro / 1e6, int((package / "max_energy_range_uj").read_text()) / 1e6)
            except (OSError, ValueError):
                continue
        return found


def _read_gpus() -> dict[str, tuple[float, float]]:
    """NVML's total energy counters (Volta and later), through its C library: no package needed."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return {}
    if nvml.nvmlInit_v2() != 0:
        return {}
    count = ctypes.c_uint()
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    found = {}
    for i in range(count.value):
        handle, millijoules = ctypes.c_void_p(), ctypes.c_ulonglong()
        if (nvml.nvmlDeviceGetHandleByIndex_v2(i, ctypes.byref(handle)) == 0
                and nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(millijoules)) == 0):
            found[f"gpu-{i}"] = (millijoules.value / 1e3, 0.0)
    nvml.nvmlShutdown()
    return found
