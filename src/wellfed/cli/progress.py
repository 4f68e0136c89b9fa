"""One line on the terminal that says what is being done, and clears itself."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Gives a function that shows one line on stderr in place of the last. Nothing is shown where nobody
    watches: a pipe, a file, a dumb terminal."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "") in ("", "dumb"):
        yield lambda _: None
        return

    def say(text: str) -> None:
        columns = shutil.get_terminal_size((80, 24)).columns
        click.echo(f"\r\x1b[2K{text[: columns - 1]}", nl=False, err=True, color=True)

    try:
        yield say
    finally:
        click.echo("\r\x1b[2K", nl=False, err=True, color=True)
