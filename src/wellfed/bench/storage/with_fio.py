"""The same reads by fio, where the user has it: a second opinion beside ours, from a program that shares no line with it.

fio gets a descriptor of the nameless file and may not write, create or lay out anything."""

import json
import os
import shutil
import subprocess
from typing import NamedTuple

from wellfed.bench.storage.files import Target

RUN_S = 1.0
_RAMP_S = 0.2
_PATIENCE_S = 10.0


class Opinion(NamedTuple):
    """Reads a second and the median latency."""

    iops: float
    p50_us: float | None


def available() -> bool:
    return shutil.which("fio") is not None


def read_by_fio(
    target: Target, block: int, depth: int, random: bool, seconds: float = RUN_S
) -> Opinion | None:
    """None when fio can't do it here: an old one, no libaio, no way to the descriptor."""
    command = [
        "fio", "--name=wellfed", f"--filename=/proc/{os.getpid()}/fd/{target.fd}", f"--rw={'randread' if random else 'read'}",
        f"--bs={block}", f"--iodepth={depth}", f"--ioengine={'libaio' if depth > 1 else 'psync'}", f"--direct={int(target.direct)}",
        "--time_based", f"--runtime={seconds * 1000:.0f}ms", f"--ramp_time={_RAMP_S * 1000:.0f}ms", "--norandommap", "--readonly",
        f"--size={target.size}", "--allow_file_create=0", "--output-format=json",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + _PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else read_output(done.stdout)


def read_output(text: str) -> Opinion | None:
    """What fio's JSON says of its first job; None when it says nothing of reads. Some versions write a line before it."""
    begin = text.find("{")
    if begin < 0:
        return None
    try:
        read = json.loads(text[begin:])["jobs"][0]["read"]
        iops = float(read["iops"])
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    middle = read.get("clat_ns", {}).get("percentile", {}).get("50.000000")
    return Opinion(iops, None if middle is None else middle / 1000) if iops > 0 else None
