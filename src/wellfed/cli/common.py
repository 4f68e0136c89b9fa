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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

import click

if TYPE_CHECKING:
    from wellfed.model import Case

Kind = Literal["doctor", "check", "trace", "measure", "inspect", "run"]
Text = Callable[[int, bool], str]
"""Renders for a width in columns, with or without colour."""
CaseText = Callable[["Case", int, bool], str]
"""The same for the case it is given, which may be the redacted one."""

Command = Callable[..., Any]
"""The function of a verb, or the click command that it has become."""

SUFFIXES = {".json": "json", ".md": "md", ".html": "html", ".txt": "text", ".case": "case"}
LONG_SUFFIXES = {".perfetto.json": "perfetto", ".perfetto.json.gz": "perfetto"}
"""These come first: such a file holds events, which only the verb that reads them can write."""
MIN_WIDTH, MAX_WIDTH, FILE_WIDTH = 60, 120, 100


class Output(NamedTuple):
    """Where the result goes: `format` on stdout, `files` by suffix, `save` a case file; `interactive` is for pages."""

    format: str = "text"
    files: tuple[Path, ...] = ()
    save: Path | None = None
    redact: bool = True
    interactive: bool = False


# -- options ----------------------------------------------------------------------------------------------


def output_options(*formats: str, save: bool = True, perfetto: bool = False) -> Callable[[Command], Command]:
    """Adds `--format`, `-o`, `--save` and `--no-redact`, and passes them to the command as `output`.

    `formats` are what stdout can have, text first; text and json when not given: a verb whose result is no
    case, so that it offers no `--save`; nor does one with `save` False. With `perfetto` the verb writes
    `.perfetto.json` files itself. Bad targets (a folder that is not there, an unknown suffix, one file
    twice) stop the verb before it does any work."""
    choices = formats or ("text", "json")
    has_pages = "html" in choices
    suffixes = f"{' '.join(SUFFIXES if save else list(SUFFIXES)[:-1])}" if has_pages else ".json .txt"
    if perfetto:
        suffixes += " .perfetto.json.gz"

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def with_output(*args: Any, **params: Any) -> Any:
            output = Output(
                format=params.pop("format_"),
                files=params.pop("files"),
                save=params.pop("save", None),
                redact=not params.pop("no_redact"),
            )
            check_targets([*output.files, *([output.save] if output.save else [])])
            for path in output.files:
                if file_format(path, suffixes) == "perfetto" and not perfetto:
                    raise click.UsageError(f"{path}: only `wellfed trace` writes events for Perfetto")
            if output.save and output.save.suffix.lower() in (".json", ".md", ".html", ".txt"):
                raise click.UsageError(f"--save writes a case; for {output.save.name} use -o")
            return command(*args, output=output, **params)

        save_option = click.option(
            "--save",
            type=click.Path(path_type=Path),
            metavar="FILE.case",
            help="Keep all that was learnt in one file.",
        )
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
                help=f"Also write FILE, by suffix: {suffixes}; repeatable.",
            ),
            save_option,
            click.option(
                "--no-redact",
                is_flag=True,
                help="Keep hostnames, addresses, serials and environment values in files and JSON.",
            ),
        ]
        is_case = has_pages and save
        return _stack(with_output, [option for option in options if is_case or option is not save_option])

    return decorate


def host_option(command: Command) -> Command:
    """Adds `--host box.tar`, passed as `host`: a recorded machine instead of this one."""
    option = click.option(
        "--host",
        metavar="BOX.tar",
        help="Another machine: what `inspect --record` saved, a tar or folder of its /proc and /sys, XML of lstopo "
        "or NCCL_TOPO_DUMP_FILE, or a dump of CPUID.",
    )
    return _stack(command, [option])


def fail_on_option(default: str) -> Callable[[Command], Command]:
    """Adds `--fail-on`, passed as `fail_on`: from which severity on findings make the exit code 1."""
    option = click.option(
        "--fail-on",
        type=click.Choice(["never", "info", "warning", "error"]),
        default=default,
        show_default=True,
        help="Exit with 1 when a finding is at least this severe.",
    )
    return lambda command: _stack(command, [option])


def _stack(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


# -- output -----------------------------------------------------------------------------------------------


def emit(
    case: "Case",
    output: Output,
    *,
    kind: Kind,
    fail_on: str = "never",
    text: CaseText | None = None,
    to_stderr: bool = False,
) -> None:
    """Write `case` to the files of `output` and to stdout, then leave with exit code 1 if a finding is at or
    above `fail_on`. `text` replaces the terminal report for a verb that shows something else. Text on stdout
    is for the person at the machine and keeps its names; all else is redacted, unless told otherwise. `to_stderr`: stdout is
    another program's, text goes to stderr."""
    if case.machine is not None and "damaged" in (lost := case.machine.gaps.get("recording", "")):
        note(f"warning: {lost}; what is counted may be too low")  # JSON of a check has no machine to say it
    targets = _targets(output)
    shown_only = (
        output.format == "text" and not targets
    )  # nothing leaves: taking names out is a tenth of the time
    public = case
    if output.redact and not shown_only:
        from wellfed.model.redact import redact_case

        public = redact_case(case)
    failed: list[str] = []
    for path, shape in targets:
        _try_write(path, _render(public, shape, kind, output.interactive, text), failed)
    if output.format == "text":
        _print(_text(case, kind, text, width(), colour()), err=to_stderr)
    else:
        _print(_render(public, output.format, kind, output.interactive, text))
    _finish(failed)
    if _worst(case) >= _rank(fail_on):
        click.get_current_context().exit(1)


def emit_value(value: Any, output: Output, *, text: Text, public: bool = False) -> None:
    """For verbs whose result is no case: `value` (any noun or plain value) as JSON, or `text`. `-o` takes .json
    and .txt. JSON is redacted unless `public` says that nothing of the user's machine is in it; a .txt file
    holds what the terminal would show."""
    import msgspec

    from wellfed.model.redact import redact_tree

    def render(shape: str) -> bytes:
        if shape == "text":
            return text(FILE_WIDTH, False).encode()
        tree = msgspec.to_builtins(value)
        return _pretty(msgspec.json.encode(redact_tree(tree) if output.redact and not public else tree))

    targets = _targets(output)
    for path, shape in targets:
        if shape not in ("text", "json"):
            raise click.UsageError(f"this verb writes .json and .txt, not {path.name}")
    failed: list[str] = []
    for path, shape in targets:
        _try_write(path, render(shape), failed)
    _print(text(width(), colour()) if output.format == "text" else render("json"))
    _finish(failed)


def emit_shapes(output: Output, render: Callable[[str], bytes], *, text: Text) -> None:
    """For verbs that have pages and no case: `render` gives the bytes of a format, `text` what a terminal shows."""
    failed: list[str] = []
    for path, shape in _targets(output):
        data = text(FILE_WIDTH, False).encode() if shape == "text" else render(shape)
        _try_write(path, data, failed)
    _print(text(width(), colour()) if output.format == "text" else render(output.format))
    _finish(failed)


def note(message: str) -> None:
    """One line on stderr, harmless whatever names are in it; nobody need be listening there (`2>&1 | head`), files
    are written all the same."""
    from wellfed.cli.main import harmless

    with contextlib.suppress(OSError):
        click.echo(harmless(message), err=True)


def width() -> int:
    """Columns to write for: the terminal's, within 60 and 120; 80 when there is none."""
    return max(MIN_WIDTH, min(MAX_WIDTH, shutil.get_terminal_size((80, 24)).columns))


def colour() -> bool:
    """Whether stdout wants colour: a terminal, no `NO_COLOR`, not dumb."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def file_format(path: Path, known: str = " ".join(SUFFIXES)) -> str:
    """The format that the suffix of `path` asks for. Raises a usage error for others, which names the `known` ones."""
    for suffix, shape in LONG_SUFFIXES.items():
        if path.name.lower().endswith(suffix):
            return shape
    suffix = path.suffix.lower()
    if suffix not in known.split() or suffix not in SUFFIXES:
        raise click.UsageError(f"{path}: no format for suffix {path.suffix!r}; known: {known}")
    return SUFFIXES[suffix]


def _targets(output: Output) -> list[tuple[Path, str]]:
    shapes = [(path, file_format(path)) for path in output.files]
    named = [(path, shape) for path, shape in shapes if shape != "perfetto"]
    return [*named, (output.save, "case")] if output.save else named


def _render(case: "Case", shape: str, kind: Kind, interactive: bool, text: CaseText | None) -> bytes:
    if shape == "text":
        return _text(case, kind, text, FILE_WIDTH, False).encode()
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

    return html.render(case, interactive=interactive).encode()


def _pretty(data: bytes) -> bytes:
    import msgspec

    return msgspec.json.format(data, indent=2) + b"\n"


def _text(case: "Case", kind: Kind, text: CaseText | None, columns: int, coloured: bool) -> str:
    if text is not None:
        return text(case, columns, coloured)
    from wellfed.report import terminal

    return terminal.render(case, width=columns, color=coloured, view=kind, ascii_only=not is_unicode())


def _print(data: str | bytes, *, err: bool = False) -> None:
    text = data.decode() if isinstance(data, bytes) else data
    if not is_unicode():
        # What this terminal can't show becomes `?`, not a crash.
        text = text.encode(sys.stdout.encoding, "replace").decode(sys.stdout.encoding)
    try:
        click.echo(text, nl=not text.endswith("\n"), err=err)
        sys.stdout.flush()
    except BrokenPipeError:
        from wellfed.cli.main import close_stdout

        close_stdout()


def is_unicode() -> bool:
    """Whether stdout takes all characters."""
    return (sys.stdout.encoding or "utf-8").lower().startswith("utf")


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
        try:
            real = os.path.realpath(path)
            is_folder = _is_folder(real)
        except OSError as error:  # a name that is too long, links in a circle, a working folder that is gone
            raise click.UsageError(f"{path}: {error.strerror or error}") from error
        if real in seen:
            raise click.UsageError(f"{path} is named twice as an output")
        seen[real] = path
        folder = Path(real).parent
        if is_folder:
            raise click.UsageError(f"{path} is a folder; name a file in it")
        if not folder.is_dir():
            raise click.UsageError(f"{path}: the folder {folder} does not exist (mkdir -p it first)")
        if not os.access(folder, os.W_OK) and not _is_device(Path(real)):
            raise click.UsageError(f"{path}: no permission to write in {folder}")


def keep_inputs(output: Output, given: Sequence[str | os.PathLike[str]]) -> None:
    """Raise a usage error for an output that would replace a file that is read: a recording can't be made again."""
    targets = [path for path in (*output.files, output.save) if path is not None and path.is_file()]
    if not targets:
        return
    from wellfed.ingest import find_traces
    from wellfed.model import WellfedError

    read: list[Path] = []
    for one in given:
        with contextlib.suppress(WellfedError):  # the verb says what is wrong with it
            read += [path for path in find_traces([one]) if path.is_file()]
    for path in targets:
        if any(path.samefile(one) for one in read):
            raise click.UsageError(f"{path} is one of the files to read; name another file to write")


def write_file(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; see `writing`. Raises OSError."""
    with writing(path) as stream:
        stream.write(data)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """A stream into a file that is there whole or not at all: a temporary file beside it, renamed when the block
    ends well. Links are followed, the mode is that of the file it replaces or what the umask leaves. Raises
    OSError."""
    target = Path(os.path.realpath(path))
    if _is_device(target):
        with target.open("wb") as stream:
            yield stream
        return
    try:
        mode = stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        mode = 0o666 & ~_umask()
    # a part of the name only: with all of it and more, one that is just short enough would be too long
    handle, name = tempfile.mkstemp(prefix=f".{target.name[:32]}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _is_folder(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)  # noqa: PTH116 - the text as it stands
    except (FileNotFoundError, NotADirectoryError):
        return False


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
