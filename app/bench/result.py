"""The result of a run as one JSON document: written as it grows, read by `report`, `diff` and `--resume`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from app.bench import at_once
from app.bench.at_once import Throughput
from app.bench.measurement import Measurement, from_json
from app.bench.plan import Configuration
from app.bench.require import Verdict
from app.bench.runner import Skipped
from app.bench.statistics import LEVEL, TAIL
from app.bench.summary import prompt_summaries, summaries
from app.errors import AppError

KIND = "paceline bench run"
FORMAT = 1
READING = (
    "ratio: tokens/s against the baseline's, paired by prompt, turn and repeat; median over prompts. low, high: "
    f"{LEVEL:.0%} bootstrap interval over prompts and repeats; noise_low, noise_high: over repeats of these prompts alone; "
    f"tail: the prompt at {TAIL:.0%}. Energy: all devices that count it, prompt included. Memory: peak of the process."
)


@dataclass(slots=True)
class Result:
    """Everything a run has to say."""

    manifest: dict[str, Any]
    configs: tuple[Configuration, ...]
    rows: list[Measurement] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    throughput: list[Throughput] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)
    engines: list[dict[str, Any]] = field(default_factory=list)
    """What is loaded by each process: files, seconds, device memory."""
    ended: str = ""
    """Why it ended: see runner.Progress; empty while it runs, or when it was killed."""

    def as_json(self) -> dict[str, Any]:
        return {
            "kind": KIND,
            "format": FORMAT,
            "manifest": self.manifest,
            "ended": self.ended or None,
            "reading": READING,
            "configurations": [
                asdict(config) | {"name": config.name, "baseline": config.baseline} for config in self.configs
            ],
            "by_category": summaries(self.rows, self.configs),
            "by_prompt": prompt_summaries(self.rows, self.configs),
            "at_once": at_once.as_json(self.throughput),
            "requirements": [asdict(verdict) for verdict in self.verdicts],
            "engines": self.engines,
            "skipped": [asdict(skip) for skip in self.skipped],
            "rows": [asdict(row) for row in self.rows],
        }


def read_result(path: Path) -> Result:
    """What was written. Raises AppError when the file is not a result of this program."""
    document = read_document(path, KIND, FORMAT)
    try:
        return Result(
            manifest=document["manifest"],
            configs=tuple(_configuration(entry) for entry in document["configurations"]),
            rows=[from_json(row) for row in document["rows"]],
            skipped=[Skipped(**skip) for skip in document["skipped"]],
            throughput=[Throughput(**row) for row in (document["at_once"] or {"rows": []})["rows"]],
            verdicts=[Verdict(**verdict) for verdict in document["requirements"]],
            engines=document["engines"],
            ended=document["ended"] or "",
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise AppError(f"{path}: the result is damaged ({error})") from None


def read_document(path: Path, kind: str, form: int) -> dict[str, Any]:
    """The JSON of a file that a command of `bench` wrote. Raises AppError when it is something else."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeDecodeError):
        raise AppError(f"{path} is not JSON") from None
    found = document.get("kind") if isinstance(document, dict) else None
    if found != kind:
        raise AppError(f"{path} is not a result of `{kind}`" + (f" but of `{found}`" if found else ""))
    if document.get("format") != form:
        raise AppError(f"{path} was written by another version of Paceline; measure again")
    return dict(document)


def categories_of(rows: Sequence[Measurement]) -> list[str]:
    """In order of appearance."""
    return list(dict.fromkeys(row.category for row in rows))


def _configuration(entry: Mapping[str, Any]) -> Configuration:
    return Configuration(entry["mode"], entry["target"], entry["draft"], entry["max_tokens"], entry["batch"], entry["varied"])
