"""`paceline doctor`: one screen about this installation and machine; exit code 0 when it is healthy."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import click


@click.command()
@click.option("--offline", is_flag=True, help="Do not ask whether the hub can be reached.")
@click.option("--report", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Also write a file for a bug report; names, home paths and tokens are taken out.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(offline: bool, report: Path | None, as_json: bool) -> int:
    """Look over this installation: build, GPU, memory, models, hub; every problem comes with its fix.

    Loads no model and changes nothing. The exit code is 0 when nothing is wrong, 1 otherwise.
    """
    from app.atomic import check_output, write_atomically

    if report is not None:
        check_output(report, overwrite=True)
    from app.doctor.bundle import Personal, bundle
    from app.doctor.checks import examine, healthy
    from app.doctor.facts import collect
    from app.doctor.screen import lines, verdict
    from app.paths import Paths
    from app.tables import facts_table
    from app.terminal import print_table, say, write_out

    paths = Paths.find()
    facts = collect(paths, offline=offline)
    findings = examine(facts)
    if as_json:
        data = {"healthy": healthy(findings), **facts.as_json(), "findings": [asdict(finding) for finding in findings]}
        write_out(json.dumps(data) + "\n")
    else:
        print_table(facts_table(lines(facts)))
        write_out("\n" + verdict(findings, shutil.get_terminal_size().columns))
    if report is not None:
        write_atomically(report, bundle(facts, findings, paths, Personal.here()))
        say(f"wrote {report}; read it before you send it")
    return 0 if healthy(findings) else 1
