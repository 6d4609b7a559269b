"""`paceline doctor`: every fault it promises to find, on simulated machines; the real process and the printed screen."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.doctor import gpu as graphics
from app.doctor.bundle import Personal
from app.doctor.checks import Finding, examine, healthy
from app.doctor.cpu import build_features, cpu_features, unused_features
from app.doctor.facts import Facts, Folder, ModelHere
from app.doctor.gpu import PresentGpu, from_lspci, from_nvidia_smi, from_sysfs, reinstall_command
from app.doctor.hub import HubState, ask_hub
from app.doctor.profiles import learned
from app.doctor.screen import lines, verdict
from app.engine_build import EngineBuild, Gpu, ask_engine_build, read_answer
from app.fit import fit_pair
from engine.acceptance import AcceptanceModel
from engine.cost import CostModel
from engine.profile import Profile, profile_path
from models import Hardware, Inventory, load_catalogue
from tests.app.conftest import Paceline
from tests.models.hub_server import hub_server

GIB = 1 << 30
STARTER = load_catalogue().pair("starter")
INFO = "CPU : SSE3 = 1 | AVX = 1 | AVX2 = 1 | F16C = 1 | FMA = 1 | OPENMP = 1 | REPACK = 1 | "
BUILD = EngineBuild("0.3.36", INFO)
NVIDIA = PresentGpu("nvidia", "NVIDIA GeForce RTX 3060", "550.54")


def machine(gib: float = 16, disk: int = 100 * GIB) -> Hardware:
    return Hardware(int(gib * GIB), int(gib * GIB * 0.75), 4, 8, disk)


def model(name: str, state: str = "whole") -> ModelHere:
    return ModelHere(name, state, 1000)


def facts(**changes: Any) -> Facts:
    """A healthy machine, but for `changes`."""
    well = Facts(
        build=BUILD, present_gpus=(), machine=machine(), cpu=frozenset({"AVX", "AVX2", "FMA"}),
        folders=tuple(Folder(name, Path("/home/jane/x") / name, True) for name in ("models", "profiles", "logs", "config")),
        models=(model("a.gguf"),), pairs_here=("starter",),
        default_fit=fit_pair(STARTER, Inventory(Path("/nowhere")), changes.get("machine", machine())),
        catalogue_fault=None, profiles=(), bad_profiles=(), hub=HubState("reachable"),
    )
    return replace(well, **changes)


def problems(**changes: Any) -> list[Finding]:
    return [finding for finding in examine(facts(**changes)) if finding.level == "problem"]


def notes(**changes: Any) -> list[Finding]:
    found = examine(facts(**changes))
    assert healthy(found), found
    return found


def test_a_healthy_machine_has_nothing_to_mend() -> None:
    assert examine(facts()) == []
    assert "healthy" in verdict([])


@pytest.mark.parametrize(
    ("changes", "text", "fix"),
    [
        ({"build": EngineBuild(fault="it was built for another CPU (illegal instruction)")}, "another CPU", "--no-binary=llama-cpp-python"),
        ({"present_gpus": (NVIDIA,)}, "RTX 3060, driver 550.54 is here, but this llama.cpp was built without CUDA", "-DGGML_CUDA=on"),
        ({"present_gpus": (PresentGpu("apple", "Apple GPU"),)}, "without METAL", "-DGGML_METAL=on"),
        ({"present_gpus": (PresentGpu("amd", "Navi 31"),)}, "without VULKAN", "-DGGML_VULKAN=on"),
        ({"present_gpus": (NVIDIA,), "build": replace(BUILD, offloads=True)}, "finds none it can use", "update the GPU's driver"),
        ({"build": replace(BUILD, system_info="CPU : SSE3 = 1 | ")}, "AVX2 and FMA", "--force-reinstall"),
        ({"folders": (Folder("models", Path("/ro"), False),)}, "cannot write to /ro", "PACELINE_MODELS"),
        ({"models": (), "pairs_here": ()}, "no verified model", "paceline models pull starter"),
        ({"models": (model("a.gguf", "partial"),)}, "no verified model", "paceline models pull starter"),
        ({"catalogue_fault": "x.toml, line 3: files.bytes: wrong"}, "x.toml, line 3", "correct that line"),
        ({"machine": machine(1)}, "starter, which `ask` takes by itself, needs", "paceline models recommend"),
        ({"default_fit": None}, "cannot be read", "pull it again"),
        ({"hub": HubState("unreachable", "no answer"), "models": ()}, "from the hub: no answer", "HF_ENDPOINT"),
        ({"machine": machine(disk=GIB), "models": (), "pairs_here": ()}, "1.1 GB are free on the disk", "PACELINE_MODELS"),
    ],
)
def test_a_problem_is_found_with_its_fix(changes: dict[str, Any], text: str, fix: str) -> None:
    assert any(text in finding.text and fix in finding.fix for finding in problems(**changes))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"hub": HubState("unreachable", "no answer")}, "no answer"),
        ({"hub": HubState("refusing", "HTTP 403")}, "HTTP 403"),
        ({"models": (model("a.gguf"), model("b.gguf", "partial"))}, "b.gguf has arrived only in part"),
        ({"models": (model("a.gguf"), model("b.gguf", "unverified"))}, "b.gguf is not verified"),
        ({"models": (model("a", "imported"), model("b", "changed"))}, "b is gone or has changed since it was imported"),
        ({"present_gpus": (PresentGpu("intel", "UHD Graphics"),)}, "UHD Graphics"),
        ({"bad_profiles": ("x.json",)}, "x.json cannot be read"),
        ({"folders": (Folder("profiles", Path("/ro"), False),)}, "cannot write to /ro"),
        ({"machine": machine(disk=GIB)}, "1.1 GB are free on the disk"),
    ],
)
def test_what_costs_nothing_now_is_a_note_and_healthy(changes: dict[str, Any], text: str) -> None:
    assert any(text in finding.text and finding.fix for finding in notes(**changes))


def test_a_gpu_in_use_is_no_problem() -> None:
    used = replace(BUILD, offloads=True, gpus=(Gpu("CUDA0", NVIDIA.name, 8 * GIB, 12 * GIB),))
    assert examine(facts(present_gpus=(NVIDIA,), build=used)) == []
    assert any("8.6 of 12.9 GB free" in text for _, text in lines(facts(build=used)))


def test_problems_come_before_notes() -> None:
    found = examine(facts(bad_profiles=("x.json",), present_gpus=(NVIDIA,)))
    assert [finding.level for finding in found] == ["problem", "note"]


def test_the_command_to_rebuild_is_one_line_for_this_python_and_platform(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/my python/bin/python")
    monkeypatch.setattr(sys, "platform", "linux")
    assert reinstall_command("CUDA", "0.3.36") == (
        "CMAKE_ARGS=\"-DGGML_CUDA=on\" '/opt/my python/bin/python' -m pip install --force-reinstall --no-deps "
        "--no-cache-dir --no-binary=llama-cpp-python llama-cpp-python==0.3.36"
    )
    monkeypatch.setattr(sys, "platform", "win32")
    assert reinstall_command("VULKAN", "").startswith('$env:CMAKE_ARGS="-DGGML_VULKAN=on"; & "/opt/my python/bin/python" -m pip')


def test_the_toolkit_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphics.shutil, "which", lambda _: None)
    [finding] = problems(present_gpus=(NVIDIA,))
    assert finding.fix.startswith("install the CUDA toolkit first, then: CMAKE_ARGS") or sys.platform == "win32"
    monkeypatch.setattr(graphics.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert "first" not in problems(present_gpus=(NVIDIA,))[0].fix


# -- what is read from the system -----------------------------------------------------------------------------


def test_graphics_cards_are_read_from_what_tools_print(tmp_path: Path) -> None:
    assert from_nvidia_smi("NVIDIA H200, 570.133.20\nNVIDIA T4, 570.133.20\n") == [
        PresentGpu("nvidia", "NVIDIA H200", "570.133.20"), PresentGpu("nvidia", "NVIDIA T4", "570.133.20"),
    ]
    assert from_nvidia_smi("NVIDIA-SMI has failed, because it couldn't communicate with the driver\n") == []
    printed = (
        "00:02.0 VGA compatible controller: Intel Corporation UHD Graphics 620 (rev 07)\n"
        "01:00.0 3D controller: NVIDIA Corporation GP108M [GeForce MX150] (rev a1)\n"
        "02:00.0 Display controller: Advanced Micro Devices, Inc. [AMD/ATI] Navi 23 (rev c7)\n"
        "03:00.0 VGA compatible controller: Red Hat, Inc. QXL paravirtual graphic card\n"
        "04:00.0 Audio device: NVIDIA Corporation GP107GL\n"
    )
    assert [(gpu.vendor, gpu.name.split()[0]) for gpu in from_lspci(printed)] == [("intel", "Intel"), ("nvidia", "NVIDIA"), ("amd", "Advanced")]
    for card, vendor in (("card0", "0x1002"), ("card1", "0x1234")):
        (tmp_path / card / "device").mkdir(parents=True)
        (tmp_path / card / "device" / "vendor").write_text(vendor + "\n")
    assert from_sysfs(tmp_path) == [PresentGpu("amd", "AMD GPU")]
    assert from_sysfs(tmp_path / "none") == []


def test_cpu_features_against_the_build(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu sse3 avx avx2 fma avx512f\n\nprocessor\t: 1\nflags\t\t: fpu\n")
    assert cpu_features(cpuinfo) == {"AVX", "AVX2", "FMA", "AVX512"}
    assert cpu_features(tmp_path / "none") == frozenset()
    assert build_features("CPU : AVX = 1 | AVX2 = 0 | AVX512 = 1 | AVX512_VBMI = 1 | ") == {"AVX", "AVX512"}
    assert unused_features(frozenset({"AVX", "AVX2", "AVX512"}), frozenset({"AVX"})) == ["AVX2"]


def test_how_the_engines_process_ended_is_understood() -> None:
    assert read_answer(-signal.SIGILL, "", "").fault == "it was built for another CPU (illegal instruction)"
    assert read_answer(-signal.SIGABRT, "noise", "ggml_cuda_init: failed\n").fault == "it ends with exit code -6: ggml_cuda_init: failed"
    assert read_answer(0, "", "").fault == "it ends with exit code 0"
    gpu = {"name": "CUDA0", "description": "X", "free_bytes": 1, "total_bytes": 2}
    answer = read_answer(0, "a line of the driver's\n" + json.dumps({"version": "1", "system_info": "s", "offloads": True, "gpus": [gpu], "fault": None}), "")
    assert answer == EngineBuild("1", "s", True, (Gpu("CUDA0", "X", 1, 2),))


def test_the_real_build_answers_from_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    build = ask_engine_build()
    assert build.fault is None
    assert build.version.count(".") == 2
    assert " = 1 " in build.system_info


def test_a_library_that_does_not_load_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "llama_cpp").mkdir()
    (tmp_path / "llama_cpp" / "__init__.py").write_text("raise RuntimeError('libllama.so: wrong ELF class')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert ask_engine_build().fault == "it cannot be loaded (libllama.so: wrong ELF class)"
    (tmp_path / "llama_cpp" / "__init__.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGILL)")
    assert ask_engine_build().fault == "it was built for another CPU (illegal instruction)"


def test_profiles_are_read_as_the_engine_writes_them(tmp_path: Path) -> None:
    costs = CostModel()
    for rows, ms in ((1, 40), (16, 340)):
        costs.target.set(rows, 0, ms / 1000)
    costs.draft.set(1, 0, 0.015)
    key = {"target": "big.gguf:123", "draft": "small.gguf:45", "build": "0.3.36 CPU"}
    Profile(profile_path(tmp_path, key), key, costs, costs, AcceptanceModel()).save()
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "older.json").write_text('{"format": 0}')
    [profile], bad = learned(tmp_path, "0.3.36 CPU")
    assert (profile.target, profile.draft, profile.one_row_ms, profile.block_ms, profile.draft_step_ms) == ("big.gguf", "small.gguf", 40, 180, 15)
    assert profile.current
    assert sorted(bad) == ["broken.json", "older.json"]
    assert not learned(tmp_path, "0.3.37 CPU")[0][0].current
    assert learned(tmp_path / "none", "") == ([], [])


def test_the_hub_is_asked_only_when_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    file = STARTER.target.model_copy(update={"repo": "acme/tiny", "file": "t.gguf", "sha256": None, "bytes": None, "mirror": None, "revision": None})
    with hub_server() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.endpoint)
        server.files["acme/tiny/t.gguf"] = b"x" * 10
        assert ask_hub(file, offline=True).state == "not asked"
        assert server.requests == []
        assert ask_hub(file, offline=False).state == "reachable"
        assert ask_hub(file.model_copy(update={"file": "gone.gguf"}), offline=False).state == "refusing"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = taken.getsockname()[1]
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{nobody}")
    assert ask_hub(file, offline=False).state == "unreachable"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert ask_hub(file, offline=False) == HubState("not asked", "HF_HUB_OFFLINE is set")


# -- the bug report -------------------------------------------------------------------------------------------


JANE = Personal(("/home/jane", "C:\\Users\\jane"), ("jane", "Doe", "janes-laptop", "root"), ("s3cretvalue",))


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("/home/jane/models/x.gguf", "~/models/x.gguf"),
        ("/home/janet/models", "/home/[user]/models"),
        ("/Users/someone/Library", "/Users/[user]/Library"),
        ("C:\\Users\\jane\\AppData", "~\\AppData"),
        ('"C:\\\\Users\\\\jane\\\\AppData"', '"~\\\\AppData"'),
        ("/data/Jane/models on janes-laptop by Jane Doe", "/data/[name]/models on [name] by [name] [name]"),
        ("the janeway and root stay", "the janeway and root stay"),
        ("token hf_abcdefghijk1234 and s3cretvalue", "token [secret] and [secret]"),
        ("http://jane:pw@proxy:3128/", "http://[secret]@proxy:3128/"),
        ("Authorization: abc123", "[secret]"),
        ("authorization: Bearer abc123 sent", "[secret] sent"),
    ],
)
def test_names_home_paths_and_secrets_are_taken_out(text: str, clean: str) -> None:
    assert JANE.redact(text) == clean


def test_a_report_has_findings_and_logs_and_nothing_personal(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    user = tmp_path / "users" / "jdoe"
    monkeypatch.setenv("HOME", str(user))
    monkeypatch.setenv("USER", "jdoe")
    monkeypatch.setenv("HF_TOKEN", "hf_verysecrettoken")
    monkeypatch.setenv("PACELINE_HOME", str(user / ".paceline"))
    logs = user / ".paceline" / "logs"
    logs.mkdir(parents=True)
    (logs / "engine.log").write_text("begin " + "x" * 30_000 + f"\nloading {user}/m.gguf \x1b[31m\n")
    (logs / "crash.log").write_text(f'File "{user}/app.py"\nValueError: jdoe hf_verysecrettoken\n')
    out = tmp_path / "report.txt"
    assert main(["doctor", "--offline", "--report", str(out)]) == 1
    text = out.read_text()
    assert "no verified model is on this disk" in text
    assert "loading ~/m.gguf" in text
    assert "ValueError: [name] [secret]" in text
    assert not any(word in text for word in ("jdoe", "hf_very", "begin", "\x1b"))
    assert "read it before you send it" in capsys.readouterr().err
    assert out.stat().st_mode & 0o077 == 0


# -- as printed -----------------------------------------------------------------------------------------------


def test_an_empty_installation_says_how_to_begin_and_exits_with_1(paceline: Paceline) -> None:
    done = paceline("doctor", "--offline")
    assert done.returncode == 1
    assert "fix: paceline models pull starter" in done.stdout
    assert done.stderr == ""


def test_json_has_everything_and_the_same_exit_code(paceline: Paceline, home: Path) -> None:
    done = paceline("doctor", "--offline", "--json")
    answer = json.loads(done.stdout)
    assert (done.returncode, answer["healthy"]) == (1, False)
    assert answer["llama_cpp"]["version"]
    assert answer["folders"]["models"]["path"] == str(home / "models")
    assert answer["hub"]["state"] == "not asked"
    assert {"version", "python", "machine", "cpu_features", "models", "profiles", "findings"} <= set(answer)
    assert not home.exists(), "looking changes nothing"


def test_a_catalogue_with_a_mistake_does_not_stop_the_doctor(paceline: Paceline, home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "catalogue.toml").write_text("[[files]]\nname = 3\n")
    done = paceline("doctor", "--offline")
    assert "your own catalogue cannot be read" in done.stdout
    assert "line 2" in done.stdout


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_write_permission_is_found(paceline: Paceline, home: Path) -> None:
    home.mkdir()
    home.chmod(0o500)
    assert "cannot write to" in paceline("doctor", "--offline").stdout


def test_a_report_that_cannot_be_written_is_known_before_the_work(tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--report", str(tmp_path / "none" / "x.txt")]) == 1
    assert "cannot write to" in capsys.readouterr().err


def test_the_screen_fits_24_lines_when_all_is_well() -> None:
    assert len(lines(facts())) + len(verdict([]).splitlines()) <= 22
    assert all(len(label) <= 10 for label, _ in lines(facts()))
