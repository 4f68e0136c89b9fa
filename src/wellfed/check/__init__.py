"""Rules, pure: a Machine or an analysed trace in, Verdicts out. Tables of comparisons, functions by topic.

Checks are found by folder. `check/host/<layer>.toml` holds those that compare facts, `check/host/<layer>.py`
those that think; `check/trace/` those of traces. Their codes and pages come from the entries and the
docstrings themselves, so there is no list to keep.
"""

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from types import ModuleType
from typing import Any

from wellfed.check.evaluate import Outcome, fold, judge_entry
from wellfed.check.ignore import set_aside
from wellfed.check.manual import Manual
from wellfed.check.root_causes import link, order
from wellfed.check.table import INTENTS, LAYERS, tables
from wellfed.model import Ceiling, Machine, Verdict, WellfedError

__all__ = [
    "INTENTS",
    "LAYERS",
    "Manual",
    "codes",
    "host_codes",
    "judge_machine",
    "manual",
    "order",
    "require_code",
    "set_aside",
]

HostFunction = Callable[[Machine, tuple[Ceiling, ...], str], Iterable[Outcome]]


def judge_machine(
    machine: Machine, *, ceilings: Sequence[Ceiling] = (), intent: str = "training"
) -> tuple[Verdict, ...]:
    """A verdict of every host check, root causes before symptoms, then by worth. `ceilings` are what was
    measured on it, `intent` is one of INTENTS."""
    if intent not in INTENTS:
        raise WellfedError(f"no intent `{intent}`", hint=f"one of: {', '.join(INTENTS)}")
    verdicts = [judge_entry(check, machine, intent) for check in tables().values()]
    for page, function in functions().values():
        if page.intents and intent not in page.intents:
            wanted = " or ".join(page.intents)
            said = f"matters for {wanted}; this machine is judged for {intent}"
            verdicts.append(fold(page, machine, [Outcome(state="intent", message=said)]))
        else:
            verdicts.append(fold(page, machine, list(function(machine, tuple(ceilings), intent))))
    blocks = {page.code: page.blocks for page in _host_pages().values()}
    return tuple(order(link(verdicts, blocks)))


def manual(code: str) -> Manual:
    """The page of a check. Raises WellfedError, naming the nearest codes, when there is none."""
    return _pages(require_code(code))[code]


def codes() -> tuple[str, ...]:
    """Every code there is: hosts by layer, then traces."""
    return (*host_codes(), *_trace_pages())


def host_codes() -> tuple[str, ...]:
    """The codes of host checks, by layer."""
    return tuple(_host_pages())


def require_code(code: str) -> str:
    """The code, if there is such a check. Raises WellfedError with the nearest ones otherwise."""
    if code in _host_pages() or code in _trace_pages():
        return code
    plain = code.upper().replace("-", "").replace("_", "")
    near = _nearest(code.lower(), plain)
    raise WellfedError(f"no check `{code}`; nearest: {', '.join(near)}", hint=f"wellfed explain {near[0]}")


def _nearest(name: str, plain: str) -> list[str]:
    """Codes that begin so, are spelled nearly so, or whose check has a name with this in it or nearly so."""
    begins = [code for code in codes() if plain and code.startswith(plain)]
    named = {manual(code).name: code for code in codes()}
    within = [code for known, code in named.items() if len(name) > 2 and name in known]
    alike = difflib.get_close_matches(plain, codes(), n=3, cutoff=0.5)
    spelled = [named[known] for known in difflib.get_close_matches(name, named, n=3)]
    found = list(dict.fromkeys([*begins, *within, *alike, *spelled]))
    return found[:3] or list(codes()[:3])


@cache
def functions() -> dict[str, tuple[Manual, HostFunction]]:
    """Code -> page and function, of every function check of a host."""
    package = importlib.import_module("wellfed.check.host")
    found: dict[str, tuple[Manual, HostFunction]] = {}
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        for page, function in _rules(importlib.import_module(f"wellfed.check.host.{info.name}")):
            assert page.code not in found and page.code not in tables(), f"{page.code} is there twice"
            found[page.code] = (page, function)
    return found


def _rules(module: ModuleType) -> list[tuple[Manual, Any]]:
    """The functions of a module that carry a page, in the order they are written."""
    return [
        (page, value)
        for value in vars(module).values()
        if isinstance(page := getattr(value, "manual", None), Manual) and value.__module__ == module.__name__
    ]


def _pages(code: str) -> dict[str, Manual]:
    return _host_pages() if code in _host_pages() else _trace_pages()


@cache
def _host_pages() -> dict[str, Manual]:
    pages = [check.manual for check in tables().values()] + [page for page, _ in functions().values()]
    rank = {layer: index for index, layer in enumerate(LAYERS)}
    return {page.code: page for page in sorted(pages, key=lambda page: (rank[page.layer], page.code))}


@cache
def _trace_pages() -> dict[str, Manual]:
    """Pages of `check/trace/`, which imports the analysis and so loads only when asked for."""
    pages: tuple[Manual, ...] = importlib.import_module("wellfed.check.trace").pages()
    return {page.code: page for page in pages}
