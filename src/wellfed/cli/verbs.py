"""The verbs as click commands: one module of this folder each, imported when it is used."""

import importlib
from typing import Any

import click

from wellfed._version import __version__
from wellfed.cli.main import PAGE, VERBS, close_stdout


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

    def get_help(self, ctx: click.Context) -> str:
        return PAGE

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
)
@click.version_option(__version__, prog_name="wellfed")
def cli() -> None:
    """Finds what starves a GPU, and says what each cure is worth."""


def _nearest(name: str) -> str:
    import difflib

    near = difflib.get_close_matches(name, VERBS, n=1)
    return f"; did you mean `{near[0]}`?" if near else f"; verbs: {', '.join(VERBS)}"
