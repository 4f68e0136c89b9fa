"""Driver checks that read why something could not be seen."""

import re
from collections.abc import Iterable

from wellfed.check.evaluate import Outcome
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine

_MISMATCH = re.compile(r"LibRmVersionMismatch|[Dd]river/library version mismatch")
_NOT_LOADED = re.compile(r"DriverNotLoaded|couldn't communicate with the NVIDIA driver")


@rule(
    "DRV01",
    "driver-not-working",
    layer="driver",
    severity="error",
    trust="verified",
    risk="reboot",
    reversible="driver-reload",
    blocks=("GPU01",),
)
def judge_driver(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """There is an NVIDIA GPU, but its driver does not answer.

    What it looks at. What NVML or `nvidia-smi` answers when asked for the GPUs.
    Why it costs. Nothing runs on the GPU.
    How it is judged. Bad when the library and the loaded kernel module have different versions (an upgrade
    without a reboot), or when the module is not loaded although the bus shows an NVIDIA GPU.
    Remedy. reboot; or stop everything that uses the GPU, `sudo rmmod nvidia_uvm nvidia_drm nvidia_modeset nvidia`
    and `sudo modprobe nvidia`. In a container: start the container anew
    Restore. nothing to undo
    When to ignore. On a machine whose GPU is meant for others (a display, virtual machines).
    Sources. NixOS/nixpkgs#138943; NVIDIA/nvidia-docker#365
    """
    gap = machine.gaps.get("gpus", "")
    paths = ("gpus", "software.driver")
    if _MISMATCH.search(gap):
        message = "driver and library have different versions: the driver was upgraded and not reloaded"
        return [Outcome(state="finding", severity="error", message=message, paths=paths)]
    nvidia = [gpu for gpu in machine.gpus if gpu.vendor == "nvidia"]
    on_bus = any(device.vendor == "0x10de" for device in machine.pci)
    if _NOT_LOADED.search(gap) and (nvidia or on_bus):
        message = "the bus shows an NVIDIA GPU and the driver is not loaded"
        return [Outcome(state="finding", severity="error", message=message, paths=paths)]
    if any(gpu.driver for gpu in nvidia):
        return [Outcome(state="pass", message=f"driver {nvidia[0].driver} answers", paths=paths)]
    if nvidia or on_bus or gap or "gpus" not in machine.facts:
        return [Outcome(state="unknown", lacking=("gpus",))]
    return [Outcome(state="not-applicable", message="no NVIDIA GPU was found on this machine")]
