"""Python stacks of a running process by py-spy, where it is installed."""

import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from wellfed.model import Value, WellfedError

RATE_HZ = 20
"""At 100 Hz py-spy falls behind on busy trees of processes (py-spy #807)."""
_MAX_BYTES = 64 << 20


class Stacks(Value, frozen=True, kw_only=True):
    """`samples` in all; `lines` the share of them that each innermost line has, `holding` the share in which each function is
    anywhere on the stack, largest first."""

    samples: int
    lines: dict[str, float] = {}
    holding: dict[str, float] = {}


def sample_stacks(pid: int, seconds: float) -> Stacks:
    """Watch a process for so long. Raises WellfedError when py-spy is missing, is not permitted, or sees no Python."""
    program = shutil.which("py-spy")
    if program is None:
        raise WellfedError("there is no py-spy here", hint="pip install py-spy")
    with tempfile.TemporaryDirectory(prefix="wellfed-") as folder:
        file = Path(folder) / "stacks"
        command = [program, "record", "-p", str(pid), "-d", str(max(round(seconds), 1)), "-r", str(RATE_HZ)]
        try:
            done = subprocess.run(
                [*command, "-f", "raw", "-o", str(file), "--nonblocking"],
                capture_output=True, text=True, errors="replace", timeout=seconds + 60, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise WellfedError(f"py-spy did not end within {seconds + 60:.0f} s") from error
        if done.returncode != 0 or not file.is_file():
            said = [line for line in done.stderr.strip().splitlines() if line.strip()]
            reason = said[-1][:200] if said else f"exit code {done.returncode}"
            hint = "sudo setcap cap_sys_ptrace+ep $(which py-spy)" if sys.platform == "linux" else "sudo"
            raise WellfedError(f"py-spy could not look into process {pid}: {reason}", hint=hint)
        with file.open("rb") as stream:
            return count_stacks(stream.read(_MAX_BYTES).decode(errors="replace"))


def count_stacks(text: str) -> Stacks:
    """Folded stacks, one a line, innermost last, and how often each was seen."""
    lines: Counter[str] = Counter()
    holding: Counter[str] = Counter()
    for line in text.splitlines():
        stack, _, count = line.rpartition(" ")
        if not count.isdigit() or not stack:
            continue
        frames = stack.split(";")
        lines[frames[-1]] += int(count)
        for frame in {frame.rpartition(":")[0] or frame for frame in frames}:
            holding[frame] += int(count)
    total = sum(lines.values())
    return Stacks(
        samples=total,
        lines={name: count / total for name, count in lines.most_common(10)},
        holding={name: count / total for name, count in holding.most_common(10)},
    )
