"""Versions with known faults."""

import re
from collections.abc import Iterable
from typing import Any

from wellfed.check.evaluate import Outcome, is_absent, value_at
from wellfed.check.expression import version, was_seen
from wellfed.check.manual import rule
from wellfed.check.table import rows
from wellfed.model import Ceiling, Machine


@rule("SW03", "known-bad-version", layer="software", severity="warning", risk="restart")
def judge_versions(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """A version in use has a known fault that costs speed or the GPU.

    What it looks at. The versions of driver, NCCL, cuDNN, PyTorch, the CUDA it is built for and FlashAttention, and the
    GPUs' names, against the dated table `check/known_bad.toml`.
    Why it costs. It depends on the fault: a GPU that stops answering, collectives many times slower.
    How it is judged. Bad when a version lies in a range of the table and the fault concerns a GPU of this
    machine. A version that is not installed is no fault.
    Remedy. upgrade to a version outside the range named
    Restore. install the old version again
    When to ignore. When the fault does not touch your work, or your package carries the fix.
    Sources. NVIDIA/open-gpu-kernel-modules#446; NVIDIA/nccl#770; awslabs/awsome-distributed-ai PR#217;
    NVIDIA/TensorRT-LLM PR#17160
    """
    table = rows("known_bad.toml").values()
    hits = [row for row in table if _concerns(machine, row) is True]
    if hits:
        return [
            Outcome(
                state="finding",
                severity=row["severity"],
                message=f"{_name(row)} {_version(machine, row)}: {row['what']} ({row['source']}, {row['seen']})",
                paths=(_field(row),),
            )
            for row in hits
        ]
    lacking = dict.fromkeys(
        _field(row) if _version(machine, row) is None else "gpus"
        for row in table
        if _concerns(machine, row) is None
    )
    if lacking:
        return [Outcome(state="unknown", lacking=tuple(lacking))]
    fields = tuple(dict.fromkeys(_field(row) for row in table))
    return [Outcome(state="pass", message="no version with a known fault", paths=fields)]


def _field(row: dict[str, Any]) -> str:
    return str(row.get("field", "software.packages"))


def _name(row: dict[str, Any]) -> str:
    return str(row["package"]) if "package" in row else _field(row).rpartition(".")[2]


def _version(machine: Machine, row: dict[str, Any]) -> str | None:
    """The version of what a row is about: a field, or a Python package."""
    if "package" not in row:
        text: str | None = value_at(machine, row["field"])
        return text
    found = machine.software.packages or ()
    return next((one.version for one in found if one.name == row["package"]), None)


def _concerns(machine: Machine, row: dict[str, Any]) -> bool | None:
    """Whether the fault of a row is this machine's; None when that cannot be told."""
    text = _version(machine, row)
    if text is None:
        if "package" in row and machine.software.packages is not None:
            return False
        return False if is_absent(machine, _field(row)) else None
    have, low, high = version(text), version(row["from"]), version(row["below"])
    assert low is not None and high is not None
    if have is None:
        return None
    if not low <= have < high:
        return False
    if "gpu" not in row:
        return True
    if not machine.gpus and was_seen(machine, "gpus"):
        return False
    names = [gpu.name for gpu in machine.gpus]
    if any(name is not None and re.search(row["gpu"], name) for name in names):
        return True
    return None if not names or None in names else False
