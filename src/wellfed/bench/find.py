"""The benchmarks: modules of the group folders here, found by being there."""

import fnmatch
import importlib
import pkgutil
from collections.abc import Iterable, Sequence
from typing import Literal, Protocol, cast

from wellfed.bench.setup import Setup
from wellfed.model import Ceiling, Machine, WellfedError

GROUPS = ("host", "storage", "network", "gpu", "comm")
"""Folders, in the order in which they are measured: what the others disturb comes first."""

Effort = Literal["quick", "full"]


class Benchmark(Protocol):
    """What a module of a group has when it is a benchmark. An entry of IDS that ends in `*` is a family, whose ids are
    made at run time. WEIGHT is its share of the budget. EFFORT `full`: only when all, or this one, is asked for. It may
    also have ISOLATE = True (runs in a process of its own, which may crash), FRESH = True (and one in which nothing else has
    run), and MAX_S (more seconds buy nothing)."""

    IDS: tuple[str, ...]
    WEIGHT: float
    EFFORT: Effort

    def needs(self, machine: Machine) -> str | None:
        """Why it can't run here; None when it can. Cheap, and opens no device."""

    def measure(self, setup: Setup, budget_s: float) -> Iterable[Ceiling]: ...


def benchmarks() -> dict[str, Benchmark]:
    """All of them by `group.module`, in the order in which they are run."""
    found = {}
    for group in GROUPS:
        package = importlib.import_module(f"wellfed.bench.{group}")
        for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
            module = importlib.import_module(f"wellfed.bench.{group}.{info.name}")
            if hasattr(module, "IDS"):
                found[f"{group}.{info.name}"] = cast(Benchmark, module)
    return found


def is_isolated(benchmark: Benchmark) -> bool:
    return bool(getattr(benchmark, "ISOLATE", False))


def choose(found: dict[str, Benchmark], only: Sequence[str], effort: Effort) -> dict[str, Benchmark]:
    """Those that `only` names (see `names`), whatever their effort; of a group those of that effort, all where it has none;
    without it all of that effort. Raises WellfedError for a name that nothing has."""
    for wanted in only:
        if not any(names(wanted, name, benchmark) for name, benchmark in found.items()):
            ids = " ".join(sorted({id for benchmark in found.values() for id in benchmark.IDS}))
            raise WellfedError(
                f"no ceiling {wanted!r}; there are {ids}", hint="wellfed measure --only os-noise"
            )
    if only:
        chosen = {n for wanted in only for n in _chosen(found, wanted, effort)}
        return {n: b for n, b in found.items() if n in chosen}
    return {n: b for n, b in found.items() if effort == "full" or b.EFFORT == "quick"}


def _chosen(found: dict[str, Benchmark], wanted: str, effort: Effort) -> list[str]:
    meant = [n for n, b in found.items() if names(wanted, n, b)]
    if wanted not in GROUPS or effort == "full":
        return meant
    return [n for n in meant if found[n].EFFORT == "quick"] or meant


def names(wanted: str, name: str, benchmark: Benchmark) -> bool:
    """Whether `wanted` is this benchmark, its module, its group, one of its ids, or a pattern (`h2d.*`) of them."""
    return is_whole(wanted, name) or any(meets(wanted, id) for id in benchmark.IDS)


def is_whole(wanted: str, name: str) -> bool:
    """Whether `wanted` asks for all that a benchmark gives."""
    group, _, module = name.partition(".")
    return wanted in (name, group, module)


def is_wanted(id: str, name: str, only: Sequence[str]) -> bool:
    """Whether a ceiling of the benchmark `name` was asked for."""
    return not only or any(is_whole(wanted, name) or meets(wanted, id) for wanted in only)


def meets(wanted: str, id: str) -> bool:
    """Either may be a pattern: `gemm.*` is a family of ours, `h2d.*` what a user types."""
    return fnmatch.fnmatchcase(wanted, id) or fnmatch.fnmatchcase(id, wanted)
