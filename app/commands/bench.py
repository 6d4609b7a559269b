"""`paceline bench`: measurements that a reader can trust and repeat."""

from __future__ import annotations

import click

from app.commands.bench_five import five
from app.commands.bench_report import diff, report
from app.commands.bench_run import run


@click.group()
def bench() -> None:
    """Measure how fast this machine decodes."""


for command in (run, five, report, diff):
    bench.add_command(command)
