"""`paceline bench five`: the five well-known prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from app.options import (
    SectionedCommand,
    loading_from,
    loading_options,
    overwrite_option,
    sampling_from,
    sampling_options,
)

GREEDY = 0.0


@click.command(cls=SectionedCommand)
@click.option("--other-target", metavar="MODEL", help="Another quantisation of the target to measure beside it, as --target.")
@click.option("--repeat", type=click.IntRange(min=1), default=3, show_default=True, metavar="N", help="Times each prompt is continued.")
@click.option("-n", "--new-tokens", type=click.IntRange(min=2), default=200, show_default=True, metavar="N", help="Tokens to write.")
@click.option("--json", "out", type=click.Path(dir_okay=False, path_type=Path), help="Write everything measured to this file.")
@overwrite_option
@loading_options
@sampling_options(temperature=GREEDY)
def five(other_target: str | None, repeat: int, new_tokens: int, out: Path | None, overwrite: bool, **params: Any) -> int:
    """Continue five well-known prompts: latency, speed, memory and likelihood, beside published figures.

    The target alone and with its draft, in turns, as raw text without a chat template.
    """
    from app.atomic import check_output

    if out is not None:
        check_output(out, overwrite=overwrite)
    loading = loading_from(params)
    from app.bench.five_session import run_five

    return run_five(loading, other_target, repeat, new_tokens, {"temperature": GREEDY, **sampling_from(params)}, out)
