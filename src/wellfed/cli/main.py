"""The front door: a table of verbs, and what happens to errors.

`wellfed --help` reads the table and imports click, nothing else; a verb's module is imported when the verb
is used. A verb is one module with a click command named `command`.
"""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from wellfed._version import __version__

VERBS: dict[str, str] = {
    "doctor": "Look, measure, read traces, and rank what starves the GPUs.",
    "inspect": "The facts of a machine, live or recorded; --record saves them.",
    "check": "Judge the machine: pass, finding, or not judged and why.",
    "explain": "The manual page of a check, with this machine's evidence.",
    "measure": "The real ceilings of this machine: memory, latency, storage.",
    "trace": "Why the GPUs were idle, and what each cure is worth.",
    "catalog": "What is known of a GPU or a link, with its sources.",
}
"""Verb (also its module in this folder) and its line in `wellfed --help`, in the order of the help."""

INTERRUPTED = 130
USAGE = 2


class Verbs(click.Group):
    """A group that imports a verb's module only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        module = importlib.import_module(f"wellfed.cli.{cmd_name}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            close_stdout()  # before click, which would make it exit code 1
            return 0

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in VERBS and not name.startswith("-"):
            raise click.UsageError(f"no verb `{name}`{_nearest(name)}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=Verbs,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Example: wellfed doctor --demo",
)
@click.version_option(__version__, prog_name="wellfed")
def cli() -> None:
    """Finds what starves a GPU, and says what each cure is worth.

    Read-only: no verb changes the machine or sends anything over a network; the only files left behind are
    the ones you name and the report of `doctor`.
    """


def main(argv: Sequence[str] | None = None) -> None:
    """The console script: runs `argv` and exits with its code."""
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 done, 1 findings at or above `--fail-on`, 2 usage or
    nothing could be read, 130 interrupted. Errors become two lines on stderr; nothing is raised."""
    try:
        code = cli.main(args=None if argv is None else list(argv), prog_name="wellfed", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        close_stdout()
        return 0
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        return _usage(error)
    except Exception as error:  # noqa: BLE001 - the one place where a crash becomes a sentence
        return _failure(error)
    return code if isinstance(code, int) else 0


def _usage(error: click.ClickException) -> int:
    ctx = getattr(error, "ctx", None)
    if ctx is not None and type(error).__name__ == "NoArgsIsHelpError":
        click.echo(ctx.get_help(), err=True)
        return USAGE
    command = ctx.command_path if ctx is not None else "wellfed"
    _complain(error.format_message(), f"{command} --help")
    return USAGE


def _failure(error: Exception) -> int:
    # Imported late: msgspec stands behind the model, and `--help` must not pay for it.
    from wellfed.model.errors import WellfedError

    if os.environ.get("WELLFED_DEBUG") == "1":
        import traceback

        traceback.print_exception(error)
    if isinstance(error, WellfedError):
        _complain(error.message, error.hint)
        return error.exit_code
    python = ".".join(map(str, sys.version_info[:3]))
    _complain(
        f"unexpected {type(error).__name__}: {error} (a fault of wellfed {__version__}, python {python})",
        "report this line with the command you ran; WELLFED_DEBUG=1 shows where it happened",
    )
    return USAGE


def _complain(message: str, hint: str | None) -> None:
    click.echo(f"{click.style('error:', fg='red', bold=True)} {message}", err=True, color=_colour())
    if hint:
        click.echo(f"{click.style('hint:', fg='cyan')} {hint}", err=True, color=_colour())


def _colour() -> bool | None:
    return False if os.environ.get("NO_COLOR") else None


def close_stdout() -> None:
    """The reader of our pipe has gone (`| head`): keep the interpreter from complaining at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # stdout is no file: nothing is flushed at exit


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, VERBS, n=1)
    return f"; did you mean `{near[0]}`?" if near else f"; verbs: {', '.join(VERBS)}"
