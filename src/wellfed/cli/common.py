"""What every verb shares: the options of the output, and `emit`, which writes a case where the user said.

Data goes to stdout, all else to stderr. Everything that is saved or machine-readable is redacted unless
`--no-redact`; text on the terminal is for the eyes of the person at the machine and is not.
Only click is imported at the top: `wellfed VERB --help` must stay fast.
"""

import contextlib
import functools
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import click

if TYPE_CHECKING:
    from wellfed.model import Case

Kind = Literal["doctor", "check", "trace", "measure", "inspect"]
Text = Callable[[int, bool], str]
"""Renders for a width in columns, with or without colour."""

F = TypeVar("F", bound=Callable[..., Any])

SUFFIXES = {".json": "json", ".md": "md", ".html": "html", ".txt": "text", ".case": "case"}
MIN_WIDTH, MAX_WIDTH, FILE_WIDTH = 60, 120, 100


class Output(NamedTuple):
    """Where the result goes: `format` on stdout, `files` by suffix, `save` a case file."""

    format: str = "text"
    files: tuple[Path, ...] = ()
    save: Path | None = None
    redact: bool = True


# -- options ----------------------------------------------------------------------------------------------


def output_options(*formats: str) -> Callable[[F], F]:
    """Adds `--format`, `-o`, `--save` and `--no-redact`, and passes them to the command as `output`.

    `formats` are what stdout can have, text first; text and json when not given. Bad targets (a folder
    that is not there, an unknown suffix, one file twice) stop the verb before it does any work."""
    choices = formats or ("text", "json")

    def decorate(command: F) -> F:
        @functools.wraps(command)
        def with_output(*args: Any, **params: Any) -> Any:
            output = Output(
                format=params.pop("format_"),
                files=params.pop("files"),
                save=params.pop("save"),
                redact=not params.pop("no_redact"),
            )
            check_targets([*output.files, *([output.save] if output.save else [])])
            for path in output.files:
                file_format(path)
            if output.save and output.save.suffix.lower() in (".json", ".md", ".html", ".txt"):
                raise click.UsageError(f"--save writes a case; for {output.save.name} use -o")
            return command(*args, output=output, **params)

        options = [
            click.option(
                "--format",
                "format_",
                type=click.Choice(choices),
                default=choices[0],
                help="What stdout gets.",
            ),
            click.option(
                "-o",
                "files",
                type=click.Path(path_type=Path),
                multiple=True,
                metavar="FILE",
                help="Also write FILE, by suffix: .json .md .html .txt .case; repeatable.",
            ),
            click.option(
                "--save",
                type=click.Path(path_type=Path),
                metavar="FILE.case",
                help="Keep all that was learnt in one file.",
            ),
            click.option(
                "--no-redact",
                is_flag=True,
                help="Keep hostnames, addresses, serials and environment values in files and JSON.",
            ),
        ]
        return _stack(with_output, options)

    return decorate


def host_option(command: F) -> F:
    """Adds `--host box.tar`, passed as `host`: a recorded machine instead of this one."""
    option = click.option(
        "--host", metavar="BOX.tar", help="A machine recorded with `inspect --record`, not this one."
    )
    return _stack(command, [option])


def fail_on_option(default: str) -> Callable[[F], F]:
    """Adds `--fail-on`, passed as `fail_on`: from which severity on findings make the exit code 1."""
    option = click.option(
        "--fail-on",
        type=click.Choice(["never", "info", "warning", "error"]),
        default=default,
        show_default=True,
        help="Exit with 1 when a finding is at least this severe.",
    )
    return lambda command: _stack(command, [option])


def _stack(command: Any, options: Sequence[Callable[[Any], Any]]) -> Any:
    for option in reversed(options):
        command = option(command)
    return command


# -- output -----------------------------------------------------------------------------------------------


def emit(
    case: "Case", output: Output, *, kind: Kind, fail_on: str = "never", text: Text | None = None
) -> None:
    """Write `case` to the files of `output` and to stdout, then leave with exit code 1 if a finding is at or
    above `fail_on`. `text` replaces the terminal report for verbs that show something else."""
    from wellfed.model.redact import redact_case

    public = redact_case(case) if output.redact else case
    draw = text or (lambda width, colour: _render_text(case, width, colour))
    plain = text or (lambda width, colour: _render_text(public, width, colour))
    failed: list[str] = []
    for path, shape in _targets(output):
        data = plain(FILE_WIDTH, False).encode() if shape == "text" else _render(public, shape, kind)
        _try_write(path, data, failed)
    _print(draw(width(), colour()) if output.format == "text" else _render(public, output.format, kind))
    _finish(failed)
    if _worst(case) >= _rank(fail_on):
        click.get_current_context().exit(1)


def emit_value(value: Any, output: Output, *, text: Text) -> None:
    """For verbs whose result is no case (a manual page, a catalogue row): `value` as JSON, or `text`.
    `-o` takes .json and .txt."""
    import msgspec

    def shape_of(shape: str) -> bytes | str:
        return text(FILE_WIDTH, False) if shape == "text" else _pretty(msgspec.json.encode(value))

    failed: list[str] = []
    for path, shape in _targets(output):
        if shape not in ("text", "json"):
            raise click.UsageError(f"this verb writes .json and .txt, not {path.name}")
        data = shape_of(shape)
        _try_write(path, data.encode() if isinstance(data, str) else data, failed)
    _print(text(width(), colour()) if output.format == "text" else shape_of("json"))
    _finish(failed)


def note(message: str) -> None:
    """One line on stderr."""
    click.echo(message, err=True)


def width() -> int:
    """Columns to write for: the terminal's, within 60 and 120; 80 when there is none."""
    return max(MIN_WIDTH, min(MAX_WIDTH, shutil.get_terminal_size((80, 24)).columns))


def colour() -> bool:
    """Whether stdout wants colour: a terminal, no `NO_COLOR`, not dumb."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def file_format(path: Path) -> str:
    """The format that the suffix of `path` asks for. Raises a usage error for others."""
    try:
        return SUFFIXES[path.suffix.lower()]
    except KeyError:
        known = " ".join(SUFFIXES)
        raise click.UsageError(f"{path}: no format for suffix {path.suffix!r}; known: {known}") from None


def _targets(output: Output) -> list[tuple[Path, str]]:
    named = [(path, file_format(path)) for path in output.files]
    return [*named, (output.save, "case")] if output.save else named


def _render(case: "Case", shape: str, kind: Kind) -> bytes:
    if shape == "json":
        from wellfed.report import jsonout

        return _pretty(jsonout.render(case, kind=kind))
    if shape == "case":
        from wellfed.model import encode_case

        return encode_case(case)
    if shape == "md":
        from wellfed.report import markdown

        return markdown.render(case).encode()
    from wellfed.report import html

    return html.render(case).encode()


def _pretty(data: bytes) -> bytes:
    import msgspec

    return msgspec.json.format(data, indent=2) + b"\n"


def _render_text(case: "Case", columns: int, coloured: bool) -> str:
    from wellfed.report import terminal

    return terminal.render(case, width=columns, color=coloured)


def _print(data: str | bytes) -> None:
    text = data.decode() if isinstance(data, bytes) else data
    # A terminal or pipe that is not UTF-8 gets `?` for what it cannot show, not a crash.
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = text.encode(encoding, "replace").decode(encoding)
    try:
        click.echo(text, nl=not text.endswith("\n"))
        sys.stdout.flush()
    except BrokenPipeError:
        from wellfed.cli.main import close_stdout

        close_stdout()


def _worst(case: "Case") -> int:
    return max((_rank(v.severity) for v in case.verdicts if v.verdict == "finding"), default=-1)


def _rank(severity: str) -> int:
    return ["info", "warning", "error", "never"].index(severity)


# -- files ------------------------------------------------------------------------------------------------


def check_targets(paths: Sequence[Path]) -> None:
    """Raise a usage error for a target that can't be written, before any work is done: a folder, a folder
    that is not there or not writable, one file named twice."""
    seen: dict[str, Path] = {}
    for path in paths:
        real = os.path.realpath(path)
        if real in seen:
            raise click.UsageError(f"{path} is named twice as an output")
        seen[real] = path
        folder = Path(real).parent
        if Path(real).is_dir():
            raise click.UsageError(f"{path} is a folder; name a file in it")
        if not folder.is_dir():
            raise click.UsageError(f"{path}: the folder {folder} does not exist (mkdir -p it first)")
        if not os.access(folder, os.W_OK) and not _is_device(Path(real)):
            raise click.UsageError(f"{path}: no permission to write in {folder}")


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all: a temporary file beside it, then a rename. Links are followed, the
    mode is that of the file it replaces or what the umask leaves. Raises OSError."""
    target = Path(os.path.realpath(path))
    if _is_device(target):
        target.write_bytes(data)
        return
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _is_device(path: Path) -> bool:
    return path.exists() and not path.is_file() and not path.is_dir()


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _try_write(path: Path, data: bytes, failed: list[str]) -> None:
    try:
        write_file(path, data)
    except OSError as error:
        failed.append(f"{path}: {error.strerror or error}")
    else:
        note(f"wrote {path}")


def _finish(failed: Sequence[str]) -> None:
    """What could not be written is said last, after everything else has got out."""
    if failed:
        from wellfed.model import WellfedError

        raise WellfedError(f"could not write {'; '.join(failed)}", hint="df -h . && ls -ld .")
