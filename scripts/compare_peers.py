"""Paceline against its peers on this machine: llama.cpp's server (plain, with a draft model at its defaults and at its best
of a small grid, its n-gram modes) and llama-cpp-python's own prompt lookup, on the same models, prompts, threads and context.

    python scripts/compare_peers.py --llama-cpp BIN_DIR TARGET.gguf DRAFT.gguf --json peers.json

BIN_DIR holds llama-server; it can be built from the sources in llama-cpp-python's source distribution (vendor/llama.cpp), so
that all run the same kernels. Everybody continues the same text, rendered by the model's chat template as llama-server does,
and decodes with caches emptied; speeds are those of the tokens after the first, by each one's own clock, and are compared
reply by reply. Each keeps its own defaults in all that is not named here. Measure on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from app.bench.manifest import file_facts, manifest
from app.bench.plan import in_turns
from app.bench.prompts import SUITES, BenchPrompt, load_prompts, load_suites
from app.bench.tables import interval, plain_table, text
from app.terminal import print_table
from scripts.peers import rounds
from scripts.peers.contenders import (
    GRID,
    OURS,
    THEIR_PLAIN,
    Contender,
    PeerFailed,
    Runner,
    Setting,
    chosen,
    contenders,
    draft_simple,
)
from scripts.peers.llama_server import LlamaServer, version
from scripts.peers.lookup import Lookup, LookupProcess
from scripts.peers.ours import Ours
from scripts.peers.rounds import Question, Row

TUNING_TOKENS = 64


class Starter:
    """Starts contenders; the prompt lookups share a process."""

    def __init__(self, binary: Path, setting: Setting) -> None:
        self._binary, self._setting = binary, setting
        self._lookup: LookupProcess | None = None
        self.pids: list[int] = []
        self.commands: dict[str, list[str]] = {}

    def __call__(self, contender: Contender) -> Runner:
        """Raises PeerFailed."""
        if contender.kind == "paceline":
            return self._noted(Ours(contender, self._setting))
        if contender.kind == "llama-server":
            server = LlamaServer(self._binary, contender, self._setting)
            self.commands[contender.name] = server.command
            return self._noted(server)
        if self._lookup is None or not self._lookup.alive:
            self._lookup = self._noted(LookupProcess(self._setting))
        return Lookup(self._lookup, int(contender.options[0]))

    def _noted(self, runner):  # type: ignore[no-untyped-def]
        self.pids.append(runner.pid)
        return runner


def main() -> int:
    args = _arguments()
    questions, temperatures = _questions(args), [float(value) for value in args.temperatures.split(",")]
    logs = args.logs
    logs.mkdir(parents=True, exist_ok=True)
    setting = Setting(args.target, args.draft, args.ctx, args.threads, logs)
    binary = args.llama_cpp / "llama-server"
    start = Starter(binary, setting)
    rows: list[Row] = []
    tuning: list[Row] = []
    try:
        made_with = _made_with(args, questions, version(binary))
        rendered = _rendered(questions, start)
        _say_idle(start)
        best = None if args.no_grid else _tuned(rendered, setting, start, tuning)
        everyone = chosen(contenders(best), args.only)
        deadline = time.monotonic() + 60 * args.minutes if args.minutes else None
        total = len(rendered) * len(temperatures) * args.repeat * len(everyone)
        for row in rounds.run(
            everyone, rendered, temperatures, args.repeat, args.max_tokens, setting, start, _say,
            lambda: deadline is not None and time.monotonic() > deadline,
        ):
            rows.append(row)
            if len(rows) % 50 == 0:
                _say(f"{len(rows)} of about {total} replies")
                _save(args, made_with, start, tuning, rows)
    except PeerFailed as error:
        _say(str(error))
        return 1
    except KeyboardInterrupt:
        _say("stopped; what was measured is kept")
    if rows:
        _save(args, made_with, start, tuning, rows)
        show(rows)
    return 0


def show(rows: list[Row]) -> None:
    """Two tables for each temperature."""
    names = list(dict.fromkeys(row.contender for row in rows))
    categories = list(dict.fromkeys(row.category for row in rows))
    for temperature in dict.fromkeys(row.temperature for row in rows):
        mine = [row for row in rows if row.temperature == temperature]
        by_category = {category: [row for row in mine if row.category == category] for category in categories} | {"all": mine}
        table = [
            (name, text(rounds.speed(mine, name), ".1f"),
             *(text(rounds.compare(group, name, THEIR_PLAIN).median, ".2f") for group in by_category.values()),
             text(rounds.kept(mine, name), ".0%"), *([text(rounds.same_text(mine, name), ".0%")] if temperature == 0 else []))
            for name in names
        ]
        sys.stdout.write(f"\ntemperature {temperature:g}: tokens/s, times {THEIR_PLAIN}\n")
        print_table(plain_table(("",), ("tokens/s", *by_category, "kept", *(["same text"] if temperature == 0 else [])), table))
        against = []
        for name in [name for name in names if name != OURS]:
            ratio = rounds.compare(mine, OURS, name)
            by = {category: rounds.compare(group, OURS, name).median for category, group in by_category.items()}
            known = {category: value for category, value in by.items() if value is not None and category != "all"}
            worst = min(known, key=lambda category: known[category], default="")
            against.append((
                name, text(ratio.median, ".3f"), interval(ratio.low, ratio.high), interval(ratio.noise_low, ratio.noise_high, ".3f"),
                f"{known[worst]:.2f} {worst}" if worst else "", text(ratio.worst, ".2f"),
            ))
        sys.stdout.write(f"temperature {temperature:g}: {OURS} over each\n")
        print_table(plain_table(("",), ("times as fast", "95 % of prompts", "noise", "worst category", "worst prompt"), against))


def _tuned(questions: list[Question], setting: Setting, start: Starter, rows: list[Row]) -> tuple[int, float]:
    """The length and least probability that draft-simple is fastest with, on the first prompt of each category."""
    first = list({question.category: question for question in reversed(questions)}.values())
    speeds: dict[tuple[int, float], float] = {}
    for point in GRID:
        both = [Contender(THEIR_PLAIN, "llama-server"), draft_simple(point)]
        found = list(rounds.run(both, first, [0.0], 1, TUNING_TOKENS, setting, start, _say))
        speeds[point] = rounds.compare(found, both[1].name, THEIR_PLAIN).median or 0.0
        _say(f"tuning: {both[1].name}: {speeds[point]:.2f} times plain")
        rows += found
    return max(speeds, key=lambda point: speeds[point])


def _rendered(questions: list[BenchPrompt], start: Starter) -> list[Question]:
    server = start(Contender(THEIR_PLAIN, "llama-server"))
    try:
        return [Question(q.question_id, q.category, server.rendered(q.turns[0])) for q in questions]  # type: ignore[attr-defined]
    finally:
        server.close()


def _say_idle(start: Starter) -> None:
    """Whether those that wait leave the cores alone: measured, not assumed."""
    up = [start(Contender(THEIR_PLAIN, "llama-server")), start(Contender("paceline plain", "paceline", ("plain",)))]
    try:
        for runner in up:
            runner.reply(rounds.WARM_UP)
        time.sleep(1)
        _say(f"CPU that idle processes use: {rounds.idle_share([runner.pid for runner in up]):.1%} of a core")  # type: ignore[attr-defined]
    finally:
        for runner in up:
            runner.close()


def _questions(args: argparse.Namespace) -> list[BenchPrompt]:
    if args.prompts:
        found = load_prompts(args.prompts, per_category=args.per_category)
    else:
        found = load_suites(args.suites.split(","), per_category=args.per_category)
    return [found[index] for index in in_turns([prompt.category for prompt in found])]


def _save(args: argparse.Namespace, made_with: dict[str, Any], start: Starter, tuning: list[Row], rows: list[Row]) -> None:
    if args.json is None:
        return
    document = {
        "kind": "compare_peers", "format": 1, "manifest": made_with, "commands": start.commands,
        "tuning": [row.as_json() for row in tuning], "rows": [row.as_json() for row in rows],
    }
    args.json.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _made_with(args: argparse.Namespace, questions: list[BenchPrompt], build: str) -> dict[str, Any]:
    settings = {name: str(value) if isinstance(value, Path) else value for name, value in vars(args).items()}
    models = {"target": file_facts(args.target, None), "draft": file_facts(args.draft, None)}
    made = manifest(models, questions, settings)
    return {**made, "command": sys.argv, "versions": {**made["versions"], "llama-server": build}}


def _say(line: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {line}\n")
    sys.stderr.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--llama-cpp", type=Path, required=True, metavar="BIN_DIR", help="where llama-server is")
    parser.add_argument("--suites", default=",".join(name for name in SUITES if name != "large_context"), help="of assets/suites")
    parser.add_argument("--prompts", type=Path, help="instead of suites: a file with question_id, category, turns (the first is asked)")
    parser.add_argument("--per-category", type=int, metavar="N")
    parser.add_argument("--temperatures", default="0,0.8")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("-n", "--max-tokens", type=int, default=128)
    parser.add_argument("--ctx", type=int, default=4096)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", action="append", default=[], metavar="WORD", help="contenders with this in their name (repeatable)")
    parser.add_argument("--no-grid", action="store_true", help="do not tune draft-simple first")
    parser.add_argument("--minutes", type=float, help="begin nothing new after that many")
    parser.add_argument("--logs", type=Path, default=Path("peers-logs"), help="where everybody's logs go")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    raise SystemExit(main())
