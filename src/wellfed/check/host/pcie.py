"""PCIe checks that need thought."""

from collections.abc import Iterable

from wellfed.check.evaluate import Outcome, no_items
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine
from wellfed.model.devices import Gpu, PciDevice
from wellfed.model.verdict import Severity

WIRED_X8 = ("Tesla T4", "NVIDIA A10G")
"""GPUs that clouds are known to wire with 8 of their 16 lanes (aws-k8s-tester#806)."""

BUSY_PCT = 50
"""Utilisation from which a link has to be at full speed: idle GPUs lower it to save power."""


@rule("PCIE01", "gpu-link-degraded", layer="pcie", severity="error", risk="reboot", blocks=("GPU24",))
def judge_links(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """A GPU's PCIe link has fewer lanes or a lower generation than GPU and slot can do.

    What it looks at. Width and generation of each GPU's link, now and at most (NVML; without it sysfs, where
    the port above counts too), and how busy the GPU is.
    Why it costs. Every copy between host and GPU, and GPUDirect over the network, goes through this link:
    x8 instead of x16, or Gen4 instead of Gen5, is half the bandwidth.
    How it is judged. Fewer lanes than possible is always bad (error). A lower generation is bad only under
    load (utilisation from 50 %), a warning: an idle GPU lowers it by itself, and then the speed is not judged.
    Some machines wire x8 on purpose: for T4 and A10G, where clouds are known to, x8 is a note; elsewhere the
    finding stays and wants an ignore.
    What is known of the gain. In proportion to the lanes, on the share of the step that waits for copies.
    Remedy. reseat the GPU or its riser, check the retimers and the slot's setting in the firmware
    Restore. nothing to undo
    When to ignore. When the board gives this slot fewer lanes by design.
    Sources. Azure/azurehpc-health-checks: check_gpu_bw 48 GB/s on H100@0e0a1ac; aws-k8s-tester#806
    """
    return no_items(machine, "gpus") or [
        _judge(machine, index, gpu) for index, gpu in enumerate(machine.gpus)
    ]


def _judge(machine: Machine, index: int, gpu: Gpu) -> Outcome:
    place = f"gpus[{index}]"
    item = ("gpus", index)
    paths = tuple(
        f"{place}.{name}"
        for name in ("pcie_width", "pcie_width_max", "pcie_gen", "pcie_gen_max", "utilization_pct")
    )
    width, best = gpu.pcie_width, gpu.pcie_width_max
    if width is None or best is None:
        width, best, paths = _from_bus(machine, gpu, paths)
    if width is None or not best or best < 0:  # no slot has 0 lanes: that is a driver that does not know
        return Outcome(state="unknown", item=item, paths=paths, lacking=paths[:2])
    if width < best:
        message = f"the link runs x{width} of x{best}: {100 * width // best} % of the bandwidth"
        by_design = width == 8 and gpu.name in WIRED_X8
        if by_design:
            message += " (some clouds wire this GPU so)"
        severity: Severity = "info" if by_design else "error"
        return Outcome(state="finding", severity=severity, item=item, message=message, paths=paths)
    return _judge_speed(gpu, item, width, paths)


def _judge_speed(gpu: Gpu, item: tuple[str, int], width: int, paths: tuple[str, ...]) -> Outcome:
    now, best, busy = gpu.pcie_gen, gpu.pcie_gen_max, gpu.utilization_pct
    if now is None or best is None:
        return Outcome(state="unknown", item=item, paths=paths, lacking=paths[2:4])
    if now >= best:
        return Outcome(state="pass", item=item, paths=paths, message=f"Gen{now} x{width}, all that it can do")
    if busy is None:
        return Outcome(state="unknown", item=item, paths=paths, lacking=paths[4:])
    if busy >= BUSY_PCT:
        message = f"the link runs Gen{now} of Gen{best} at {busy} % utilisation"
        return Outcome(state="finding", severity="warning", item=item, message=message, paths=paths)
    message = (
        f"all x{width} lanes are there; Gen{now} of Gen{best} while idle says nothing, look again under load"
    )
    return Outcome(state="unknown", reason="idle", item=item, message=message, paths=paths)


def _from_bus(
    machine: Machine, gpu: Gpu, paths: tuple[str, ...]
) -> tuple[int | None, int | None, tuple[str, ...]]:
    """Width now, and what both ends of the link can do, as sysfs has it."""
    devices = {device.address: (index, device) for index, device in enumerate(machine.pci)}
    if gpu.address not in devices:
        return None, None, paths
    index, device = devices[gpu.address]
    above = devices.get(device.parent or "", (0, None))[1]
    return device.width, _least(device, above), (f"pci[{index}].width", f"pci[{index}].width_max", *paths[2:])


def _least(device: PciDevice, above: PciDevice | None) -> int | None:
    """None when either end is unknown. A device without a port above (a virtual machine) counts alone."""
    if above is None:
        return device.width_max if device.parent is None else None
    if device.width_max is None or above.width_max is None:
        return None
    return min(device.width_max, above.width_max)
