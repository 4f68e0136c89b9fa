"""Files that a user hands over: DCGM's diagnostics, a saved log, a log of the fabric manager, what nvidia-smi printed. Which
one it is, its content says. Of logs only what a check goes by is kept: no names of programs, no addresses."""

import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from wellfed.host.amd import json_of
from wellfed.host.fabric_log import results_of
from wellfed.host.forms.logs import read_log
from wellfed.host.forms.smi_text import read_links, read_query
from wellfed.host.live import as_text, read_regular
from wellfed.host.parse import known
from wellfed.model.base import replace
from wellfed.model.errors import WellfedError
from wellfed.model.fact import Fact
from wellfed.model.machine import Machine

MAX_BYTES = 64 << 20
_RESULTS_MAX = 4096
_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_GPU_KEY = re.compile(r"gpus\[([^\]]+)\]\.(\w+)$")
_UUID = re.compile(r"GPU-[0-9a-f-]{36}")


def facts_of(path: "str | os.PathLike[str]") -> list[Fact]:
    """The facts of one file. Raises WellfedError for a file that cannot be read or is none of the kinds known."""
    name = os.fspath(path)
    try:
        data, cut = read_regular(name, MAX_BYTES)
    except OSError as error:
        raise WellfedError(f"{name}: {error.strerror}", hint="give a file that you can read") from error
    if cut:
        raise WellfedError(f"{name} is larger than 64 MiB", hint="cut it to the lines since the last boot")
    text = as_text(data)
    for read in _KINDS:
        facts = read(text, name)
        if facts:
            return facts
    raise WellfedError(
        f"{name} is neither DCGM's JSON, nor a kernel log, nor a log of the fabric manager, nor an answer of nvidia-smi",
        hint="`dcgmi diag -r 1 -j > diag.json`, `sudo dmesg > dmesg.txt`, `nvidia-smi -q > smi.txt`",
    )


def _dcgm(text: str, name: str) -> list[Fact]:
    """`dcgmi diag -j`: DCGM 2 and 3 number GPUs in `gpu_ids`, 4 in `entity_id`; a summary may stand beside them."""
    document = json_of(text)
    root: Any = document if isinstance(document, dict) else {}
    for key in _ROOTS:
        root = root.get(key, root) if isinstance(root.get(key), dict) else root
    categories = _list(root.get("test_categories"))
    tests = [test for category in categories for test in _list(_of(category, "tests"))] + _list(
        root.get("tests")
    )
    said = f"DCGM {_word(root.get('version'))}, driver {_word(root.get('Driver Version Detected'))}"
    found = [_result(test, result, said) for test in tests for result in _list(_of(test, "results"))]
    results = [one for one in found if one][:_RESULTS_MAX]
    return [known("diagnostics", results, name)] if results else []


def _result(test: Any, result: Any, said: str) -> dict[str, Any] | None:
    title, status = _of(test, "name"), _of(result, "status")
    if not isinstance(title, str) or not isinstance(status, str):
        return None
    number = str(_of(result, "gpu_ids") if _of(result, "gpu_ids") is not None else _of(result, "entity_id"))
    gpu = int(number) if re.fullmatch(r"[0-9]{1,3}", number) else None
    return {"tool": "dcgm", "test": title[:60], "gpu": gpu, "result": status[:40], "detail": said}


def _of(node: Any, key: str) -> Any:
    return node.get(key) if isinstance(node, dict) else None


def _list(node: Any) -> list[Any]:
    return node if isinstance(node, list) else []


def _word(value: Any) -> str:
    return value[:40] if isinstance(value, str) else "unknown"


def _fabric_manager(text: str, name: str) -> list[Fact]:
    results = results_of(text)
    return [known("diagnostics", results, name)] if results else []


def placed(machine: Machine, facts: Iterable[Fact]) -> list[Fact]:
    """With GPUs that the files name by address, or by UUID and number, at their place in the machine; in the files' order where
    the machine has none. Those that it does not see (a container's) are left out. Raises WellfedError when it sees none
    of a file's: the file is another machine's."""
    found, met, strange = [], set[str](), dict[str, str]()
    fresh: dict[str, int] = {}
    for fact in facts:
        match = _GPU_KEY.match(fact.key)
        if not match:
            found.append(fact)
            continue
        name = match[1]
        at = _place(machine, name) if machine.gpus else fresh.setdefault(name, len(fresh))
        if at is None:
            strange[fact.source] = name.partition("/")[0]
        else:
            met.add(fact.source)
            found.append(replace(fact, key=f"gpus[{at}].{match[2]}"))
    for source, name in strange.items():
        if source not in met:
            raise WellfedError(
                f"{source} tells of a GPU {name}, which this machine has not",
                hint="give files of the machine that is judged",
            )
    for name, at in fresh.items():
        field = "uuid" if name.startswith("GPU-") else "address"
        told = {"index": at, field: name.partition("/")[0], "vendor": "nvidia"}
        found += [known(f"gpus[{at}].{key}", value, "nvidia-smi") for key, value in told.items()]
    return found


def _place(machine: Machine, name: str) -> int | None:
    """Where a GPU stands. By its number only where the machine's own UUIDs are not known, as in a redacted recording."""
    uuid, _, number = name.partition("/")
    for at, gpu in enumerate(machine.gpus):
        if uuid in (gpu.uuid, gpu.address):
            return at
    if not number or any(_UUID.fullmatch(gpu.uuid or "") for gpu in machine.gpus):
        return None
    return next((at for at, gpu in enumerate(machine.gpus) if gpu.index == int(number)), None)


def together(machine: Machine, facts: Iterable[Fact]) -> list[Fact]:
    """One fact a key. Results of several files stand together, beside those that the machine told itself; of counts the
    largest stands, since logs overlap, also beside the machine's own."""
    joined: dict[str, Fact] = {}
    for fact in facts:
        held = joined.get(fact.key) or (machine.facts.get(fact.key) if fact.key == "diagnostics" else None)
        if isinstance(fact.value, list) and held is not None and not fact.key.startswith("gpus["):
            fact = replace(fact, value=[*held.value, *fact.value])
        elif fact.key.startswith("kernel.events["):
            own = machine.facts.get(fact.key)
            counts = [one.value for one in (held, own) if one is not None and one.status == "ok"]
            fact = replace(fact, value=max(fact.value, *counts)) if counts else fact
        joined[fact.key] = fact
    return list(joined.values())


_KINDS: tuple[Callable[[str, str], list[Fact]], ...] = (
    _dcgm,
    _fabric_manager,
    read_query,
    read_links,
    read_log,
)
