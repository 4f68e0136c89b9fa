"""Runs the benchmarks of this folder within one budget of seconds.

A benchmark is a module with IDS (of its ceilings), WEIGHT (its share of the budget), `needs(machine)` (None,
or why it can't run here) and `measure(setup, budget_s)`. It is found by being here."""

import importlib
import os
import pkgutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, cast

from wellfed.bench.setup import Setup
from wellfed.model import Ceiling, Machine, Value, WellfedError

MAX_SHARE_S = 5.0
"""More seconds than this for one benchmark buy no better number in the quick tier."""

_LEAST_SHARE = 0.1


class Benchmark(Protocol):
    """What a module of this folder has when it is a benchmark."""

    IDS: tuple[str, ...]
    WEIGHT: float

    def needs(self, machine: Machine) -> str | None: ...

    def measure(self, setup: Setup, budget_s: float) -> list[Ceiling]: ...


class Measured(Value, frozen=True, kw_only=True):
    """`skipped` says for each id that was asked for and not measured, why not."""

    ceilings: tuple[Ceiling, ...] = ()
    skipped: dict[str, str] = {}


Progress = Callable[[str], None]


def run_benchmarks(
    machine: Machine,
    *,
    budget_s: float,
    only: Sequence[str] = (),
    folder: Path | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure all, or `only` the ids or modules named. Storage is measured in `folder`.

    One that fails is skipped with its reason; the others go on. Raises WellfedError for an unknown id, a
    budget of nothing, and a folder that is none."""
    if not budget_s > 0:
        raise WellfedError(f"a budget of {budget_s} s measures nothing", hint="wellfed measure --budget 15")
    setup = Setup(machine=machine, folder=_check_folder(folder or default_folder()))
    chosen = choose(benchmarks(), only)
    ceilings: list[Ceiling] = []
    skipped: dict[str, str] = {}
    deadline = time.monotonic() + budget_s
    left_weight = sum(benchmark.WEIGHT for benchmark in chosen.values())
    for name, benchmark in chosen.items():
        # One that overran takes from those that follow, but leaves each something to measure with.
        left_s = max(deadline - time.monotonic(), budget_s * _LEAST_SHARE)
        share_s = min(left_s * benchmark.WEIGHT / left_weight, MAX_SHARE_S)
        if progress is not None:
            progress(f"measuring {name.replace('_', ' ')} ({share_s:.1f} s)")
        found, reason = _run_one(benchmark, setup, share_s)
        ceilings += found
        if reason is not None:
            skipped |= dict.fromkeys(benchmark.IDS, reason)
        left_weight -= benchmark.WEIGHT
    wanted = set(only) & {id for benchmark in chosen.values() for id in benchmark.IDS}
    if wanted and not set(only) & set(chosen):
        ceilings = [ceiling for ceiling in ceilings if ceiling.id in wanted]
        skipped = {id: reason for id, reason in skipped.items() if id in wanted}
    return Measured(ceilings=tuple(ceilings), skipped=skipped)


def benchmarks() -> dict[str, Benchmark]:
    """The benchmarks of this folder by module name."""
    package = importlib.import_module("wellfed.bench")
    found = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        module = importlib.import_module(f"wellfed.bench.{info.name}")
        if hasattr(module, "IDS"):
            found[info.name] = cast(Benchmark, module)
    return found


def choose(found: dict[str, Benchmark], only: Sequence[str]) -> dict[str, Benchmark]:
    """Those that give one of the ids, or have one of the names, in `only`; all when it is empty."""
    known = {*found, *(id for benchmark in found.values() for id in benchmark.IDS)}
    for wanted in only:
        if wanted not in known:
            ids = " ".join(sorted(id for benchmark in found.values() for id in benchmark.IDS))
            raise WellfedError(
                f"no ceiling {wanted!r}; there are {ids}", hint="wellfed measure --only os-noise"
            )
    return {
        name: benchmark
        for name, benchmark in found.items()
        if not only or name in only or set(benchmark.IDS) & set(only)
    }


def default_folder() -> Path:
    """/var/tmp where there is one: /tmp is memory on many machines."""
    steady = Path("/var/tmp")
    return steady if steady.is_dir() and os.access(steady, os.W_OK) else Path(tempfile.gettempdir())


def _check_folder(folder: Path) -> Path:
    if not folder.is_dir():
        raise WellfedError(
            f"{folder} is no folder to measure storage in", hint="wellfed measure --dir /path/to/your/data"
        )
    if not os.access(folder, os.W_OK):
        raise WellfedError(
            f"no permission to write a test file in {folder}", hint="wellfed measure --dir /var/tmp"
        )
    return folder


def _run_one(benchmark: Benchmark, setup: Setup, budget_s: float) -> tuple[list[Ceiling], str | None]:
    reason = benchmark.needs(setup.machine)
    if reason is not None:
        return [], reason
    try:
        return benchmark.measure(setup, budget_s), None
    except MemoryError:
        return [], "there was not enough memory"
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return [], f"{error.strerror or error}{where}"
