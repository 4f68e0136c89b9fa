"""Several processes on one file, each with its own queue: for devices that are faster than one Python process.

The clock of Linux is the same in all processes, so what they bring back is one list. They read nothing but a descriptor that they are
handed, and end when their parent does: their input closes."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from wellfed.bench.storage.aio import Spans, transfer

PROGRAM = "from wellfed.bench.storage.swarm import serve; serve()"
_READY = b"ready\n"


def transfer_by(processes: int, fd: int, blocks: int, block: int, depth: int, budget_s: float) -> Spans:
    """Random reads by so many processes, together `depth` of them in flight. Raises OSError when one of them failed."""
    depths = [depth // processes + (number < depth % processes) for number in range(processes)]
    with ExitStack() as stack:
        members = [stack.enter_context(_start(fd)) for _ in depths]
        for member in members:
            stack.callback(member.kill)
        for number, (member, share) in enumerate(zip(members, depths, strict=True)):
            _tell(
                member,
                {
                    "fd": fd,
                    "blocks": blocks,
                    "block": block,
                    "depth": share,
                    "budget_s": budget_s,
                    "seed": number,
                },
            )
        for member in members:
            assert member.stdout is not None
            if member.stdout.readline() != _READY:
                raise OSError("a process of its own to read with did not start")
        for member in members:
            _tell(member, "go")
        parts = [_spans(member) for member in members]
    begin, end = (np.concatenate([part[row] for part in parts]) for row in (0, 1))
    return Spans(begin, end)


def _start(fd: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(fd,),
        env=_environment(),
    )


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def _tell(member: "subprocess.Popen[bytes]", what: Any) -> None:
    assert member.stdin is not None
    try:
        member.stdin.write(json.dumps(what).encode() + b"\n")
        member.stdin.flush()
    except BrokenPipeError as error:
        raise OSError("a process of its own to read with ended early") from error


def _spans(member: "subprocess.Popen[bytes]") -> np.ndarray[Any, np.dtype[np.int64]]:
    assert member.stdout is not None
    raw = member.stdout.read()
    if not raw or len(raw) % 16:
        raise OSError("a process of its own to read with ended early")
    return np.frombuffer(raw, dtype=np.int64).reshape(2, -1)


def serve(arguments: Sequence[str] = ()) -> None:
    """The other process: what to do on one line of stdin, `go` on the next."""
    todo = json.loads(sys.stdin.readline())
    offsets = np.random.default_rng(todo["seed"]).integers(0, todo["blocks"], 1 << 15) * todo["block"]
    sys.stdout.buffer.write(_READY)
    sys.stdout.buffer.flush()
    if not sys.stdin.readline():
        return
    spans = transfer(todo["fd"], offsets, todo["block"], todo["depth"], todo["budget_s"])
    sys.stdout.buffer.write(spans.begin_ns.tobytes() + spans.end_ns.tobytes())
