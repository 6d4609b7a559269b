"""`paceline models compare`: two targets, or two quantisations of one, side by side on this machine."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from app.interrupt import Interrupt
    from app.local_pair import LocalPair
    from app.paths import Paths
    from engine.measure import Measured

CONTEXT = 2048

PROMPTS = (
    "Write a Python function that returns the n-th Fibonacci number, with a docstring.",
    "Explain in two sentences why the sky is blue.",
)
TEXTS = (
    "The harbour lay quiet under the morning fog. Two fishermen were mending a net on the quay, and neither looked up "
    "when the ferry came in, because it came in every day at the same hour and nobody they knew was ever on it. A dog "
    "that belonged to one of them slept between the coils of rope. By noon the fog would be gone, the tourists would "
    "come down from the station with their cameras, and the price of a plate of mussels would go up by a third.",
    "def merge(left, right):\n    \"\"\"Merge two sorted lists into one sorted list.\"\"\"\n    result = []\n    i = j = 0\n"
    "    while i < len(left) and j < len(right):\n        if left[i] <= right[j]:\n            result.append(left[i])\n"
    "            i += 1\n        else:\n            result.append(right[j])\n            j += 1\n"
    "    result.extend(left[i:])\n    result.extend(right[j:])\n    return result\n",
    "Water boils at a lower temperature on a mountain than at sea level, because the air pressure is lower there. At "
    "three thousand metres it boils at about ninety degrees Celsius, so pasta takes longer to cook and tea tastes weaker.",
)


@click.command()
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--draft", metavar="MODEL", help="Draft for both; `none` for none.  [default: A's usual partner]")
@click.option("--threads", type=click.IntRange(1, 512), metavar="N", help="CPU threads.  [default: the engine's choice]")
@click.option("--force", is_flag=True, help="Load them even if the plan says that they do not fit into memory.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def compare(first: str, second: str, draft: str | None, threads: int | None, force: bool, as_json: bool) -> None:
    """Compare two models on this machine: memory, speed, acceptance of the draft, and how well they predict text.

    A and B are what --target takes. Each is loaded alone, one after the other; both have to fit before either is. Speeds
    mean something only while nothing else is busy.
    """
    from app.errors import Interrupted
    from app.interrupt import Interrupt
    from app.options import LoadChoices
    from app.paths import Paths
    from app.terminal import print_table, say, write_out
    from app.wiring import local_pair
    from engine import LoadCancelled

    paths = Paths.find()
    choices = LoadChoices(first, draft, ctx=CONTEXT, threads=threads, offline=True, force=force)
    ours = local_pair(choices, paths, ["auto"], tuned=False)
    partner = draft or (str(ours.draft.path) if ours.draft else "none")
    theirs = local_pair(replace(choices, target=second, draft=partner), paths, ["auto"], tuned=False)
    if ours.settings != theirs.settings:
        say(f"{first} and {second} run with different settings, as memory allows: their figures compare only roughly")
    results = []
    with Interrupt() as interrupt:
        for name, pair in ((first, ours), (second, theirs)):
            try:
                results.append(_measure(name, pair, threads, paths, interrupt))
            except LoadCancelled:
                raise Interrupted from None
    for result in results:
        for notice in result.notices:
            say(notice)
    pairs = (ours, theirs)
    if as_json:
        write_out(json.dumps([_as_json(*one) for one in zip((first, second), pairs, results, strict=True)]) + "\n")
    else:
        print_table(_table((first, second), pairs, results))


def _measure(name: str, pair: LocalPair, threads: int | None, paths: Paths, interrupt: Interrupt) -> Measured:
    from app.paths import writable
    from app.terminal import FractionBar
    from engine import LoadConfig
    from engine.measure import measure

    config = LoadConfig(
        target=pair.target.path, draft=pair.draft.path if pair.draft else None, threads=threads,
        **{"context": CONTEXT, **pair.settings},
        profile_dir=paths.profiles if writable(paths.profiles) else None,  # a known pair need not be calibrated again
        log_file=paths.engine_log if writable(paths.logs) else None,
    )
    with FractionBar() as bar:
        return measure(
            config, PROMPTS, TEXTS, on_progress=lambda fraction: bar.show(f"measuring {name}", fraction),
            cancelled=lambda: interrupt.seen,
        )


def _as_json(name: str, pair: LocalPair, result: Measured) -> dict[str, Any]:
    return {"name": name, **pair.as_json(), "file_bytes": pair.target.path.stat().st_size, **asdict(result)}


def _table(names: tuple[str, str], pairs: tuple[LocalPair, LocalPair], results: list[Measured]) -> Any:
    from app.tables import table
    from app.units import byte_size
    from engine.measure import BLOCK, DRAFTED

    def cells(kind: str, values: list[Any]) -> tuple[str, ...]:
        return (kind, *(value if isinstance(value, str) else "-" for value in values))

    drafts = [pair.draft.path.stem if pair.draft else None for pair in pairs]
    rows = [
        cells("draft", drafts),
        cells("file", [byte_size(pair.target.path.stat().st_size) for pair in pairs]),
        cells("peak memory", [byte_size(r.peak_bytes) if r.peak_bytes else None for r in results]),
        cells("one token", [f"{r.row_seconds * 1000:.1f} ms" for r in results]),
        cells(f"a block of {BLOCK}", [f"{r.block_seconds * 1000:.1f} ms" for r in results]),
        cells("without draft", [f"{r.plain_rate:.1f} tokens/s" for r in results]),
        cells(f"with {DRAFTED} drafted", [f"{r.drafted_rate:.1f} tokens/s" if r.drafted_rate else None for r in results]),
        cells("drafted tokens kept", [f"{r.acceptance:.0%}" if r.acceptance is not None else None for r in results]),
        cells("log-likelihood a token", [f"{r.token_loglik:.4f}" for r in results]),
        cells("log-likelihood a byte", [f"{r.byte_loglik:.4f}" for r in results]),
    ]
    headings = names if names[0] != names[1] else (f"{names[0]} (first)", f"{names[1]} (second)")
    return table(("", *headings), rows)
