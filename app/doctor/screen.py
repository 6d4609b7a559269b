"""The facts and findings as one screen of text."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator, Sequence

from app.doctor.checks import Finding, healthy
from app.doctor.cpu import build_features
from app.doctor.facts import Facts
from app.units import gb

Line = tuple[str, str]


def lines(facts: Facts) -> list[Line]:
    """Label and value, one fact a line."""
    return [*_software(facts), *_hardware(facts), *_models(facts), *_places(facts)]


def verdict(findings: Sequence[Finding], width: int = 10_000) -> str:
    """Every finding with its fix, or that nothing is wrong. A fix stands on a line of its own and is never broken, so
    that a command can be copied."""
    blocks = [
        textwrap.fill(f"{finding.level}: {finding.text}", width, subsequent_indent="  ", break_long_words=False)
        + f"\n  fix: {finding.fix}\n"
        for finding in findings
    ]
    if healthy(findings):
        blocks.append("healthy: everything that is needed works\n")
    return "".join(blocks)


def as_text(found: Sequence[Line]) -> str:
    return "".join(f"{label:<10}{text}\n" for label, text in found)


def _software(facts: Facts) -> Iterator[Line]:
    yield "paceline", f"{facts.version}, Python {facts.python}, {facts.system}"
    build = facts.build
    if build.fault:
        yield "llama.cpp", f"cannot be used: {build.fault}"
    else:
        support = "with GPU support" if build.offloads else "for the CPU alone"
        yield "llama.cpp", f"llama-cpp-python {build.version}, built {support}"


def _hardware(facts: Facts) -> Iterator[Line]:
    machine, build = facts.machine, facts.build
    gpus = [f"{gpu.name} {gpu.description}, {gb(gpu.free_bytes)} of {gb(gpu.total_bytes)} GB free" for gpu in build.gpus]
    unused = [f"{gpu.name} (not used)" for gpu in facts.present_gpus if not build.gpus]
    yield "GPU", "; ".join(gpus or unused) or "none"
    used = build_features(build.system_info)
    features = " ".join(sorted(used)) if used else "unknown"
    spare = sorted(facts.cpu - used) if used else []
    yield "CPU", f"{machine.physical_cores} cores; in use: {features}" + (f"; unused: {' '.join(spare)}" if spare else "")
    yield "memory", f"{gb(machine.available_bytes)} of {gb(machine.ram_bytes)} GB free"
    yield "disk", f"{gb(machine.disk_free_bytes, 0)} GB free where models go"


def _models(facts: Facts) -> Iterator[Line]:
    if not facts.models:
        yield "models", "none yet"
    else:
        states = Counter("verified" if model.state == "whole" else model.state for model in facts.models)
        counted = ", ".join(f"{count} {state}" for state, count in states.items())
        yield "models", f"{counted}; {gb(sum(model.bytes for model in facts.models))} GB"
    if facts.pairs_here:
        yield "pairs", ", ".join(facts.pairs_here)
    if not facts.profiles:
        yield "learned", "nothing yet: the first load measures this machine"
    for profile in facts.profiles[:3]:
        parts = [f"{profile.one_row_ms:.1f} ms a token", f"{profile.block_ms:.1f} for 8 at once"]
        if profile.draft_step_ms is not None:
            parts.append(f"{profile.draft_step_ms:.1f} to draft one")
        yield "learned", f"{profile.target}: {', '.join(parts)}" + ("" if profile.current else " (another build; measured anew)")
    if len(facts.profiles) > 3:
        yield "learned", f"and {len(facts.profiles) - 3} more"
    yield from (("tuned", line) for line in facts.tuned)
    hub = facts.hub
    yield "hub", hub.state + (f" ({hub.detail})" if hub.detail and hub.state in ("reachable", "not asked") else "")


def _places(facts: Facts) -> Iterator[Line]:
    yield "Python", facts.executable
    for folder in facts.folders:
        yield "folder", f"{folder.purpose} in {folder.path}" + ("" if folder.writable else " (not writable)")
