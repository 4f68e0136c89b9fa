"""Files that a user hands over: DCGM's diagnostics, a saved kernel log, a log of the fabric manager. Which one it is, its
content says. Of logs only what a check goes by is kept: no names of programs, no addresses."""

import os
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from wellfed.host.amd import json_of
from wellfed.host.door import KERNEL_LOG
from wellfed.host.live import as_text, read_regular
from wellfed.host.parse import known
from wellfed.model.errors import WellfedError
from wellfed.model.fact import Fact

MAX_BYTES = 64 << 20
_RESULTS_MAX = 4096
_XIDS_KEPT = 50
_FM_LINE = re.compile(r"^\[[^\]]{6,40}\] \[(\w+)\] \[tid \d+\] (.*)$", re.MULTILINE)
_FM_SWITCH = re.compile(r"NVSwitch (fatal|non-fatal) error (\d{1,8})", re.IGNORECASE)
_XID = re.compile(r"NVRM: Xid|SXid")
_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
_NAME = re.compile(r", name=[^,]*")


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
        f"{name} is neither DCGM's JSON, nor a kernel log, nor a log of the fabric manager",
        hint="`dcgmi diag -r 1 -j > diag.json`, `sudo dmesg > dmesg.txt`",
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
    """Its errors: those of an NVSwitch by number, the others only counted."""
    lines = _FM_LINE.findall(text)
    if not lines:
        return []
    errors: Counter[tuple[str, str]] = Counter()
    for level, message in lines:
        switch = _FM_SWITCH.search(message)
        if switch:
            errors[f"NVSwitch error {switch[2]}", switch[1].lower()] += 1
        elif level in ("ERROR", "CRITICAL", "FATAL"):
            errors["other errors", "error"] += 1
    found = [
        {"tool": "fabricmanager", "test": test, "result": result, "detail": f"{count} lines"}
        for (test, result), count in errors.items()
    ]
    quiet = {"tool": "fabricmanager", "test": "log", "result": "Pass", "detail": f"{len(lines)} lines"}
    return [known("diagnostics", found[:_RESULTS_MAX] or [quiet], name)]


def _kernel_log(text: str, name: str) -> list[Fact]:
    watched = re.compile(KERNEL_LOG)
    lines = text.splitlines()
    if not any(watched.search(line) for line in lines):
        return []
    xids = [_NAME.sub("", line.strip())[:400] for line in lines if _XID.search(line)][-_XIDS_KEPT:]
    return [known("kernel.xids", xids, name, "\n".join(xids))]


_KINDS: tuple[Callable[[str, str], list[Fact]], ...] = (_dcgm, _fabric_manager, _kernel_log)
