"""Runs benchmarks within one budget of seconds: some in this process, those that may take it down in another."""

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from wellfed.bench.find import Benchmark, Effort, benchmarks, choose, is_isolated, is_wanted
from wellfed.bench.isolate import Child
from wellfed.bench.setup import Options, Setup
from wellfed.model import Ceiling, Machine, Value, WellfedError
from wellfed.model.base import replace

MAX_SHARE_S = {"quick": 5.0, "full": 60.0}
"""More seconds than this for one benchmark buy no better number. A benchmark's own MAX_S goes before it."""

_LEAST_SHARE = 0.1


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
    effort: Effort = "quick",
    folder: Path | None = None,
    options: Options | None = None,
    progress: Progress | None = None,
) -> Measured:
    """Measure all of an effort, or `only` the ids, patterns, modules or groups named. Storage is measured in `folder`.

    One that fails is skipped with its reason; the others go on. Raises WellfedError for an unknown id, a
    budget of nothing, and a folder that is none."""
    if not budget_s > 0:
        raise WellfedError(f"a budget of {budget_s} s measures nothing", hint="wellfed measure --budget 15")
    setup = Setup(
        machine=machine,
        folder=_check_folder(folder or default_folder()),
        effort=effort,
        only=tuple(only),
        options=options or Options(),
    )
    chosen = choose(benchmarks(), only, effort)
    reasons = {name: benchmark.needs(machine) for name, benchmark in chosen.items()}
    skipped: dict[str, str] = {}
    ceilings: list[Ceiling] = []
    able = [name for name, reason in reasons.items() if reason is None]
    left_weight = sum(chosen[name].WEIGHT for name in able)
    deadline = time.monotonic() + budget_s
    with ExitStack() as stack:
        child = stack.enter_context(Child(setup))
        for name, benchmark in chosen.items():
            reason, found = reasons[name], list[Ceiling]()
            if reason is None:
                # One that overran takes from those that follow, but leaves each something to measure with.
                left_s = max(deadline - time.monotonic(), budget_s * _LEAST_SHARE)
                longest_s = getattr(benchmark, "MAX_S", MAX_SHARE_S[effort])
                share_s = min(left_s * benchmark.WEIGHT / left_weight, longest_s)
                if progress is not None:
                    progress(f"measuring {_words(name)} ({share_s:.1f} s)")
                found, reason = _run_one(name, benchmark, setup, child, share_s)
                left_weight -= benchmark.WEIGHT
            layer = name.partition(".")[0]
            ceilings += [replace(c, layer=layer) for c in found if is_wanted(c.id, name, only)]
            if reason is not None:
                skipped |= {id: reason for id in benchmark.IDS if is_wanted(id, name, only)}
    return Measured(ceilings=tuple(ceilings), skipped=skipped)


def default_folder() -> Path:
    """/var/tmp where there is one: /tmp is memory on many machines."""
    steady = Path("/var/tmp")
    return steady if steady.is_dir() and os.access(steady, os.W_OK) else Path(tempfile.gettempdir())


def _words(name: str) -> str:
    return name.rpartition(".")[2].replace("_", " ")


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


def _run_one(
    name: str, benchmark: Benchmark, setup: Setup, child: Child, budget_s: float
) -> tuple[list[Ceiling], str | None]:
    if is_isolated(benchmark):
        if getattr(benchmark, "FRESH", False):
            child.stop()
        return child.measure(name, budget_s)
    return measure_here(benchmark, setup, budget_s)


def measure_here(benchmark: Benchmark, setup: Setup, budget_s: float) -> tuple[list[Ceiling], str | None]:
    """What a benchmark finds, and why it stopped before its end: what it found until then counts."""
    found: list[Ceiling] = []
    try:
        found.extend(benchmark.measure(setup, budget_s))
    except MemoryError:
        return found, "there was not enough memory"
    except OSError as error:
        where = f" ({error.filename})" if error.filename else ""
        return found, f"{error.strerror or error}{where}"
    except WellfedError as error:
        return found, str(error)
    return found, None
