"""What is wrong, and how to mend it. Pure: facts in, findings out.

A problem makes `doctor` exit with 1: something does not work, or is much slower than this machine allows. A note is
worth knowing and costs nothing now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from app.doctor.cpu import build_features, unused_features
from app.doctor.facts import Facts
from app.doctor.gpu import BACKENDS, PresentGpu, missing_toolkit, reinstall_command
from app.units import gb

LOW_DISK_BYTES = 2_000_000_000
"""Less than this and the starter pair would not come."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to know, and what to do about it."""

    level: Literal["problem", "note"]
    text: str
    fix: str


def examine(facts: Facts) -> list[Finding]:
    """Everything found, problems first."""
    found = [*_engine(facts), *_gpu(facts), *_cpu(facts), *_folders(facts), *_models(facts), *_memory(facts), *_hub(facts), *_learned(facts)]
    return sorted(found, key=lambda finding: finding.level != "problem")


def healthy(findings: Iterable[Finding]) -> bool:
    return all(finding.level != "problem" for finding in findings)


def _engine(facts: Facts) -> Iterator[Finding]:
    if facts.build.fault:
        yield Finding(
            "problem", f"llama.cpp cannot be used: {facts.build.fault}", reinstall_command(None, facts.build.version)
        )


def _gpu(facts: Facts) -> Iterator[Finding]:
    if facts.build.fault or facts.build.gpus or not facts.present_gpus:
        return
    gpu = facts.present_gpus[0]
    backend, driver = BACKENDS[gpu.vendor], f", driver {gpu.driver}" if gpu.driver else ""
    if facts.build.offloads:
        yield Finding(
            "problem", f"{gpu.name}{driver} is here and llama.cpp was built for GPUs, but it finds none it can use",
            f"update the GPU's driver, check that you may use the device, or rebuild: {_rebuild(gpu, facts)}",
        )
        return
    kind: Literal["problem", "note"] = "note" if gpu.vendor == "intel" else "problem"  # seldom faster than its CPU
    yield Finding(
        kind, f"{gpu.name}{driver} is here, but this llama.cpp was built without {backend} and runs on the CPU alone",
        _rebuild(gpu, facts),
    )


def _rebuild(gpu: PresentGpu, facts: Facts) -> str:
    backend = BACKENDS[gpu.vendor]
    needs = missing_toolkit(backend)
    first = f"install {needs} first, then: " if needs else ""
    return first + reinstall_command(backend, facts.build.version)


def _cpu(facts: Facts) -> Iterator[Finding]:
    if facts.build.fault:
        return
    if unused := unused_features(facts.cpu, build_features(facts.build.system_info)):
        yield Finding(
            "problem", f"this CPU has {' and '.join(unused)}, and llama.cpp was built not to use it: it runs far below its speed",
            reinstall_command(None, facts.build.version),
        )


def _folders(facts: Facts) -> Iterator[Finding]:
    variables = {"models": "PACELINE_MODELS or PACELINE_HOME"}
    for folder in facts.folders:
        if not folder.writable and folder.purpose != "config":
            variable = variables.get(folder.purpose, "PACELINE_HOME")
            yield Finding(
                "problem" if folder.purpose == "models" else "note", f"cannot write to {folder.path} ({folder.purpose})",
                f"give yourself the right to write there, or set {variable} to another folder",
            )
    if facts.machine.disk_free_bytes < LOW_DISK_BYTES:
        level: Literal["problem", "note"] = "note" if facts.pairs_here else "problem"
        yield Finding(
            level, f"{gb(facts.machine.disk_free_bytes)} GB are free on the disk where models go",
            "free some, or set PACELINE_MODELS to a folder on another disk",
        )


def _models(facts: Facts) -> Iterator[Finding]:
    if facts.catalogue_fault:
        yield Finding("problem", f"your own catalogue cannot be read: {facts.catalogue_fault}", "correct that line, or remove the file")
    if not any(model.usable for model in facts.models):
        yield Finding("problem", "no verified model is on this disk", "paceline models pull starter")
    for model in facts.models:
        if model.state == "partial":
            yield Finding("note", f"{model.name} has arrived only in part", "`paceline models pull` with its name goes on from there")
        elif model.state == "unverified":
            yield Finding(
                "note", f"{model.name} is not verified: somebody copied it there, or it has changed since",
                "`paceline models pull` with its name checks it; --target with its path uses it as it is",
            )
        elif model.state == "changed":
            yield Finding(
                "note", f"{model.name} is gone or has changed since it was imported",
                f"`paceline models import` with its path takes it in again, `paceline models remove {model.name}` forgets it",
            )


def _memory(facts: Facts) -> Iterator[Finding]:
    fit = facts.default_fit
    if fit is None:
        yield Finding("problem", "the model that `ask` takes by itself cannot be read", "remove it and pull it again")
    elif fit.verdict == "no":
        yield Finding(
            "problem", f"{fit.name}, which `ask` takes by itself, {fit.reason}",
            "close other programs, or take a smaller pair: paceline models recommend",
        )
    elif fit.plan and fit.plan.given_up:
        yield Finding("note", f"memory is short for {fit.name}: {', '.join(fit.plan.given_up)}", "close other programs")


def _hub(facts: Facts) -> Iterator[Finding]:
    if facts.hub.state in ("unreachable", "refusing"):
        level: Literal["problem", "note"] = "note" if any(model.usable for model in facts.models) else "problem"
        yield Finding(
            level, f"models cannot be fetched from the hub: {facts.hub.detail}",
            "check the network and its proxy, or HF_ENDPOINT and HF_TOKEN; models that are here work without it",
        )


def _learned(facts: Facts) -> Iterator[Finding]:
    for name in facts.bad_profiles:
        yield Finding("note", f"what was learned in {name} cannot be read", "nothing to do: it is measured anew")
