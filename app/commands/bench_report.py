"""`paceline bench report` and `bench diff`: what results say, as a page and against each other."""

from __future__ import annotations

import json
from pathlib import Path

import click

from app.options import DATA_FILE, overwrite_option

FOLDER = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.argument("result", type=DATA_FILE, metavar="FILE.json")
@click.option("-o", "--out", type=click.Path(dir_okay=False, path_type=Path), help="The page.  [default: FILE.html]")
@click.option("--png", type=FOLDER, help="Also write every plot as a PNG into this folder.")
@click.option("--svg", type=FOLDER, help="Also write every plot as an SVG into this folder.")
@overwrite_option
def report(result: Path, out: Path | None, png: Path | None, svg: Path | None, overwrite: bool) -> None:
    """Make one self-contained HTML page, with plots, of a result of `bench run`."""
    from app.atomic import check_output, write_atomically
    from app.bench.report import page, plots
    from app.bench.result import read_result
    from app.errors import AppError
    from app.terminal import write_out

    found = read_result(result)
    out = out or result.with_suffix(".html")
    if out.exists() and out.samefile(result):
        raise AppError(f"{out} is the result itself; name the page with --out")
    figures = plots.all_of(found)
    pictures = {
        folder: [(folder / f"{figure.name}.{kind}", figure, kind) for figure in figures]
        for folder, kind in ((png, "png"), (svg, "svg")) if folder is not None
    }
    for folder in pictures:
        folder.mkdir(parents=True, exist_ok=True)
    for path in (out, *(path for there in pictures.values() for path, _, _ in there)):
        check_output(path, overwrite=overwrite)
    write_atomically(out, page.html(found, figures))
    write_out(f"{out}\n")
    for folder, there in pictures.items():
        for path, figure, kind in there:
            path.write_bytes(plots.rendered(figure, kind))
        write_out(f"{len(there)} plots in {folder}\n")


@click.command()
@click.argument("a", type=DATA_FILE, metavar="A.json")
@click.argument("b", type=DATA_FILE, metavar="B.json")
@click.option("--anyway", is_flag=True, help="Compare even different machines, prompts or settings.")
@click.option("--all", "everything", is_flag=True, help="Also show what did not change.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def diff(a: Path, b: Path, anyway: bool, everything: bool, as_json: bool) -> int:
    """Say what is faster or slower in B than in A beyond noise. Exit code 1 if something is slower."""
    from dataclasses import asdict

    from app.bench.diff import changes, objections, what_changed
    from app.bench.result import read_result
    from app.bench.tables import interval, plain_table, text
    from app.errors import AppError
    from app.terminal import print_table, say, write_out

    one, other = read_result(a), read_result(b)
    against = objections(one, other)
    if against and not anyway:
        raise AppError(f"these are not comparable: {'; '.join(against)} (--anyway compares them all the same)")
    found = changes(one, other)
    slower = any(change.verdict == "slower" for change in found)
    if as_json:
        document = {
            "a": str(a), "b": str(b), "not_comparable": against, "changed": what_changed(one, other),
            "changes": [asdict(change) for change in found],
        }
        write_out(json.dumps(document, indent=1) + "\n")
        return int(slower)
    for line in against:
        say(f"not the same: {line}")
    for line in what_changed(one, other):
        write_out(f"changed: {line}\n")
    shown = [change for change in found if everything or change.verdict in ("faster", "slower")]
    if shown:
        rows = [
            (change.category, change.config, change.measure, change.verdict, text(change.ratio.median, ".3f"),
             interval(change.ratio.low, change.ratio.high, ".3f"), str(change.ratio.prompts), str(change.ratio.pairs))
            for change in shown
        ]
        print_table(plain_table(("category", "configuration", "measure", "B is"), ("B / A", "interval", "prompts", "replies"), rows))
    if not any(change.verdict in ("faster", "slower") for change in found):
        write_out(f"nothing got faster or slower beyond noise, in {len(found)} comparisons\n")
    return int(slower)
