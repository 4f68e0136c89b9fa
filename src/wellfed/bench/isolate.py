"""A process of its own for benchmarks that may crash, hang, or leave a device in a state: those of CUDA and torch.

The child is told one benchmark at a time on its stdin and answers with one line of JSON for each ceiling on a pipe that
nothing else writes to; what libraries print goes to a file, whose end is the reason when it dies. A dead child loses the
benchmark that it was at, and the next one gets a new child."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Self

import msgspec

from wellfed.bench.find import benchmarks
from wellfed.bench.setup import Setup
from wellfed.model import Ceiling

START_S = 120.0
"""Importing torch from a cold network disk takes a minute."""
PATIENCE = 3.0
"""A benchmark that has taken so many times its share is hung."""
PROGRAM = "from wellfed.bench.isolate import serve; serve()"
_MAX_LINE = 8 << 20
_ENDED = "ended"


class Child:
    """A context manager; the process is started when it is first needed, and gone at the end."""

    def __init__(self, setup: Setup, *, start_s: float = START_S, program: str = PROGRAM) -> None:
        self._setup = setup
        self._program = program
        self._start_s = start_s
        self._process: subprocess.Popen[bytes] | None = None
        self._answers = -1
        self._rest = b""
        self._log: IO[bytes] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def measure(self, name: str, budget_s: float) -> tuple[list[Ceiling], str | None]:
        """The ceilings of one benchmark, and why it stopped before its end. Never raises for what the child does."""
        if self._process is None:
            self._start()
        assert self._process is not None and self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([name, budget_s]).encode() + b"\n")
            self._process.stdin.flush()
        found: list[Ceiling] = []
        deadline = time.monotonic() + PATIENCE * budget_s + self._start_s
        while True:
            line = self._read_line(deadline)
            if line is None:
                return found, self._died(hung=time.monotonic() >= deadline)
            answer = json.loads(line)
            if isinstance(answer, dict):
                found.append(msgspec.convert(answer, Ceiling))
            else:
                return found, answer[1]

    def stop(self) -> None:
        """End the child and all that it has started."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with suppress(BrokenPipeError):
            process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(self._answers)
        self._rest = b""
        if self._log is not None:
            self._log.close()

    def _start(self) -> None:
        self._answers, give = os.pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._program, str(give)],
            stdin=subprocess.PIPE,
            stdout=self._log,
            stderr=self._log,
            pass_fds=(give,),
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        os.close(give)
        assert self._process.stdin is not None
        packed = msgspec.json.encode(self._setup, enc_hook=str)
        with suppress(BrokenPipeError):
            self._process.stdin.write(packed + b"\n")
            self._process.stdin.flush()

    def _read_line(self, deadline: float) -> bytes | None:
        """None: the child has ended, or the time is over."""
        while b"\n" not in self._rest:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or len(self._rest) > _MAX_LINE:
                return None
            ready, _, _ = select.select([self._answers], [], [], left_s)
            if not ready:
                return None
            more = os.read(self._answers, 1 << 16)
            if not more:
                return None
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _died(self, *, hung: bool) -> str:
        assert self._process is not None and self._log is not None
        if not hung:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
        code = self._process.poll()
        self._log.seek(max(self._log.seek(0, os.SEEK_END) - 4096, 0))
        said = self._log.read().decode(errors="replace").strip().splitlines()
        self.stop()
        last = f": {said[-1][:300]}" if said else ""
        if hung:
            return f"it did not end and was stopped{last}"
        if code is not None and code < 0:
            return f"its process was ended by signal {-code} ({signal.Signals(-code).name}){last}"
        return f"its process ended with exit code {code}{last}"


def serve() -> None:
    """The child: setup on the first line of stdin, then benchmarks, until stdin ends."""
    from wellfed.bench.run import measure_here

    answers = os.fdopen(int(sys.argv[1]), "wb", buffering=0)
    first = sys.stdin.buffer.readline()
    setup = msgspec.json.decode(first, type=Setup, dec_hook=lambda kind, value: kind(value))
    known = benchmarks()
    for line in sys.stdin.buffer:
        name, budget_s = json.loads(line)
        reason = _answer_one(known[name], setup, budget_s, answers, measure_here)
        answers.write(json.dumps([_ENDED, reason]).encode() + b"\n")


def _answer_one(benchmark: Any, setup: Setup, budget_s: float, answers: Any, measure_here: Any) -> str | None:
    class Streamed:
        """Each ceiling leaves as soon as it is there: a crash later does not take it along."""

        @staticmethod
        def measure(setup: Setup, budget_s: float) -> Any:
            for ceiling in benchmark.measure(setup, budget_s):
                answers.write(msgspec.json.encode(ceiling) + b"\n")
                yield ceiling

    try:
        _, reason = measure_here(Streamed, setup, budget_s)
    except RuntimeError as error:  # what torch raises for whatever CUDA says
        text = str(error).strip()
        return text.splitlines()[0][:300] if text else type(error).__name__
    assert reason is None or isinstance(reason, str)
    return reason
