"""A large trace from file to the full answer: CPU seconds, wall time and memory, against HTA on the same machine.

    python benchmarks/against_hta.py TRACE.json.gz --hta /path/to/venv/bin/python
    python benchmarks/against_hta.py TRACE.json.gz --bytes 2e9 --keep big.json     # only ours, file kept

TRACE is a recorded trace of PyTorch's profiler. It is repeated, one recording after the other with times shifted
and correlation ids, external ids and step numbers renumbered, until the file has `--bytes` bytes; nothing else
changes. Ours is `wellfed trace FILE --format json` with an empty cache (and once more with the filled one). HTA's is
`TraceAnalysis` and its temporal breakdown, communication overlap and idle time breakdown, in an environment of its own:

    python -m venv hta && hta/bin/pip install traceinsight

CPU time is that of the process and its children (`wait4`), memory the highest sum of their proportional set
sizes without mapped files, looked at every 50 ms.
"""

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HOLE = re.compile(
    rb'(?<="ts": )\d+|(?<="correlation": )\d+|(?<="External id": )\d+|(?<="id": )\d+|(?<=ProfilerStep#)\d+'
)
COMPACT_HOLE = re.compile(HOLE.pattern.replace(rb'": )', rb'":)'))
HTA = """
import sys, time, warnings
warnings.filterwarnings("ignore")
from hta.trace_analysis import TraceAnalysis
t = TraceAnalysis(trace_files={0: sys.argv[1]})
t.get_temporal_breakdown(visualize=False)
t.get_comm_comp_overlap(visualize=False)
t.get_idle_time_breakdown(ranks=[0], visualize=False)
"""


class Run(NamedTuple):
    cpu_s: float
    wall_s: float
    peak_bytes: int
    output: bytes


def enlarge(source: Path, target: Path, size: float, *, compact: bool = False) -> int:
    """Write the repeated trace; returns how often it was repeated. `compact` leaves out all white space."""
    data = gzip.decompress(source.read_bytes()) if source.suffix == ".gz" else source.read_bytes()
    whole = json.loads(data.decode("utf-8", "replace"))
    events = whole.pop("traceEvents")
    if compact:
        body = json.dumps(events, separators=(",", ":")).encode()[1:-1]
        hole = COMPACT_HOLE
    else:
        begin = data.index(b"[", data.index(b'"traceEvents"')) + 1
        body = data[begin : data.rindex(b"]")].strip().rstrip(b",")
        hole = HOLE
    timed = [e for e in events if e.get("ph") == "X" and "dur" in e]
    start = min(float(e["ts"]) for e in timed)
    span_us = int(max(float(e["ts"]) + float(e["dur"]) for e in timed) - start) + 1000
    steps = {int(m) for e in timed for m in re.findall(r"ProfilerStep#(\d+)", str(e["name"]))}
    step_count = max(steps) - min(steps) + 1 if steps else 0
    pieces, kinds, values = _holes(body, hole)
    ids = max((v for k, v in zip(kinds, values, strict=True) if k == b"i"), default=0) + 1
    head = json.dumps(whole, indent=1).encode().rstrip().removesuffix(b"}").rstrip()
    repeats = 0
    with target.open("wb") as out:
        out.write(head + (b"," if len(head) > 1 else b"") + b'\n"traceEvents": [\n')
        while out.tell() < size:
            shift = {b"t": span_us * repeats, b"#": step_count * repeats}
            out.write(b",\n" if repeats else b"")
            moved = [b"%d" % (v + shift.get(k, ids * repeats)) for k, v in zip(kinds, values, strict=True)]
            out.write(
                b"".join(text for pair in zip(pieces, moved, strict=False) for text in pair) + pieces[-1]
            )
            repeats += 1
        out.write(b"\n]}\n")
    return repeats


def _holes(body: bytes, hole: "re.Pattern[bytes]") -> tuple[list[bytes], list[bytes], list[int]]:
    """The text between the numbers that change, what kind of number each is (t, i, #), and their values."""
    pieces, kinds, values = [], [], []
    at = 0
    for found in hole.finditer(body):
        pieces.append(body[at : found.start()])
        before = body[found.start() - 8 : found.start()]
        kinds.append(b"#" if before.endswith(b"#") else b"t" if b'"ts"' in before else b"i")
        values.append(int(found.group()))
        at = found.end()
    return [*pieces, body[at:]], kinds, values


def measure(command: list[str], env: dict[str, str]) -> Run:
    """Run a command and say what it cost. Raises CalledProcessError when it fails."""
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, stdout=out, stderr=err, env=env)
        peak = [0]
        done = threading.Event()
        watcher = threading.Thread(target=_watch, args=(process.pid, peak, done))
        watcher.start()
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        done.set()
        watcher.join()
        out.seek(0)
        err.seek(0)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command, stderr=err.read()[-2000:])
        return Run(usage.ru_utime + usage.ru_stime, wall, peak[0], out.read())


def _watch(pid: int, peak: list[int], done: threading.Event) -> None:
    while not done.wait(0.05):
        peak[0] = max(peak[0], sum(_private_bytes(p) for p in _family(pid)))


def _family(pid: int) -> Iterator[int]:
    yield pid
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _family(int(child))
    except OSError:
        return


def _private_bytes(pid: int) -> int:
    """Proportional set size in bytes, mapped files aside; 0 once the process has gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    size = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:] if line.endswith("kB")}
    return (size.get("Pss", 0) - size.get("Pss_File", 0)) << 10


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", type=Path)
    parser.add_argument("--bytes", type=float, default=860e6)
    parser.add_argument("--compact", action="store_true", help="no white space, as re-saved files")
    parser.add_argument("--keep", type=Path, help="where the large file stays; used again if it is there")
    parser.add_argument("--hta", type=Path, help="the python of an environment with traceinsight")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        big = given.keep or Path(folder) / "big.json"
        if not big.exists():
            times = enlarge(given.trace, big, given.bytes, compact=given.compact)
            print(f"{given.trace.name} x {times}: {big.stat().st_size / 1e6:.0f} MB")
        env = {**os.environ, "XDG_CACHE_HOME": str(Path(folder) / "cache")}
        command = [sys.executable, "-m", "wellfed", "trace", str(big), "--format", "json"]
        found: dict[str, Run] = {"wellfed": measure(command, env), "wellfed again": measure(command, env)}
        if given.hta:
            found["HTA"] = measure([str(given.hta), "-c", HTA, str(big)], env)
    _show(found)


def _show(found: dict[str, Run]) -> None:
    print(f"{'':<15}{'CPU s':>9}{'wall s':>9}{'peak MB':>9}")
    for name, run in found.items():
        print(f"{name:<15}{run.cpu_s:>9.1f}{run.wall_s:>9.1f}{run.peak_bytes / 1e6:>9.0f}")
    answer: Any = json.loads(found["wellfed"].output)
    print(
        f"wellfed: {sum(r['gpu_events'] for r in answer['ranks'])} GPU events, {len(answer['verdicts'])} verdicts"
    )
    if "HTA" in found:
        ours, theirs = found["wellfed"], found["HTA"]
        print(f"HTA / wellfed: CPU {theirs.cpu_s / ours.cpu_s:.1f}x, wall {theirs.wall_s / ours.wall_s:.1f}x,"
              f" memory {theirs.peak_bytes / ours.peak_bytes:.1f}x")  # fmt: skip


if __name__ == "__main__":
    main()
