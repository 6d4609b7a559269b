"""The command line's frame: sub-commands imported when they are used, one line for every failure, exit codes.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted, 141 the reader of standard output left.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from app import __version__
from app.errors import AppError, Interrupted, OutputClosed
from app.faults import one_line, report_fault
from app.terminal import end_line, prepare_streams, say

FAILED, WRONG_USAGE, INTERRUPTED, READER_LEFT = 1, 2, 130, 141

COMMANDS = {
    "chat": "app.commands.chat:chat",
    "ask": "app.commands.ask:ask",
    "chats": "app.commands.chats:chats",
    "models": "app.commands.models:models",
    "bench": "app.commands.bench:bench",
    "verify": "app.commands.verify:verify",
    "tune": "app.commands.tune:tune",
    "doctor": "app.commands.doctor:doctor",
}
"""Name to `module:attribute`, in the order of the help."""


class LazyGroup(click.Group):
    """A group whose commands are imported when they are looked up, so that `--version` stays instant."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            raise click.UsageError(f"there is no {name} before a command; the chat takes its options as in: paceline chat {name} ...", ctx) from None

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="paceline", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> int:
    """A chat assistant that runs wholly on this machine.

    A small draft model writes ahead and the large one checks: the reply is the large model's own, sooner where
    that pays. Without a command the chat opens.
    """
    if context.invoked_subcommand is not None:
        return 0
    from app.commands.chat import open_chat
    from app.options import LoadChoices

    return open_chat(LoadChoices())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Never raises."""
    os.umask(0o077)  # chats, traces and logs are the user's own business
    os.environ.setdefault("GGML_NO_BACKTRACE", "1")  # a native crash must not start a debugger on the user's terminal
    prepare_streams()
    try:
        return cli.main(args=argv, prog_name="paceline", standalone_mode=False) or 0
    except click.exceptions.NoArgsIsHelpError as help_wanted:
        help_wanted.show()
        return WRONG_USAGE
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        say(error.format_message() + where)
        return WRONG_USAGE
    except click.ClickException as error:
        say(error.format_message())
        return FAILED
    except (Interrupted, click.Abort, KeyboardInterrupt):
        end_line()
        return INTERRUPTED
    except OutputClosed:
        return READER_LEFT
    except SystemExit:  # click's answer when the reader of a help text left
        return READER_LEFT
    except Exception as error:  # noqa: BLE001 - nothing may reach the user as a traceback
        say(one_line(error) if isinstance(error, _answers()) else report_fault(error))
        return FAILED


def _answers() -> tuple[type[Exception], ...]:
    """The errors whose message was written for the user. A package that was never imported cannot have raised."""
    trees = (("engine.errors", "EngineError"), ("models.errors", "ModelsError"))
    loaded = (getattr(sys.modules[module], name) for module, name in trees if module in sys.modules)
    return (AppError, MemoryError, OSError, *loaded)
