"""What a machine can really do. One module per group of measured ceilings, in a folder per layer: `needs(machine)`
says whether it can run, `measure` runs it."""

from collections.abc import Callable

from wellfed.bench.find import Effort
from wellfed.bench.run import Measured, run_benchmarks
from wellfed.bench.setup import Options
from wellfed.model import Ceiling, Machine

__all__ = ["Effort", "Measured", "Options", "measure_quick", "run_benchmarks"]


def measure_quick(
    machine: Machine, *, budget_s: float = 15.0, progress: Callable[[str], None] | None = None
) -> tuple[Ceiling, ...]:
    """The ceilings of the machine this runs on, in about `budget_s` seconds. `machine` is what was seen of it:
    a benchmark takes sizes and counts from there. What can't be measured is left out: `run_benchmarks` says
    why."""
    return run_benchmarks(machine, budget_s=budget_s, progress=progress).ceilings
