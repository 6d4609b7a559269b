"""GPUs that are in this machine, whether or not llama.cpp was built to use them, and the command that rebuilds it.

Asks nvidia-smi, the kernel's list of graphics cards and lspci, in that order; each may be missing. Never raises.
"""

from __future__ import annotations

import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Vendor = Literal["nvidia", "amd", "intel", "apple"]

BACKENDS: Mapping[Vendor, str] = {"nvidia": "CUDA", "amd": "VULKAN", "intel": "VULKAN", "apple": "METAL"}
COMPILERS: Mapping[str, tuple[str, str]] = {
    "CUDA": ("nvcc", "the CUDA toolkit"), "VULKAN": ("glslc", "the Vulkan SDK"), "METAL": ("xcrun", "Xcode's command line tools"),
}
"""What a build needs, and the program that shows it is there."""
_PCI_VENDORS: Mapping[str, Vendor] = {"0x10de": "nvidia", "0x1002": "amd", "0x8086": "intel"}
_DISPLAY = re.compile(r"(VGA compatible controller|3D controller|Display controller)[^:]*: (?P<name>.+)")


@dataclass(frozen=True, slots=True)
class PresentGpu:
    """A graphics card, seen without llama.cpp."""

    vendor: Vendor
    name: str
    driver: str = ""


def present_gpus() -> list[PresentGpu]:
    """The cards of this machine that llama.cpp has a backend for."""
    if sys.platform == "darwin":
        return [PresentGpu("apple", "Apple GPU")] if platform.machine() == "arm64" else []
    found = from_nvidia_smi(_output("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"))
    others = from_lspci(_output("lspci")) or from_sysfs(Path("/sys/class/drm"))
    seen = {gpu.vendor for gpu in found}
    return found + [gpu for gpu in others if gpu.vendor not in seen]


def from_nvidia_smi(text: str) -> list[PresentGpu]:
    """`name, driver` lines; what nvidia-smi prints when it has no driver to talk to has no comma."""
    rows = [[part.strip() for part in line.rsplit(",", 1)] for line in text.splitlines() if "," in line]
    return [PresentGpu("nvidia", name, driver) for name, driver in rows if re.fullmatch(r"[0-9.]+", driver)]


def from_lspci(text: str) -> list[PresentGpu]:
    """Graphics cards by their makers; what virtual machines pretend to have is left out."""
    found = []
    for match in _DISPLAY.finditer(text):
        name = re.sub(r"\s*\(rev [^)]*\)$", "", match["name"].strip())
        if vendor := _vendor_of(name):
            found.append(PresentGpu(vendor, name))
    return found


def from_sysfs(folder: Path) -> list[PresentGpu]:
    """Where lspci is not installed: the kernel's own list, which has no names."""
    vendors = dict.fromkeys(_read(path) for path in sorted(folder.glob("card*/device/vendor")))
    names = {"nvidia": "NVIDIA GPU", "amd": "AMD GPU", "intel": "Intel GPU"}
    return [PresentGpu(vendor, names[vendor]) for code in vendors if (vendor := _PCI_VENDORS.get(code))]


def reinstall_command(backend: str | None, version: str) -> str:
    """Rebuilds llama.cpp, for this Python on this platform, with a backend or (None) for this CPU."""
    pip = [
        sys.executable, "-m", "pip", "install", "--force-reinstall", "--no-deps", "--no-cache-dir",
        "--no-binary=llama-cpp-python", f"llama-cpp-python=={version}" if version else "llama-cpp-python",
    ]
    arguments = f"-DGGML_{backend}=on" if backend else "-DGGML_NATIVE=on"
    if sys.platform == "win32":
        return f'$env:CMAKE_ARGS="{arguments}"; & {subprocess.list2cmdline(pip)}'
    return f'CMAKE_ARGS="{arguments}" {shlex.join(pip)}'


def missing_toolkit(backend: str) -> str | None:
    """What has to be installed before that command works; None if it is here."""
    program, name = COMPILERS[backend]
    return None if shutil.which(program) else name


def _vendor_of(name: str) -> Vendor | None:
    words = set(re.findall(r"[a-z]+", name.lower()))
    makers: Sequence[tuple[Vendor, set[str]]] = (
        ("nvidia", {"nvidia"}), ("amd", {"amd", "ati", "radeon"}), ("intel", {"intel"}),
    )
    return next((vendor for vendor, marks in makers if marks & words), None)


def _output(*command: str) -> str:
    """What a program prints, or nothing where it is missing, fails or hangs."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=10, stdin=subprocess.DEVNULL, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
