"""GPU checks that need thought: the kernel's log, and copies that were measured."""

import re
from collections.abc import Iterable

from wellfed.check.evaluate import Outcome, no_items
from wellfed.check.manual import rule
from wellfed.check.table import rows
from wellfed.model import Ceiling, Machine
from wellfed.model.devices import Gpu
from wellfed.model.verdict import SEVERITY_ORDER

_XID = re.compile(r"\bXid\s*(?:\([^)]*\))?\s*:\s*(\d+)")

_LINES_KEPT = 50
"""Of a longer log the readers keep as many lines: each number is among them, not how often."""

GBPS_PER_LANE = {4: 22 / 16, 5: 48 / 16}
"""PCIe generation -> GB/s of a large pinned copy that each lane must bring. 48 GB/s on Gen5 x16 is the limit
of azurehpc's conf for H100 machines, 22 on Gen4 x16 the lower end of facts/host_checks.csv."""
C2C_GBPS = 300.0


@rule("GPU12", "gpu-errors-logged", layer="gpu", severity="error", risk="unsafe", blocks=("GPU01",))
def judge_xids(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """The driver has logged GPU errors (Xid) since boot.

    What it looks at. Lines `NVRM: Xid` of the kernel's log, which often only root may read.
    Why it costs. Most of these end the job on that GPU, and some leave it slow or gone until a reset.
    How it is judged. Bad when an Xid of the list was logged: 48 56 57 58 62 63 64 65 68 69 73 74 79 80 81 92
    94 95 119 120 154. Fallen off the bus (79), lost ECC (48, 64, 95), NVLink (74), halted firmware (62, 119,
    120) are errors, the others warnings. Other numbers (13, 31, 43, 45) are mostly faults of a program and pass.
    Remedy. look up the number in NVIDIA's Xid catalogue; as a rule drain the node and reset the GPU, replace it
    when the error comes back
    Restore. nothing to undo
    When to ignore. When the cause was cured without a reboot: the log keeps the old lines.
    Sources. Azure/azurehpc-health-checks: azure_gpu_xid.nhc@0e0a1ac; leptonai/gpud: xid@4a8de33;
    docs.nvidia.com/deploy/xid-errors
    """
    nothing, lines = no_items(machine, "gpus"), machine.kernel.xids
    if lines is None:
        return nothing or [Outcome(state="unknown", lacking=("kernel.xids",))]
    table = rows("xids.toml")
    found: dict[str, int] = {}
    for line in lines:
        match = _XID.search(line)
        if match and match.group(1) in table:
            found[match.group(1)] = found.get(match.group(1), 0) + 1
    if not found and nothing:
        return nothing  # but an error of a GPU that is no longer listed is a finding
    if not found:
        said = f"{len(lines)} lines, none of a faulty GPU" if lines else "no GPU error was logged since boot"
        return [Outcome(state="pass", message=said, paths=("kernel.xids",))]
    worst = max((table[number]["severity"] for number in found), key=SEVERITY_ORDER.__getitem__)
    least = "at least " if len(lines) >= _LINES_KEPT else ""
    parts = (f"Xid {number} {table[number]['what']} ({least}{count}x)" for number, count in found.items())
    message = "; ".join(parts)
    return [Outcome(state="finding", severity=worst, message=message, paths=("kernel.xids",))]


@rule("GPU24", "copy-below-link", layer="gpu", severity="warning")
def judge_copies(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """Copies between host and GPU are slower than the link allows.

    What it looks at. The measured bandwidth of large pinned copies, both ways, against the generation and the
    width that GPU and slot can do.
    Why it costs. Batches, offloaded weights and checkpoints all pass here; it is also the proof of what a
    degraded link, a far NUMA node or an IOMMU really costs.
    How it is judged. At least 48 GB/s on Gen5 x16 and 22 GB/s on Gen4 x16, in proportion on fewer lanes;
    300 GB/s on C2C (GH200, GB200). Other generations have no published limit and are not judged; nor is a
    measurement that was noisy. Without a measurement: not judged.
    What is known of the gain. At most the measured against the expected bandwidth, on the time spent in copies.
    Remedy. cure the cause named with it (PCIE01, NUMA01, PCIE05); else pin the process to CPUs near the GPU
    When to ignore. When the work hardly copies.
    Sources. Azure/azurehpc-health-checks: conf/nd96isr_h100_v5.conf@0e0a1ac; pytorch/torchtitan#3519;
    NVIDIA/nvbandwidth#53
    """
    nothing = no_items(machine, "gpus")
    if nothing:
        return nothing
    outcomes = [outcome for ceiling in ceilings if (outcome := _judge_copy(machine, ceiling)) is not None]
    unmeasured = "no copy to or from a GPU was measured"
    return outcomes or [Outcome(state="unknown", reason="not-measured", message=unmeasured)]


def _judge_copy(machine: Machine, ceiling: Ceiling) -> Outcome | None:
    """None for a ceiling that is no pinned copy between host and a GPU of this machine."""
    if not re.search(r"h2d|d2h", ceiling.id) or "pageable" in ceiling.id or ceiling.unit != "GB/s":
        return None
    index = ceiling.environment.get("gpu", 0 if len(machine.gpus) == 1 else None)
    if not isinstance(index, int) or not 0 <= index < len(machine.gpus):
        return None
    gpu = machine.gpus[index]
    item = ("gpus", index)
    paths = tuple(f"gpus[{index}].{name}" for name in ("pcie_gen_max", "pcie_width_max", "c2c"))
    if ceiling.verdict == "noisy":
        message = f"{ceiling.title}: {ceiling.why or 'the measurement was noisy'}"
        return Outcome(state="unknown", reason="noisy", item=item, message=message, paths=paths)
    expected = _expected(gpu)
    if expected is None:
        lacking = paths if gpu.pcie_gen_max is None or gpu.pcie_width_max is None else ()
        message = "" if lacking else f"no limit is published for Gen{gpu.pcie_gen_max}"
        return Outcome(state="unknown", item=item, message=message, paths=paths, lacking=lacking)
    said = f"{ceiling.title} {ceiling.best:.1f} GB/s, at least {expected:.0f} expected"
    if ceiling.best >= expected:
        return Outcome(state="pass", item=item, message=said, paths=paths)
    return Outcome(state="finding", severity="warning", item=item, message=said, paths=paths)


def _expected(gpu: Gpu) -> float | None:
    """GB/s that a large pinned copy must reach, None when it cannot be told."""
    if gpu.c2c:
        return C2C_GBPS
    if gpu.pcie_gen_max is None or gpu.pcie_width_max is None:
        return None
    lane = GBPS_PER_LANE.get(gpu.pcie_gen_max)
    return None if lane is None else lane * gpu.pcie_width_max
