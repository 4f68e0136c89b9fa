"""The front door: a table of verbs, and what happens to errors.

`wellfed --help` is written from the table alone; click and a verb's module are imported when a verb is used.
"""

import errno
import os
import sys
from collections.abc import Sequence

from wellfed._version import __version__

TYPE_CHECKING = False  # typing is a quarter of the time of `--help`
if TYPE_CHECKING:
    import click

VERBS: dict[str, str] = {
    "doctor": "Look, measure, read traces, and rank what starves the GPUs.",
    "inspect": "The facts of a machine, live or recorded; --record saves them.",
    "check": "Judge the machine: pass, finding, or not judged and why.",
    "explain": "The manual page of a check, with this machine's evidence.",
    "measure": "The real ceilings of this machine: memory, latency, storage.",
    "tune": "Change settings so that they can be undone; plan, apply, status, undo.",
    "loader": "Tune a DataLoader by measuring it.",
    "pin": "Put processes, their memory and NICs in the right place.",
    "run": "Run a command and watch it: steps, waits, GPU, how it ended.",
    "attach": "A trace of a running PyTorch job, without restarting it.",
    "trace": "Why the GPUs were idle, and what each cure is worth.",
    "ab": "Two commands in turn: is there a difference, and how large?",
    "compare": "Two traces or cases: what changed, predicted against achieved.",
    "catalog": "What is known of a GPU or a link, with its sources.",
}
"""Verb (also its module in this folder) and its line in `wellfed --help`, in the order of the help."""

INTERRUPTED = 130
USAGE = 2
MAX_COMPLAINT = 1000
"""Characters of an error: a name in it may be as long as a stranger likes."""

_LINES = "\n".join(f"  {verb:<9}{line}" for verb, line in VERBS.items())
PAGE = f"""Usage: wellfed [OPTIONS] VERB [ARGS]...

  Finds what starves a GPU, and says what each cure is worth.

  Read-only, except `tune apply`, `undo` and `confirm`, which keep a journal of
  every change. Nothing is sent over a network, except to a host that you name
  (`measure --with`). The only other files left behind are the ones you name, the
  report of `doctor`, and the columns of large traces in your cache folder
  (WELLFED_CACHE=0: none).

Options:
  --version   Show the version and exit.
  -h, --help  Show this message and exit.

Verbs:
{_LINES}

  Example: wellfed doctor --demo"""
"""What `wellfed --help` prints."""
_ANSWERS = {"-h": PAGE, "--help": PAGE, "--version": f"wellfed, version {__version__}"}


def main(argv: Sequence[str] | None = None) -> None:
    """The console script: runs `argv` and exits with its code."""
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code: 0 done, 1 findings at or above `--fail-on`, 2 usage or
    nothing could be read, 130 interrupted. Errors become two lines on stderr; nothing is raised."""
    given = sys.argv[1:] if argv is None else list(argv)
    _fill_streams()
    if len(given) == 1 and given[0] in _ANSWERS:
        return _answer(_ANSWERS[given[0]])
    import click

    from wellfed.cli.verbs import cli

    try:
        code = cli.main(args=given, prog_name="wellfed", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        close_stdout()
        return 0
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        return _usage(error, given)
    except Exception as error:  # noqa: BLE001 - the one place where a crash becomes a sentence
        return _failure(error)
    return code if isinstance(code, int) else 0


def _answer(text: str) -> int:
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        close_stdout()
    except OSError as error:
        return _failure(error)
    return 0


def _fill_streams() -> None:
    """A stream that the caller closed (`>&-`) becomes the null device, so that its number does not go to the next
    file that is opened, where a library's messages would then end up."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, PTH123 - for good


def _usage(error: "click.ClickException", given: Sequence[str]) -> int:
    import click

    ctx = getattr(error, "ctx", None)
    if ctx is not None and type(error).__name__ == "NoArgsIsHelpError":
        click.echo(ctx.get_help(), err=True)
        return USAGE
    # an option without its value is told without a context
    verb = f" {given[0]}" if given and given[0] in VERBS else ""
    command = ctx.command_path if ctx is not None else f"wellfed{verb}"
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
    if isinstance(error, OSError) and _is_of_stdout(error):
        close_stdout()
        _complain(f"could not write to stdout: {error.strerror or error}", "df -h; or name a file with -o")
        return USAGE
    python = ".".join(map(str, sys.version_info[:3]))
    _complain(
        f"unexpected {type(error).__name__}: {error} (a fault of wellfed {__version__}, python {python})",
        "report this line with the command you ran; WELLFED_DEBUG=1 shows where it happened",
    )
    return USAGE


def _complain(message: str, hint: str | None) -> None:
    """Two lines. Names of files and hosts stand in them."""
    import click

    lines = [f"{click.style('error:', fg='red', bold=True)} {harmless(message)}"]
    if hint:
        lines.append(f"{click.style('hint:', fg='cyan')} {harmless(hint)}")
    try:
        for line in lines:
            click.echo(line, err=True, color=_colour())
    except OSError:
        pass  # nobody can be told; the exit code says it


def harmless(text: str) -> str:
    """One line of at most MAX_COMPLAINT characters in which nothing steers a terminal: as `report.words.clean`, which
    would load the model."""
    text = text if len(text) <= MAX_COMPLAINT else f"{text[: MAX_COMPLAINT - 100]} ... {text[-90:]}"
    return "".join(map(_harmless, text))


def _harmless(char: str) -> str:
    if char.isprintable():
        return char
    return " " if char.isspace() else char.encode("unicode_escape").decode()


def _colour() -> bool | None:
    return False if os.environ.get("NO_COLOR") else None


def _is_of_stdout(error: OSError) -> bool:
    """Whether this is a write to stdout that failed. Errors of files carry their name, and are told where they
    happen; what else is written goes to stdout."""
    return error.filename is None and error.errno in (
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EBADF,
    )


def close_stdout() -> None:
    """The reader of our pipe has gone (`| head`): keep the interpreter from complaining at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass  # stdout is no file: nothing is flushed at exit
