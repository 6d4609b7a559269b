"""`paceline models fit` and `models recommend`: what would run on this machine, before anything is fetched or loaded."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from app.options import LoadChoices

if TYPE_CHECKING:
    from app.fit import Fit
    from app.paths import Paths
    from app.selection import Selector
    from models import Hardware, LoadPlan

PLACES = {
    "gpu": "GPU", "split": "GPU+CPU", "cpu": "CPU", "no": "no", "unknown": "not known", "unusable": "cannot be used",
}


@click.command()
@click.argument("name", required=False)
@click.option("--target", metavar="MODEL", help="A target of your own: path, name or hf:owner/repo/file.gguf.")
@click.option("--draft", metavar="MODEL", help="What drafts for it; `none` for none.")
@click.option("--ctx", type=click.IntRange(min=1), metavar="TOKENS", help="Context you want; left open, 4096 or what fits.")
@click.option("--kv-type", type=click.Choice(["f16", "q8_0", "q4_0"]), help="KV cache type you want; left open, f16 or q8_0.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def fit(
    name: str | None, target: str | None, draft: str | None, ctx: int | None, kv_type: str | None, as_json: bool
) -> int:
    """Say whether the pairs of the catalogue, or one, fit into this machine's memory.

    Nothing is loaded or fetched. For one pair the exit code is 1 when it does not fit.
    """
    if name is not None and target is not None:
        raise click.UsageError("give a name or --target, not both", click.get_current_context())
    from app.fit import fit_pair
    from app.tables import facts_table
    from app.terminal import print_table, say, write_out

    selector, machine, paths = _here()
    choices = LoadChoices(target=target if name is None else name, draft=draft, ctx=ctx, kv_type=kv_type)
    if choices.target is not None or draft is not None:
        one = _named(selector, machine, choices, paths)
        if as_json:
            write_out(json.dumps(_json(machine, pair=one.as_json())) + "\n")
        else:
            print_table(facts_table(details(one, machine)))
        return 0 if one.fits else 1
    fits = [fit_pair(pair, selector.inventory, machine, choices, paths) for pair in selector.catalogue.pairs]
    if as_json:
        write_out(json.dumps(_json(machine, pairs=[one.as_json() for one in fits])) + "\n")
        return 0
    from app.machine import describe_machine

    say(describe_machine(machine))
    print_table(_table([one for one in fits if one.verdict != "unusable"], gpu=bool(machine.devices)))
    if unusable := [one.name for one in fits if one.verdict == "unusable"]:
        say(f"not shown, as they cannot be used at all: {', '.join(unusable)} (`paceline models pairs` says why)")
    return 0


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def recommend(as_json: bool) -> int:
    """Name the pair to take on this machine, and the command that gets it.

    The rule: the largest target that fits with its draft and nothing given up and can be read from memory 8 times a
    second; where there is none, the smallest pair that fits.
    """
    from app.errors import AppError
    from app.fit import fit_pair, is_whole, tokens_per_second
    from app.fit import recommend as best_of
    from app.machine import describe_machine
    from app.tables import facts_table
    from app.terminal import print_table, write_out

    selector, machine, paths = _here()
    fits = [fit_pair(pair, selector.inventory, machine, paths=paths) for pair in selector.catalogue.pairs]
    best = best_of(fits, machine)
    if best is None:
        raise AppError(f"no pair of the catalogue fits: {describe_machine(machine)}; free memory or disk, then ask again")
    speed = tokens_per_second(best, machine)
    rule = "the largest that is quick here" if is_whole(best, machine) and speed >= 8 else "the smallest that fits"
    why = f"{rule}: about {speed:.0f} tokens/s before drafting, by a rough estimate"
    get, use = f"paceline models pull {best.name}", f'paceline ask --target {best.name} "..."'
    if as_json:
        answer = {"pair": best.as_json(), "why": why, "tokens_per_second_estimate": round(speed, 1), "get": get, "use": use}
        write_out(json.dumps(_json(machine, **answer)) + "\n")
        return 0
    lines = [("why", why), ("get it", get if best.download_bytes else "it is here already"), ("use it", use)]
    print_table(facts_table([*details(best, machine), *lines]))
    return 0


def details(fit: Fit, machine: Hardware) -> list[tuple[str, str]]:
    """One pair, a fact a line."""
    from app.machine import describe_machine
    from app.tune.store import in_words
    from app.units import gb

    lines = [("pair", f"{fit.name}: {fit.title}" if fit.title else fit.name)]
    lines.append(("models", f"{fit.target}, drafted for by {fit.draft}" if fit.draft else f"{fit.target}, no draft"))
    if fit.fits:
        lines.append(("fits", f"yes, on the {PLACES[fit.verdict]}"))
    else:
        lines.append(("fits", f"{PLACES[fit.verdict]}: {fit.reason}" if fit.verdict != "no" else f"no: it {fit.reason}"))
    if (plan := fit.plan) and fit.fits:
        need = f"{gb(plan.host_needed_bytes)} GB must stay in memory, {gb(plan.host_peak_bytes)} GB at peak"
        lines.append(("memory", need + (" (estimate)" if plan.estimated else "")))
        if plan.device_bytes:
            lines.append(("GPU", f"{gb(plan.device_bytes)} GB"))
        lines.append(("settings", f"{plan.context:,} tokens of context, KV cache in {plan.kv_type}, batches of {plan.batch}"))
        if fit.tuned:
            lines.append(("tuned", in_words(fit.tuned)))
        lines.append(("given up", ", ".join(plan.given_up) or "nothing"))
    lines.append(("files", _files(fit)))
    lines.append(("machine", describe_machine(machine)))
    return lines


def _files(fit: Fit) -> str:
    from app.units import byte_size

    if not fit.download_bytes:
        return "here" if fit.verdict not in ("unknown", "unusable") else "size not known"
    size = f"{byte_size(fit.download_bytes)} to download"
    return size if fit.enough_disk else f"{size}, more than the disk has room for"


def _table(fits: list[Fit], *, gpu: bool) -> Any:
    from rich import box
    from rich.table import Table

    table = Table("pair", "fits", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = True
    for heading in [*(["GPU"] if gpu else []), "memory"]:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("context", justify="right", no_wrap=True)
    table.add_column("given up or lacking")
    for one in fits:
        table.add_row(*_row(one, gpu))
    return table


def _row(fit: Fit, gpu: bool) -> list[str]:
    from app.units import gb
    from models import DoesNotFit

    plan = fit.plan
    disk = "" if fit.enough_disk else "no room on the disk"
    if isinstance(no := fit.answer, DoesNotFit):
        place = "GPU memory" if no.where == "device" else "memory"
        remark = f"{gb(no.available_bytes)} GB of {place} free"
        figures = [gb(no.needed_bytes) if no.where == "device" else "", "" if no.where == "device" else gb(no.needed_bytes)]
        return [fit.name, PLACES[fit.verdict], *(figures if gpu else figures[1:]), f"{no.smallest.context:,}", remark]
    if plan is None:
        remark = "" if fit.verdict == "unknown" else fit.reason
        return [fit.name, PLACES[fit.verdict], *([""] if gpu else []), "", "", remark]
    figures = [gb(plan.device_bytes) if plan.device_bytes else "", gb(plan.host_needed_bytes)]
    remark = ", ".join(part for part in (*(_short(text, plan) for text in plan.given_up), disk) if part)
    return [fit.name, PLACES[fit.verdict], *(figures if gpu else figures[1:]), f"{plan.context:,}", remark]


def _short(given_up: str, plan: LoadPlan) -> str:
    """What was given up in two words, for a table; the context has a column of its own."""
    short = {
        "context": "less context", "KV": f"KV {plan.kv_type}", "prompt": f"batch {plan.batch}", "no": "no draft",
        "the": "draft on CPU",
    }
    return short.get(given_up.split()[0], f"{plan.target_gpu_layers} layers on GPU")


def _named(selector: Selector, machine: Hardware, choices: LoadChoices, paths: Paths | None) -> Fit:
    from app.fit import fit_pair, fit_selection

    pair = next((pair for pair in selector.catalogue.pairs if pair.name == choices.target), None)
    if pair is not None and choices.draft is None:
        return fit_pair(pair, selector.inventory, machine, choices, paths)
    selection = selector.select(choices.target, choices.draft)
    return fit_selection(choices.target or "your choice", selection, selector.inventory, machine, choices, paths)


def _here() -> tuple[Selector, Hardware, Paths | None]:
    """Paths are None where llama.cpp cannot be asked about this machine, as what was tuned for it has to be."""
    from app.engine_build import ask_engine_build
    from app.machine import machine_with
    from app.paths import Paths
    from app.selection import Selector
    from app.terminal import say

    paths = Paths.find()
    selector, build = Selector.at(paths), ask_engine_build()
    if build.fault:
        say(f"llama.cpp cannot be used: {build.fault}; see `paceline doctor`. What follows counts without a GPU")
    return selector, machine_with(paths.models, build.gpus), None if build.fault else paths


def _json(machine: Hardware, **answer: Any) -> dict[str, Any]:
    return {"machine": {**asdict(machine), "repacked_types": sorted(machine.repacked_types)}, **answer}
