"""`paceline models quantize`: a smaller copy of a model, made here."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from app.interrupt import Interrupt
    from app.quantised import Job

TARGET_TYPE, DRAFT_TYPE = "Q4_K_M", "Q4_0"
"""A draft's mistakes cost speed and never change a reply, so the fastest format is its default."""


@click.command()
@click.argument("source", metavar="SRC")
@click.option("--type", "type_name", metavar="TYPE", help=f"Q4_K_M, Q4_0, Q8_0, ...  [default: {TARGET_TYPE}; {DRAFT_TYPE} for a draft]")
@click.option("--for", "role", type=click.Choice(["target", "draft"]), default="target", show_default=True,
              help="Which file of a pair SRC is meant, and what the result is for.")
@click.option("--threads", type=click.IntRange(1, 512), metavar="N", help="CPU threads.  [default: all]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def quantize(source: str, type_name: str | None, role: str, threads: int | None, as_json: bool) -> None:
    """Write SRC in another number format, with llama.cpp's quantiser.

    SRC is a path, a pair or a model on this disk. The result joins the models directory under a name that --target and
    --draft take. Ctrl-C leaves nothing behind.
    """
    from app.interrupt import Interrupt
    from app.paths import Paths
    from app.quantised import enter, job_for, place_for
    from app.selection import Selector
    from app.terminal import say, write_out
    from app.units import byte_size
    from engine.quantize import UNFINISHED

    paths = Paths.find()
    selector = Selector.at(paths)
    wanted = (type_name or (DRAFT_TYPE if role == "draft" else TARGET_TYPE)).upper()
    job = job_for(source, wanted, selector, for_draft=role == "draft")
    if job.warning:
        say(job.warning)
    started = time.perf_counter()
    with Interrupt() as interrupt, place_for(job, UNFINISHED):
        sha256 = _make(job, wanted, threads or 0, paths.engine_log, interrupt)
        name = enter(job, sha256, selector.inventory)
    size, seconds = job.destination.stat().st_size, time.perf_counter() - started
    if as_json:
        write_out(json.dumps({
            "name": name, "path": str(job.destination), "type": wanted, "bytes": size, "sha256": sha256,
            "source": str(job.source), "source_type": job.source_format, "source_bytes": job.source.stat().st_size,
            "seconds": round(seconds, 1),
        }) + "\n")
        return
    say(f"{name}: {byte_size(size)}, {wanted}, made in {seconds:.0f} s; use it with --{role} {name}")
    write_out(f"{job.destination}\n")


def _make(job: Job, type_name: str, threads: int, log: Path, interrupt: Interrupt) -> str:
    """Do the work behind a progress bar; the result's SHA-256. Raises Interrupted after Ctrl-C."""
    from app.errors import Interrupted
    from app.paths import writable
    from app.quantised import check_room, checked_hash
    from app.terminal import FractionBar, say
    from engine.errors import WorkCancelled
    from engine.quantize import quantize

    hashes: list[str] = []
    with FractionBar() as bar:

        def check(part: Path) -> None:
            hashes.append(checked_hash(part, lambda f: bar.show("checking", f), lambda: interrupt.seen))

        try:
            quantize(
                job.source, job.destination, type_name, threads=threads,
                log_file=log if writable(log.parent) else None, on_size=lambda size: check_room(job, size),
                on_progress=lambda fraction: bar.show(f"quantising to {type_name}", fraction),
                cancelled=lambda: interrupt.seen, check=check,
            )
        except (WorkCancelled, Interrupted):
            bar.hide()
            say("stopped; nothing was left behind")
            raise Interrupted from None
    return hashes[0]
