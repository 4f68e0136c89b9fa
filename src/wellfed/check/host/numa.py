"""NUMA checks that compare whole matrices."""

from collections.abc import Iterable

from wellfed.check.evaluate import Outcome
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine
from wellfed.model.verdict import Severity

LOCAL = 10
"""A node's distance to itself, by the ACPI specification."""


@rule("NUMA07", "fake-numa-distances", layer="numa", severity="warning")
def judge_distances(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """The NUMA distances of this machine are made up, so nothing can be placed by them.

    What it looks at. `/sys/devices/system/node/node*/distance` of every node.
    Why it costs. Launchers, NCCL and the kernel choose near CPUs and memory by these numbers. Where all are
    equal, they choose at random; where they differ by direction, they may choose otherwise than you think.
    How it is judged. With more than one node: 10 on the diagonal, more than 10 elsewhere: bad otherwise. Distances that
    differ by direction are a note: the ACPI specification allows them.
    Remedy. have the hypervisor pass a vNUMA topology with real distances; on bare metal update the firmware
    When to ignore. When one process uses the whole machine and memory is interleaved on purpose.
    Sources. open-mpi/hwloc#712; ACPI specification: System Locality Information Table (SLIT)
    """
    count = len(machine.numa)
    if count == 0:
        return [Outcome(state="unknown", lacking=("numa",))]
    if count == 1:
        return [Outcome(state="not-applicable", message="there is one NUMA node")]
    rows = [node.distances for node in machine.numa]
    paths = tuple(f"numa[{index}].distances" for index in range(count))
    wrong = _wrong(rows)
    if wrong:
        severity: Severity = "info" if "one way" in wrong else "warning"
        return [Outcome(state="finding", severity=severity, message=wrong, paths=paths)]
    lacking = tuple(path for path, row in zip(paths, rows, strict=True) if row is None or len(row) != count)
    if lacking:
        return [Outcome(state="unknown", paths=paths, lacking=lacking)]
    return [Outcome(state="pass", message=f"distances of {count} nodes are plausible", paths=paths)]


def _wrong(rows: list[tuple[int, ...] | None]) -> str | None:
    """What is wrong with the known part of the matrix."""
    known = {
        (a, b): distance for a, row in enumerate(rows) if row is not None for b, distance in enumerate(row)
    }
    for (a, b), distance in known.items():
        if a == b and distance != LOCAL:
            return f"node {a} is {distance} away from itself, not {LOCAL}"
        if a != b and distance <= LOCAL:
            return f"nodes {a} and {b} are {distance} apart, which is no distance"
        if known.get((b, a), distance) != distance:
            return f"nodes {a} and {b} are {distance} apart one way and {known[b, a]} the other"
    return None
