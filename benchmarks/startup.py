"""How much CPU time the main jobs cost, against their budgets: `python benchmarks/startup.py [--runs 15]`.

User and system time of the whole process, median of the runs, so that a busy machine disturbs little. The
bare interpreter is taken off for `--help`, whose budget is what wellfed adds to it; it is measured again beside
every job, since neighbours on a shared machine make all CPU time longer. A job over its budget is measured up to
three times: disturbance only ever adds. Exits with 1 when a budget is broken.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
from typing import NamedTuple


class Job(NamedTuple):
    """`budget_s` of CPU time; `over_bare` takes the bare interpreter off first."""

    args: tuple[str, ...]
    budget_s: float
    over_bare: bool = False
    runs: int | None = None


JOBS = {
    "--help": Job(("-m", "wellfed", "--help"), 0.060, over_bare=True),
    "check": Job(("-m", "wellfed", "check", "--fail-on", "never"), 0.6, runs=5),
    "doctor --demo --no-measure": Job(
        ("-m", "wellfed", "doctor", "--demo", "--no-measure", "--no-report"), 3.0, runs=5
    ),
}


ROUNDS = 3


def cpu_s(args: tuple[str, ...], folder: str) -> float:
    """CPU seconds of one run, children included. Raises CalledProcessError when it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, *args], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def median_cpu_s(args: tuple[str, ...], runs: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        cpu_s(args, folder)  # the first run writes byte code
        return statistics.median(cpu_s(args, folder) for _ in range(runs))


def spent_s(job: Job, runs: int) -> float:
    """What the job costs, of up to `ROUNDS` rounds the first within its budget, else the least."""
    rounds = []
    for _ in range(ROUNDS):
        bare = median_cpu_s(("-c", "pass"), runs) if job.over_bare else 0.0
        rounds.append(median_cpu_s(job.args, runs) - bare)
        if rounds[-1] <= job.budget_s:
            break
    return min(rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("jobs", nargs="*", help=f"of: {', '.join(JOBS)} (all)")
    given = parser.parse_args()
    broken = 0
    for name in given.jobs or JOBS:
        job = JOBS[name]
        runs = min(given.runs, job.runs or given.runs)
        spent = spent_s(job, runs)
        verdict = "ok" if spent <= job.budget_s else "OVER"
        broken += verdict == "OVER"
        over = " over bare" if job.over_bare else ""
        print(f"{name:32} {spent * 1000:7.1f} ms of {job.budget_s * 1000:.0f} ms{over}, n={runs}: {verdict}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
