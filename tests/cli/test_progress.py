"""One line that clears itself, only where somebody watches."""

import io
import sys

import pytest

from wellfed.cli.progress import progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_each_line_in_place_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    with progress() as say:
        say("memory copy: 12 GB/s so far")
    assert stream.getvalue() == "\r\x1b[2Kmemory copy: 12 GB/\r\x1b[2K"


def test_the_line_is_cleared_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with pytest.raises(ZeroDivisionError), progress() as say:
        say("judging")
        raise ZeroDivisionError
    assert stream.getvalue().endswith("\r\x1b[2K")


@pytest.mark.parametrize(
    ("stream", "term"), [(io.StringIO(), "xterm"), (Terminal(), "dumb"), (Terminal(), "")]
)
def test_nobody_else_sees_anything(monkeypatch: pytest.MonkeyPatch, stream: io.StringIO, term: str) -> None:
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", term)
    with progress() as say:
        say("judging")
    assert stream.getvalue() == ""
