"""Writing the events of a trace while it is read, for Perfetto: one rank at a time goes through, none is kept."""

import contextlib
import gzip
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from wellfed.cli.common import Output, file_format, note, writing

if TYPE_CHECKING:
    from wellfed.analyze import Each, Study
    from wellfed.model import Case
    from wellfed.model.timeline import Timeline

LEVEL = 4
"""Of gzip: half the time of 6 for a tenth more bytes."""


class Export:
    """Takes ranks through `each` (None: nobody wants them), and the case at the end."""

    def __init__(self, streams: list[BinaryIO], *, redact: bool) -> None:
        from wellfed.report.perfetto import Writer

        self._streams = streams
        self._writer = Writer(redact=redact)
        self._write([self._writer.head()])

    @property
    def each(self) -> "Each":
        return self._rank

    def _rank(self, timeline: "Timeline", studies: "Sequence[Study]") -> None:
        self._write(self._writer.rank(timeline, studies))

    def finish(self, case: "Case") -> None:
        self._write(self._writer.findings(case.rank_verdicts or case.verdicts))
        self._write([self._writer.tail()])
        if self._writer.left_out:
            note(
                f"note: {self._writer.left_out:,} events cross so many others that no lane had room for them"
            )

    def _write(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            with _told():
                for stream in self._streams:
                    stream.write(piece.encode("utf-8", "replace"))


@contextlib.contextmanager
def exporting(output: Output) -> Iterator[Export | None]:
    """The export to the `.perfetto.json` files of `output`, which are there whole once the block ends well; None
    when there is no such file."""
    paths = [path for path in output.files if file_format(path) == "perfetto"]
    if not paths:
        yield None
        return
    with contextlib.ExitStack() as stack:
        with _told():
            streams = [_opened(path, stack) for path in paths]
        yield Export(streams, redact=output.redact)
        with _told():
            stack.close()
    for path in paths:
        note(f"wrote {path}")


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """A full disk is for the user to put right."""
    from wellfed.model.errors import WellfedError

    try:
        yield
    except OSError as error:
        raise WellfedError(
            f"could not write the events: {error.strerror or error}", hint="df -h . && ls -ld ."
        ) from error


def _opened(path: Path, stack: contextlib.ExitStack) -> BinaryIO:
    stream = stack.enter_context(writing(path))
    if not path.name.lower().endswith(".gz"):
        return stream
    # without name and time, so that the same trace gives the same bytes
    packed = gzip.GzipFile(filename="", mode="wb", compresslevel=LEVEL, fileobj=stream, mtime=0)
    return stack.enter_context(packed)  # type: ignore[return-value]
