"""Facts to a Machine. Readers are found by folder: every `host/<name>.py` with a function `read_<name>`."""

import errno
import importlib
import os
import pkgutil
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import msgspec

from wellfed.host.door import Host
from wellfed.host.stated import StatedHost
from wellfed.model.fact import Fact
from wellfed.model.machine import Machine

Reader = Callable[[Host], list[Fact]]

_TOKEN = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)|\[([^\]]+)\]")


@cache
def readers() -> dict[str, Reader]:
    """Reader by subsystem name, in alphabetical order."""
    package = importlib.import_module("wellfed.host")
    found: dict[str, Reader] = {}
    for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        reader = getattr(importlib.import_module(f"wellfed.host.{module.name}"), f"read_{module.name}", None)
        if reader is not None:
            found[module.name] = reader
    return found


def look(host: Host, only: Iterable[str] | None = None) -> Machine:
    """Everything the readers see of a host, or `only` what some of them do. Never raises for what a machine says or hides: that becomes
    `gaps`."""
    facts: list[Fact] = []
    broken: dict[str, str] = {}
    wanted = None if only is None else set(only)
    for name, reader in readers().items():
        if wanted is not None and name not in wanted:
            continue
        try:
            facts += reader(host)
        except Exception as error:  # noqa: BLE001 - one reader's defect must not take the others' facts along
            broken[f"readers.{name}"] = (
                f"error: reader failed ({type(error).__name__}: {error}); please report it"
            )
    machine = assemble(host.over(facts) if isinstance(host, StatedHost) else facts, broken)
    if host.notes:
        notes = {"recording": "; ".join(host.notes)}
        machine = msgspec.structs.replace(machine, gaps={**machine.gaps, **notes})
    return machine


def assemble(facts: Iterable[Fact], gaps: dict[str, str] | None = None) -> Machine:
    """Of facts with one key the first that was seen counts. A fact that does not fit its field is kept in
    `facts` with status `error`, and its field stays unknown."""
    chosen: dict[str, Fact] = {}
    for fact in facts:
        held = chosen.get(fact.key)
        if held is None or (held.status != "ok" and fact.status == "ok"):
            chosen[fact.key] = fact
    for _ in range(len(chosen) + 1):
        try:
            machine = msgspec.convert(_tree(chosen.values()), Machine)
            break
        except msgspec.ValidationError as error:
            chosen = _without_misfits(chosen, str(error))
    all_gaps = {key: _why(fact) for key, fact in chosen.items() if fact.status != "ok"}
    return msgspec.structs.replace(machine, facts=chosen, gaps={**all_gaps, **(gaps or {})})


def _why(fact: Fact) -> str:
    where = f"`{fact.source}`" if fact.source else "no source"
    more = fact.detail if fact.detail != os.strerror(errno.ENOENT) else None  # `missing` says that already
    return f"{fact.status}: {where}" + (f" ({more})" if more else "")


def split_key(key: str) -> list[str | int]:
    """`gpus[0].name` to `["gpus", 0, "name"]`; a bracket that holds no number is a dict key."""
    steps: list[str | int] = []
    for word, bracket in _TOKEN.findall(key):
        steps.append(int(bracket) if bracket.isascii() and bracket.isdigit() else word or bracket)
    return steps


def _tree(facts: Iterable[Fact]) -> dict[str, Any]:
    root: dict[str | int, Any] = {}
    for fact in facts:
        if fact.status != "ok":
            continue
        *way, last = split_key(fact.key)
        place = root
        for step in way:
            below = place.get(step)
            if isinstance(below, list):  # a whole list came first, single fields refine it
                below = place[step] = dict(enumerate(below))
            elif not isinstance(below, dict):
                below = place[step] = {}
            place = below
        place[last] = _plain(fact.value)
    plain: dict[str, Any] = _lists(root)
    return plain


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


def _lists(node: Any) -> Any:
    """Dicts with number keys become lists, in order of the numbers."""
    if not isinstance(node, dict):
        return node
    if node and all(isinstance(key, int) for key in node):
        return [_lists(node[key]) for key in sorted(node)]
    return {str(key): _lists(value) for key, value in node.items()}


def _without_misfits(chosen: dict[str, Fact], message: str) -> dict[str, Fact]:
    """The facts with those under the path that msgspec complains about marked as errors."""
    match = re.search(r"at `(?:key in )?\$\.?([^`]*)`", message)
    path = (match.group(1) if match else "").replace("[...]", "")
    misfits: set[str] = set()
    # A path inside a whole list names a place in it: go up to the fact that holds the list.
    while not misfits:
        misfits = {key for key, fact in chosen.items() if fact.status == "ok" and _under(key, path)}
        assert misfits or path, message
        path = re.sub(r"(\.[^.\[]*|\[[^\]]*\]|^[^.\[]*)$", "", path)
    return {
        key: Fact(
            key=key, source=fact.source, raw=fact.raw, status="error", detail=f"does not fit: {message}"
        )
        if key in misfits
        else fact
        for key, fact in chosen.items()
    }


def _under(key: str, path: str) -> bool:
    return not path or key == path or key.startswith((f"{path}.", f"{path}["))
