"""Machines of every shape from a number: whole ones, and the same with facts taken away."""

import random
import types
import typing
from typing import Any

import host_cases
import msgspec

from wellfed.check.expression import OPEN_COLLECTIONS
from wellfed.model import Fact, Machine
from wellfed.model.devices import PciDevice

WORDS: dict[str, tuple[str, ...]] = {
    "hypervisor": ("none", "kvm"),
    "arch": ("x86_64", "aarch64"),
    "kind": ("none", "docker", "kubernetes"),
    "vendor": ("nvidia", "amd", "0x10de", "0x1000"),
    "name": ("NVIDIA H200", "NVIDIA A40", "Tesla T4", "NVIDIA H100 NVL", "nvme0n1", "sda", "eth0", "C1"),
    "class_code": ("0x030200", "0x068000", "0x060400", "0x020000"),
    "driver": ("nvidia", "nouveau", "525.60.13", "580.95.05"),
    "state": ("ACTIVE", "DOWN", "up"),
    "governors": ("performance", "powersave"),
    "scaling_driver": ("intel_pstate", "acpi-cpufreq"),
    "energy_preferences": ("performance", "balance_performance"),
    "idle_driver": ("intel_idle", "haltpoll"),
    "clocksource": ("tsc", "hpet", "xen"),
    "thp_enabled": ("always", "madvise", "never"),
    "thp_defrag": ("always", "madvise"),
    "iommu_types": ("identity", "DMA-FQ"),
    "active_services": ("tuned", "tlp", "irqbalance", "sshd"),
    "modules": ("nvidia", "nouveau", "nvidia_peermem"),
    "throttle": ("gpu_idle", "hw_slowdown", "sw_power_cap"),
    "fabric_state": ("completed", "in progress"),
    "fabric_status": ("success", "error"),
    "virtualization": ("none", "passthrough", "vgpu"),
    "nccl": ("2.16.2", "2.28.9", "2.29.3", "2.30.4"),
    "release": ("5.4.0", "6.8.0-45-generic"),
    "address": ("0000:01:00.0", "0000:02:00.0"),
    "capabilities": ("CAP_SYS_NICE", "CAP_CHOWN"),
    "xids": ("NVRM: Xid (PCI:0000:0f:00): 79, gone", "NVRM: Xid (PCI:0000:0f:00): 31, fault"),
    "sysctls": ("0", "1", "2", "60", "never"),
    "environment": ("0", "1", "64", "DETAIL", "Ring", "[redacted]"),
}
KEYS = {
    "sysctls": ("kernel.numa_balancing", "vm.swappiness", "vm.overcommit_memory", "net.core.busy_read", "net.core.busy_poll"),
    "environment": (
        "OMP_NUM_THREADS", "CUDA_LAUNCH_BLOCKING", "NCCL_P2P_DISABLE", "NCCL_ALGO", "GOMP_CPU_AFFINITY",
        "TORCH_DISTRIBUTED_DEBUG", "PYTHONMALLOC",
    ),
    "tools": ("numactl", "ethtool"),
    "mitigations": ("meltdown",),
    "counters": ("link_downed",),
}  # fmt: skip
for _known, _more in ((WORDS, host_cases.WORDS), (KEYS, host_cases.KEYS)):
    for _name, _values in _more.items():
        _known[_name] = (*_known.get(_name, ()), *_values)
NUMBERS = (-1, 0, 1, 2, 4, 5, 8, 10, 16, 21, 64, 100, 4096, 65536, 100_000, 1 << 30, 80 << 30)


def whole(seed: int) -> Machine:
    """A machine of which everything is known; empty collections were looked at. GPUs have addresses of their
    own, so that what NVML says of a link is never contradicted by the bus."""
    dice = random.Random(seed)
    machine: Machine = _struct(Machine, dice)
    gpus = tuple(msgspec.structs.replace(gpu, address=f"ffff:0{gpu.index}:00.0") for gpu in machine.gpus)
    machine = msgspec.structs.replace(machine, gpus=gpus)
    empty = [path for path in OPEN_COLLECTIONS if not _at(machine, path)]
    facts = {path: Fact(key=path, value=[], source="/sys") for path in sorted(empty)}
    return msgspec.structs.replace(machine, facts=facts)


def hide(machine: Machine, seed: int) -> Machine:
    """The same machine with some facts unknown."""
    dice = random.Random(seed)
    share = dice.choice((0.1, 0.3, 0.7))
    blind = _hide(machine, "", dice, share)
    seen = {path: fact for path, fact in machine.facts.items() if dice.random() > share}
    return msgspec.structs.replace(blind, facts=seen)


def _hide(node: Any, path: str, dice: random.Random, share: float) -> Any:
    if not isinstance(node, msgspec.Struct):
        return node
    hints = typing.get_type_hints(type(node))
    changes: dict[str, Any] = {}
    for name in node.__struct_fields__:
        value, place = getattr(node, name), f"{path}.{name}".lstrip(".")
        # None as the parent of a PCI device is an answer: it sits on the root bus.
        optional = type(None) in typing.get_args(hints[name]) and (type(node), name) != (PciDevice, "parent")
        gone = dice.random() < share
        if gone and optional:
            changes[name] = None
        elif place in OPEN_COLLECTIONS and isinstance(value, dict):
            changes[name] = {k: v for k, v in value.items() if dice.random() > share or name == "environment"}
            if gone:
                changes[name] = {}
        elif place in OPEN_COLLECTIONS and gone:
            changes[name] = ()
        elif isinstance(value, tuple):
            changes[name] = tuple(_hide(item, f"{place}[]", dice, share) for item in value)
        elif name not in ("facts", "gaps"):
            changes[name] = _hide(value, place, dice, share)
    return msgspec.structs.replace(node, **changes)


def _at(machine: Machine, path: str) -> Any:
    node: Any = machine
    for name in path.split("."):
        node = getattr(node, name)
    return node


def _struct(struct: type, dice: random.Random, index: int = 0) -> Any:
    hints = typing.get_type_hints(struct)
    values = {
        name: _value(hints[name], name, dice, index)
        for name in struct.__struct_fields__
        if name not in ("facts", "gaps")
    }
    return struct(**values)


def _value(annotation: Any, name: str, dice: random.Random, index: int) -> Any:
    origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return _value(next(part for part in parts if part is not type(None)), name, dice, index)
    if origin is tuple:
        return tuple(_value(parts[0], name, dice, i) for i in range(dice.choice((0, 1, 2, 3))))
    if origin is dict:
        keys = [key for key in KEYS.get(name, ("x",)) if dice.random() < 0.7]
        return {key: _value(parts[1], name, dice, 0) for key in keys}
    if annotation is bool:
        return dice.random() < 0.5
    if annotation is int:
        return index if name in ("index", "id") else dice.choice(NUMBERS)
    if annotation is float:
        return float(dice.choice(NUMBERS))
    if annotation is str:
        return dice.choice(WORDS.get(name, ("x", "none", "on", "off")))
    return _struct(annotation, dice, index)
