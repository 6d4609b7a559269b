"""The options that several commands share, gathered into one value each.

An option that is not given stays None: the engine's own default holds, and is written down in one place only
(a test compares the defaults the help shows with the engine's). Imports no engine: `--help` must stay instant.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import click

from app.paths import is_device

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]

READABLE_FILE = click.Path(exists=True, dir_okay=False, readable=True, path_type=Path)


class _DataFile(click.Path):
    """A file or a pipe that is read to its end."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        if is_device(Path(value)):
            self.fail(f"{value} is a device, not a file", param, ctx)
        return path


DATA_FILE = _DataFile(exists=True, dir_okay=False, readable=True, path_type=Path)


class FiniteRange(click.FloatRange):
    """A FloatRange without `nan`, which is in every range, and `inf`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number to go by", param, ctx)
        return number


MODES = re.compile(r"auto|plain|ngram|draft|fixed:([1-9]|[1-5][0-9]|6[0-3])")


def check_mode(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """The mode as given. What the engine makes of it is its own business; a typing slip is caught here, at once."""
    if not MODES.fullmatch(value):
        raise click.BadParameter(f"{value!r} is not auto, plain, ngram, draft or fixed:K with K from 1 to 63")
    return value


def parse_biases(_ctx: click.Context, _param: click.Parameter, values: Sequence[str]) -> tuple[tuple[int, float], ...]:
    """`ID:BIAS` texts, as in `1734:-2.5`, as numbers."""
    try:
        return tuple((int(token), float(bias)) for token, bias in (value.split(":") for value in values))
    except ValueError:
        raise click.BadParameter("give a token id and a number, as in 1734:-2.5") from None


@dataclass(frozen=True, slots=True)
class LoadChoices:
    """What the user said about the models to load. None: not said."""

    target: str | None = None
    draft: str | None = None
    ctx: int | None = None
    threads: int | None = None
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    kv_type: str | None = None
    flash_attention: bool | None = None
    yes: bool = False
    offline: bool = False
    force: bool = False

    def fixed(self) -> dict[str, Any]:
        """The engine's LoadConfig fields that the user has fixed."""
        chosen = {
            "context": self.ctx, "kv_type": self.kv_type, "target_gpu_layers": self.gpu_layers,
            "draft_gpu_layers": self.draft_gpu_layers, "threads": self.threads, "flash_attention": self.flash_attention,
        }
        return {name: value for name, value in chosen.items() if value is not None}


class SectionedCommand(click.Command):
    """A command whose help has the shared options under headings of their own."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections: dict[str, list[tuple[str, str]]] = {"Options": []}
        for param in self.get_params(ctx):
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx)):
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


class _Model(click.Option):
    section = "Models and machine"


class _Sampling(click.Option):
    section = "Sampling"


def _option(kind: type[click.Option], *names: str, help: str, shown: object = None, **settings: Any) -> Decorator:
    """An option that shows the engine's default and, unless it is given, passes nothing on."""
    return click.option(*names, cls=kind, help=help if shown is None else f"{help}  [default: {shown}]", **settings)


_model = partial(_option, _Model)
_sampler = partial(_option, _Sampling)

_LOADING = (
    _model("--target", metavar="MODEL",
           help="Model that answers: a path, a name from `models pairs`, or hf:owner/repo/file.gguf.", shown="the starter pair"),
    _model("--draft", metavar="MODEL", help="Small model that writes ahead; `none` for none.", shown="the target's usual partner"),
    _model("--ctx", type=click.IntRange(min=1), metavar="TOKENS", help="Context size; left open, less where memory is short.", shown=4096),
    _model("--threads", type=click.IntRange(1, 512), metavar="N", help="CPU threads.", shown="the engine's choice"),
    _model("--gpu-layers", type=click.IntRange(min=0), metavar="N", help="Target layers on the GPU.", shown="all, if the build has one"),
    _model("--draft-gpu-layers", type=click.IntRange(min=0), metavar="N", help="Draft layers on the GPU.", shown="all, if the build has one"),
    _model("--kv-type", type=click.Choice(["f16", "q8_0", "q4_0"]), help="KV cache type.", shown="f16"),
    _model("--flash-attention/--no-flash-attention", default=None, help="Flash attention.", shown="the engine's choice"),
    _model("-y", "--yes", is_flag=True, help="Download missing models without asking."),
    _model("--offline", is_flag=True, help="Never go online."),
    _model("--force", is_flag=True, help="Load even what will not fit into memory."),
)

_TEMPERATURE = partial(_sampler, "-t", "--temperature", type=float, metavar="X", help="0 takes the likeliest token always.")

_SAMPLING = (
    _sampler("--top-k", type=int, metavar="N", help="Keep the k likeliest tokens; 0: off.", shown=40),
    _sampler("--top-p", type=float, metavar="X", help="Keep the likeliest tokens up to this total.", shown=0.95),
    _sampler("--min-p", type=float, metavar="X", help="Drop tokens below this share of the likeliest.", shown=0.05),
    _sampler("--typical-p", type=float, metavar="X", help="Locally typical sampling; 1: off.", shown=1.0),
    _sampler("--repeat-penalty", type=float, metavar="X", help="Divide the scores of recent tokens; 1: off.", shown=1.0),
    _sampler("--frequency-penalty", type=float, metavar="X", help="Penalty for each occurrence; 0: off.", shown=0.0),
    _sampler("--presence-penalty", type=float, metavar="X", help="Penalty for having occurred; 0: off.", shown=0.0),
    _sampler("--penalty-last-n", type=int, metavar="N", help="Tokens the penalties look back on; -1: all.", shown=64),
    _sampler("--dry-multiplier", type=float, metavar="X", help="Strength of the DRY repetition penalty; 0: off.", shown=0.0),
    _sampler("--dry-base", type=float, metavar="X", help="DRY: growth with length.", shown=1.75),
    _sampler("--dry-allowed-length", type=int, metavar="N", help="DRY: free repetition length.", shown=2),
    _sampler("--dry-last-n", type=int, metavar="N", help="DRY: tokens looked back on; -1: all.", shown=-1),
    _sampler("--logit-bias", metavar="ID:BIAS", callback=parse_biases, multiple=True, help="Add BIAS to a token id's score; repeatable."),
)


def loading_options(command: Command) -> Command:
    """Adds the options about models and machine; `loading_from` reads them."""
    return _with(_LOADING, command)


def sampling_options(*, temperature: float = 0.8) -> Decorator:
    """Adds the sampling options; `sampling_from` reads them. The temperature is the default to show."""
    return partial(_with, (_TEMPERATURE(shown=temperature), *_SAMPLING))


def loading_from(params: dict[str, Any]) -> LoadChoices:
    """Takes what `loading_options` added out of a command's parameters."""
    return LoadChoices(**{field.name: params.pop(field.name) for field in fields(LoadChoices)})


def sampling_from(params: dict[str, Any]) -> dict[str, Any]:
    """What is left of the parameters and was given, named as in SamplingParams."""
    return {name: value for name, value in params.items() if value is not None and value != ()}


def overwrite_option(command: Command) -> Command:
    """For commands that write a result; goes with app.atomic.check_output."""
    return click.option("--overwrite", is_flag=True, help="Replace what is there already.")(command)


def _with(options: Sequence[Decorator], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command
