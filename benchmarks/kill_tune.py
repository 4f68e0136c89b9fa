"""`wellfed tune apply` killed at any moment, not at chosen steps, on two knobs of this kernel; then `tune undo`. Root only.

    sudo python benchmarks/kill_tune.py --kills 150

Each run is a process of its own that has loaded everything beforehand, so that most kills land while it writes: up to 20 ms
after the journal's first file is there.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

# What the verb imports when it is used, here before the fork.
from wellfed import api  # noqa: F401
from wellfed.cli.main import run

KNOBS = {
    "/proc/sys/vm/stat_interval": ("sysctl", "vm.stat_interval", "7", "8"),
    "/sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs": (
        "thp",
        "khugepaged/scan_sleep_millisecs",
        "12345",
        "12346",
    ),
}
WINDOW_S = 0.02


def texts() -> list[str]:
    return [Path(name).read_text().strip() for name in KNOBS]


def started(*args: str) -> int:
    """A child that runs one command line and says nothing."""
    child = os.fork()
    if child == 0:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        os._exit(run(["tune", *args]))
    return child


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=150)
    parser.add_argument("--seed", type=int, default=7)
    asked = parser.parse_args()
    rng = random.Random(asked.seed)
    first = texts()
    news = [
        other if old == new else new for old, (_, _, new, other) in zip(first, KNOBS.values(), strict=True)
    ]
    changed = neither = not_back = 0
    with tempfile.TemporaryDirectory() as folder:
        wanted = Path(folder) / "changes.toml"
        wanted.write_text(
            "".join(
                f'[[change]]\nkind = "{kind}"\ntarget = "{target}"\nnew = "{new}"\n'
                for (kind, target, *_), new in zip(KNOBS.values(), news, strict=True)
            )
        )
        for number in range(asked.kills):
            journal = Path(folder) / str(number)
            child = started("apply", "--changes", str(wanted), "--journal", str(journal))
            until = time.monotonic() + 10.0
            while not list(journal.glob("*.jsonl")) and time.monotonic() < until:
                pass
            time.sleep(rng.random() * WINDOW_S)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            now = texts()
            changed += now != first
            neither += any(value not in pair for value, *pair in zip(now, first, news, strict=True))
            child = started("undo", "--journal", str(journal))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            not_back += code != 0 or texts() != first
    print(
        f"{asked.kills} kills; something was changed by then in {changed}; a knob neither old nor new in {neither}; "
        f"not back after undo: {not_back}"
    )
    return int(neither + not_back > 0)


if __name__ == "__main__":
    sys.exit(main())
