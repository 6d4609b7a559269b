"""The result of a run as one JSON document: written as it grows, read by `report`, `diff` and `--resume`."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from app.bench import at_once
from app.bench.at_once import Throughput
from app.bench.measurement import Measurement
from app.bench.plan import Configuration
from app.bench.prompts import is_one_line
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


class _Machine(BaseModel):
    cpu: str
    cores: int | None
    gpus: list[dict[str, Any]]


class _Prompts(BaseModel):
    count: int
    sha256: str


class _Model(BaseModel):
    path: str


class _Settings(BaseModel):
    options: dict[str, Any]


class _Manifest(BaseModel):
    """What readers of a manifest rely on; it holds more."""

    created: str
    machine: _Machine
    prompts: _Prompts
    models: dict[str, _Model]
    settings: _Settings


class _Engine(BaseModel):
    """As far as it is read again; it holds more."""

    configs: list[str]
    device_bytes: int | None = None


class _Throughputs(BaseModel):
    rows: list[Throughput]


class _Document(BaseModel):
    """A result file, as far as it is read again; the summaries in it are worked out anew."""

    manifest: _Manifest
    configurations: Annotated[list[dict[str, Any]], Field(min_length=1)]
    rows: list[Measurement]
    skipped: list[Skipped]
    at_once: _Throughputs | None
    requirements: list[Verdict]
    engines: list[_Engine]
    ended: str | None


def read_result(path: Path) -> Result:
    """What was written. Raises AppError when the file is not a result of this program, or was edited to make no sense."""
    document = read_document(path, KIND, FORMAT)
    try:
        read = _Document.model_validate(document)
        names = [field.name for field in fields(Configuration)]
        configs = _CONFIGURATIONS.validate_python([{name: entry.get(name) for name in names} for entry in read.configurations])
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise AppError(f"{path}: the result is damaged ({'.'.join(map(str, first['loc']))}: {first['msg'].lower()})") from None
    throughput = read.at_once.rows if read.at_once else []
    _check(path, configs, read.rows, throughput)
    return Result(
        document["manifest"], configs, read.rows, read.skipped, throughput, read.requirements,
        document["engines"], read.ended or "",
    )


_CONFIGURATIONS = TypeAdapter(tuple[Configuration, ...])


def _check(
    path: Path, configs: Sequence[Configuration], rows: Sequence[Measurement], throughput: Sequence[Throughput]
) -> None:
    """What the parts must have to do with each other."""
    names = {config.name for config in configs}
    if len(names) < len(configs) or not {config.baseline or config.name for config in configs} <= names:
        raise AppError(f"{path}: the result is damaged (configurations: one is there twice, or its baseline is missing)")
    if not all(map(is_one_line, names)):
        raise AppError(f"{path}: the result is damaged (configurations: a name has control characters)")
    if strange := next((row.mode for row in throughput if row.mode not in names), None):
        raise AppError(f"{path}: the result is damaged (at_once: there is no configuration {strange!r})")
    seen: set[tuple[str, object]] = set()
    for place, row in enumerate(rows):
        if not is_one_line(row.question_id) or not is_one_line(row.category):
            raise AppError(f"{path}: the result is damaged (rows.{place}: a name has control characters)")
        if row.config not in names:
            raise AppError(f"{path}: the result is damaged (rows.{place}: there is no configuration {row.config!r})")
        if not all(type(part.get(name)) is int for part in row.by_drafter.values() for name in ("drafted", "accepted")):
            raise AppError(f"{path}: the result is damaged (rows.{place}.by_drafter: counts are missing)")
        if row.tokens_per_second is not None and row.tokens_per_second <= 0:
            raise AppError(f"{path}: the result is damaged (rows.{place}: a speed must be above 0)")
        if (row.config, row.twin) in seen:
            raise AppError(f"{path}: the result is damaged (rows.{place}: this reply is there twice)")
        seen.add((row.config, row.twin))


def read_document(path: Path, kind: str, form: int) -> dict[str, Any]:
    """The JSON of a file that a command of `bench` wrote, all its numbers finite. Raises AppError for something else."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refused, parse_float=_finite, parse_int=_finite_int)
    except (ValueError, RecursionError):
        raise AppError(f"{path} is not JSON, or not all of it is there") from None
    found = document.get("kind") if isinstance(document, dict) else None
    if found != kind:
        raise AppError(f"{path} is not a result of `{kind}`" + (f" but of `{found}`" if found else ""))
    if document.get("format") != form:
        raise AppError(f"{path} was written by another version of Paceline; measure again")
    return dict(document)


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is no number of JSON's")


def _finite(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refused(text)


def _finite_int(text: str) -> int:
    _finite(text)
    return int(text)
