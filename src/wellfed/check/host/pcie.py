"""PCIe checks that need thought."""

import re
from collections.abc import Iterable

from wellfed.check.evaluate import Outcome, no_items
from wellfed.check.expression import was_seen
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine
from wellfed.model.devices import Gpu, PciDevice
from wellfed.model.verdict import Severity

WIRED_X8 = ("Tesla T4", "NVIDIA A10G")
"""GPUs that clouds are known to wire with 8 of their 16 lanes (aws-k8s-tester#806)."""

_FULL_WIDTH = re.compile(r"A100|A800|H100|H800|H200|H20$|B100|B200|B300|MI2[0-9][0-9]|MI3[0-9][0-9]")
"""GPUs that no server wires with fewer than 16 lanes, as `full_bar_gpu` of terms.toml has them."""

BUSY_PCT = 50
"""Utilisation from which a link has to be at full speed: idle GPUs lower it to save power."""


@rule("PCIE01", "gpu-link-degraded", layer="pcie", severity="error", risk="reboot", blocks=("GPU24",))
def judge_links(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """A GPU's PCIe link has fewer lanes or a lower generation than GPU and slot can do.

    What it looks at. Width and generation of each GPU's link, now and at most (NVML; without it sysfs, where
    the port above counts too), and how busy the GPU is.
    Why it costs. Every copy between host and GPU, and GPUDirect over the network, goes through this link:
    x8 instead of x16, or Gen4 instead of Gen5, is half the bandwidth.
    How it is judged. Fewer lanes than possible is bad: an error for data-centre GPUs (A100, H100, MI200 and later), and
    for others when it is a quarter or less; half the lanes of another board is a warning, since workstations have such
    slots, and a note when the port above has no more. A lower generation is bad only under
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
        severity, why = _how_bad(machine, gpu, width, best)
        message = f"the link runs x{width} of x{best}: {100 * width // best} % of the bandwidth{why}"
        return Outcome(state="finding", severity=severity, item=item, message=message, paths=paths)
    return _judge_speed(gpu, item, width, paths)


def _how_bad(machine: Machine, gpu: Gpu, width: int, best: int) -> tuple[Severity, str]:
    """Severity of lost lanes, and what is known of their reason."""
    devices = {device.address: device for device in machine.pci}
    device = devices.get(gpu.address or "")
    port = devices.get(device.parent or "") if device else None
    if port is not None and port.width_max == width:
        return "info", f" (the port above has x{width} only)"
    if width == 8 and gpu.name in WIRED_X8:
        return "info", " (some clouds wire this GPU so)"
    if best == 2 * width and gpu.name is not None and not _FULL_WIDTH.search(gpu.name):
        return "warning", ""  # boards for workstations are put into slots of 8 lanes
    return "error", ""


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


SWITCHED = ("PIX", "PXB")
ONE_NODE = ("PIX", "PXB", "PHB", "NODE")
"""Kinds of `nvidia-smi topo -m`: through PCIe switches only; within one NUMA node."""


@rule("PCIE10", "gpu-without-near-nic", layer="pcie", severity="info", intents=("training",))
def judge_near_nics(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """A GPU has no RDMA adapter near it while others have.

    What it looks at. Pairs of a GPU and a network adapter in `nvidia-smi topo -m`.
    Why it costs. Data that leaves this GPU crosses the host bridge or the other socket first, and GPUDirect
    RDMA is slow or not used at all; the job goes at the pace of this rank.
    How it is judged. With two GPUs and two RDMA ports or more, outside virtual machines (see PCIE11). Where
    some pair shares a PCIe switch (PIX, PXB) every GPU should have such an adapter; where none does, one on
    its own NUMA node. A note otherwise.
    Remedy. give the far GPU to work that stays on the machine, or pair ranks and adapters with `NCCL_IB_HCA`; moving the adapter to a slot below the GPU's switch cures it
    Restore. unset the variable
    When to ignore. When jobs stay on one machine.
    Sources. NVIDIA nvidia-smi topo legend; Azure/azhpc-images: ndv5-topo.xml
    """
    if intent != "training":
        return [Outcome(state="intent", message=f"matters for training; this machine is judged for {intent}")]
    virtual = machine.cpu.hypervisor
    if virtual not in (None, "none"):
        return [Outcome(state="not-applicable", message="a virtual machine shows no real tree (see PCIE11)")]
    unseen = [path for path in ("gpus", "rdma", "links") if _unseen(machine, path)]
    if virtual is None or unseen:
        lacking = (*unseen, *(("cpu.hypervisor",) if virtual is None else ()))
        return [Outcome(state="unknown", lacking=tuple(lacking))]
    if len(machine.gpus) < 2 or len(machine.rdma) < 2:
        return [Outcome(state="not-applicable", message="there are no two GPUs with two RDMA ports")]
    near: dict[str, set[str]] = {}
    for link in machine.links:
        if link.a.startswith("gpu") and not link.b.startswith("gpu"):
            near.setdefault(link.a, set()).add(link.kind)
    if not near:
        return [Outcome(state="not-applicable", message="no pair of a GPU and a network adapter is listed")]
    switched = any(kinds.intersection(SWITCHED) for kinds in near.values())
    return [
        _judge_near(index, near.get(f"gpu{gpu.index}", set()), SWITCHED if switched else ONE_NODE)
        for index, gpu in enumerate(machine.gpus)
    ]


def _unseen(machine: Machine, collection: str) -> bool:
    return not getattr(machine, collection) and not was_seen(machine, collection)


def _judge_near(index: int, kinds: set[str], wanted: tuple[str, ...]) -> Outcome:
    item = ("gpus", index)
    paths = ("links", "rdma")
    if not kinds:
        return Outcome(state="unknown", item=item, paths=paths, lacking=("links",))
    best = next((kind for kind in (*ONE_NODE, "SYS") if kind in kinds), min(kinds))
    if best in wanted:
        return Outcome(state="pass", item=item, paths=paths, message=f"the nearest adapter is at {best}")
    message = f"the nearest RDMA adapter is at {best}, not at {' or '.join(wanted)}"
    return Outcome(state="finding", severity="info", item=item, paths=paths, message=message)


SHARED_AT_MOST = 2
"""GPUs' worth of bandwidth on one uplink that HGX boards and common servers have by design."""

_GPU_CLASS = ("0x03", "0x12")
_GPU_VENDORS = ("0x10de", "0x1002")


@rule(
    "PCIE13",
    "uplink-shared",
    layer="pcie",
    severity="info",
    trust="measured",
    intents=("training", "throughput"),
)
def judge_uplinks(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """Several GPUs hang on one PCIe link to the CPU.

    What it looks at. The tree of PCIe bridges above the GPUs, and lanes and speed of each link.
    Why it costs. Copies that several ranks make at the same time, as at the start of every step, share the
    uplink: with four GPUs on one of their own width each gets a quarter.
    How it is judged. By geometry: the sum of the GPUs' links below a bridge against the bridge's own. Up to
    twice is usual and passes; beyond is a note. Not in virtual machines, whose tree is not the real one.
    What is known of the gain. In proportion, while all copy at once; nothing otherwise.
    Remedy. spread ranks that load much from the host over the branches of the tree, or let them take turns
    Restore. nothing to undo
    When to ignore. When data reaches the GPUs another way, or little of it.
    Sources. PCI Express Base Specification: a link's bandwidth is its lanes times its rate
    """
    if intent not in ("training", "throughput"):
        said = f"matters for training or throughput; this machine is judged for {intent}"
        return [Outcome(state="intent", message=said)]
    virtual = machine.cpu.hypervisor
    if virtual not in (None, "none"):
        return [Outcome(state="not-applicable", message="the tree of a virtual machine is not the real one")]
    if virtual is None or _unseen(machine, "pci"):
        lacking = ("cpu.hypervisor",) if virtual is None else ("pci",)
        return [Outcome(state="unknown", lacking=lacking)]
    dim = tuple(
        f"pci[{index}].{name}"
        for index, device in enumerate(machine.pci)
        for name in ("class_code", "vendor")
        if getattr(device, name) is None
    )
    if dim:
        return [Outcome(state="unknown", paths=("pci",), lacking=dim[:4])]
    below = _gpus_below(machine)
    if not below:
        return [Outcome(state="not-applicable", message="no GPU hangs below a PCIe bridge here")]
    return [_judge_uplink(machine, bridge, gpus) for bridge, gpus in below.items()]


def _gpus_below(machine: Machine) -> dict[int, list[int]]:
    """Place of each bridge -> places of the GPUs below it."""
    places = {device.address: index for index, device in enumerate(machine.pci)}
    below: dict[int, list[int]] = {}
    for index, device in enumerate(machine.pci):
        if not (device.class_code or "").startswith(_GPU_CLASS) or device.vendor not in _GPU_VENDORS:
            continue
        above, met = device.parent, {index}
        while above in places and places[above] not in met:
            place = places[above]
            met.add(place)
            below.setdefault(place, []).append(index)
            above = machine.pci[place].parent
    return below


def _judge_uplink(machine: Machine, bridge: int, gpus: list[int]) -> Outcome:
    item = ("pci", bridge)
    ends = [(f"pci[{place}]", machine.pci[place]) for place in (bridge, *gpus)]
    paths = tuple(f"{path}.{name}" for path, _ in ends[:4] for name in ("width_max", "speed_max_gts"))
    rates = [
        device.width_max * device.speed_max_gts
        for _, device in ends
        if device.width_max is not None and device.speed_max_gts is not None
    ]
    if len(rates) < len(ends):
        lacking = tuple(
            f"{path}.{name}"
            for path, device in ends
            for name in ("width_max", "speed_max_gts")
            if getattr(device, name) is None
        )
        return Outcome(state="unknown", item=item, paths=paths, lacking=lacking)
    up = rates[0]
    # A GPU below a narrower slot can only ask for what the slot gives, and a chain never for more than its end.
    asked = sum(min(rate, up) for rate in rates[1:])
    if up <= 0 or asked <= SHARED_AT_MOST * up:
        return Outcome(state="pass", item=item, paths=paths, message=f"{len(gpus)} GPUs share it at most")
    message = f"{len(gpus)} GPUs share one link: all at once each gets {100 * up / asked:.0f} % of its own"
    return Outcome(state="finding", severity="info", item=item, paths=paths, message=message)


ENOUGH_PAYLOAD = 256
"""Bytes of a packet's payload from which the header, some 24 bytes, takes less than a tenth."""


@rule("PCIE04", "payload-mismatch", layer="pcie", severity="info", trust="verified", risk="reboot")
def judge_payloads(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """Packets on a GPU's or adapter's PCIe link are smaller than they could be, or not as large as its port's.

    What it looks at. MaxPayload of the device, of the port above it and of all bridges up to the root: what they can,
    and what is set (`lspci -vvv`, shown to root only).
    Why it costs. Each packet carries a header of about 24 bytes: with 128 bytes of payload 84 % of the link is data,
    with 256 91 %, with 512 96 %. Ends that differ may lose packets.
    How it is judged. A note when device and port differ, or when fewer than 256 bytes are set where the whole way can
    take more. More than 256 is not asked for. GPUs of NVIDIA beside an Arm CPU are left out, for they may hang on
    NVLink-C2C, and so are virtual machines and virtual functions.
    What is known of the gain. Up to 8 % of the link's bandwidth, from 128 to 256 bytes.
    Remedy. add `pci=pcie_bus_perf` to the kernel's command line and reboot
    Restore. take it out again and reboot
    When to ignore. When copies reach the link's rate (GPU24).
    Sources. Linux: drivers/pci/probe.c (pcie_bus_config: MPS and MRRS for best performance); PCI Express Base Specification: transaction layer packets
    """
    virtual = machine.cpu.hypervisor
    if virtual not in (None, "none"):
        message = "a virtual machine shows registers that its host makes up"
        return [Outcome(state="not-applicable", message=message)]
    if virtual is None or _unseen(machine, "pci"):
        return [Outcome(state="unknown", lacking=("cpu.hypervisor",) if virtual is None else ("pci",))]
    outcomes = [_judge_payload(machine, index) for index in range(len(machine.pci))]
    judged = [one for one in outcomes if one is not None]
    on_bus = [_is_gpu(device) for device in machine.pci]
    if judged and True not in on_bus:  # without a GPU nobody asks for the registers
        if None in on_bus:
            return [Outcome(state="unknown", lacking=(f"pci[{on_bus.index(None)}].class_code",))]
        judged = []
    return judged or [Outcome(state="not-applicable", message="no GPU hangs on a PCIe link of this machine")]


def _is_gpu(device: PciDevice) -> bool | None:
    return None if device.class_code is None else device.class_code.startswith(_GPU_CLASS)


def _judge_payload(machine: Machine, index: int) -> Outcome | None:
    """None for what is no GPU or adapter with a link of its own."""
    device, item = machine.pci[index], ("pci", index)
    is_gpu = _is_gpu(device)
    if is_gpu is False and not (device.class_code or "").startswith("0x02"):
        return None
    if device.is_virtual or (
        is_gpu and device.vendor == "0x10de" and machine.cpu.arch not in (None, "x86_64")
    ):
        return None
    paths = tuple(f"pci[{index}].{name}" for name in ("max_payload", "max_payload_capable"))
    kind = {"class_code": device.class_code, "is_virtual": device.is_virtual}
    if is_gpu:
        kind["vendor"] = device.vendor
    dim = tuple(f"pci[{index}].{name}" for name, value in kind.items() if value is None)
    if is_gpu and device.vendor == "0x10de" and machine.cpu.arch is None:
        dim += ("cpu.arch",)
    if dim:
        return Outcome(state="unknown", item=item, paths=paths, lacking=dim)
    way = _way_up(machine, index)
    ends = [(f"pci[{place}]", machine.pci[place]) for place in way]
    able = [(f"{path}.max_payload_capable", end.max_payload_capable) for path, end in ends]
    used = [(f"{path}.max_payload", end.max_payload) for path, end in ends[:2]]
    paths = tuple(path for path, _ in (*used, *able))
    lacking = tuple(path for path, value in (*used, *able) if value is None)
    if lacking:
        return Outcome(state="unknown", item=item, paths=paths, lacking=lacking)
    own, most = used[0][1] or 0, min(value or 0 for _, value in able)
    if len(used) > 1 and used[1][1] != own:
        message = f"packets of {own} bytes, its port's are of {used[1][1]}"
        return Outcome(state="finding", severity="info", item=item, paths=paths, message=message)
    if own < min(ENOUGH_PAYLOAD, most):
        message = f"packets of {own} bytes where the way to the CPU can take {most}"
        return Outcome(state="finding", severity="info", item=item, paths=paths, message=message)
    return Outcome(state="pass", item=item, paths=paths, message=f"packets of {own} bytes")


def _way_up(machine: Machine, index: int) -> list[int]:
    """Places of a device and of the bridges above it, up to the root."""
    places = {device.address: place for place, device in enumerate(machine.pci)}
    way = [index]
    while (above := places.get(machine.pci[way[-1]].parent or "")) is not None and above not in way:
        way.append(above)
    return way


BRIDGE_CLASS = "0x0604"
_PEER_CLASSES = ("0x03", "0x12", "0x02", "0x0108")
_DISPLAYS_OF_SERVERS = ("0x1a03", "0x102b", "0x19e5")
"""ASPEED, Matrox and Huawei: displays of management controllers, on which nobody computes."""


@rule(
    "PCIE05",
    "acs-redirects-peers",
    layer="pcie",
    severity="warning",
    trust="read",
    risk="unsafe",
    reversible="live",
    blocks=("GPU24",),
)
def judge_redirects(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """PCIe bridges send traffic between GPUs up to the root complex and back.

    What it looks at. The ACS control bits ReqRedir, CmpltRedir and UpstreamFwd of the bridges above GPUs, network
    adapters and NVMe disks (`lspci -vvv`, which shows them to root only).
    Why it costs. With redirection a packet from one GPU to its neighbour climbs to the root complex and comes back:
    less bandwidth, or GPUDirect is refused.
    How it is judged. Bad when any of the three bits is set on a bridge with such a device below it. Bridges above
    NVSwitches or the display of the management controller alone are not judged, nor are virtual machines and machines
    where no peers exist.
    What is known of the gain. No figure for bare metal is published; UCX since PR#11412 avoids GPUDirect RDMA where ACS
    is on.
    Remedy. `sudo setpci -s ADDRESS ECAP_ACS+6.w=0` for each bridge named, or `pci=disable_acs_redir=...` on the kernel
    command line
    Restore. write the old word back with setpci; a reset or a reboot brings it back as well
    When to ignore. When devices are given to virtual machines or untrusted users: ACS is what isolates them.
    Sources. openucx/ucx PR#11412; NVIDIA/nccl#489; DGX OS package nvidia-acs-disable; leptonai/gpud: pkg/pci/testdata
    (an HGX H100 whose ports above the NVSwitches alone redirect)
    """
    virtual = machine.cpu.hypervisor
    if virtual not in (None, "none"):
        said = "access control must stay on under virtual machines"
        return [Outcome(state="not-applicable", message=said)]
    unseen = [path for path in ("gpus", "rdma", "pci") if _unseen(machine, path)]
    if len(machine.gpus) < 2 and not machine.rdma and not {"gpus", "rdma"}.intersection(unseen):
        return [Outcome(state="not-applicable", message="there is one GPU and no RDMA: no peer traffic")]
    peers = len(machine.gpus) > 1 or bool(machine.rdma)
    lacking = [path for path in unseen if path == "pci" or not peers]
    if virtual is None or lacking:
        return [
            Outcome(state="unknown", lacking=(*lacking, *(("cpu.hypervisor",) if virtual is None else ())))
        ]
    above = _above_peers(machine)
    outcomes = [_judge_redirect(index, machine.pci[index], known) for index, known in above.items()]
    nothing = "no PCIe bridge stands above a GPU, a network adapter or a disk here"
    return outcomes or [Outcome(state="not-applicable", message=nothing)]


def _above_peers(machine: Machine) -> dict[int, bool]:
    """Place of each bridge with a device below it that may talk to a peer; False where that hangs on a device of which
    class or vendor is not known."""
    places = {device.address: index for index, device in enumerate(machine.pci)}
    found: dict[int, bool] = {}
    for device in machine.pci:
        peer = _may_be_peer(device)
        above, met = device.parent, {places.get(device.address)}
        while peer is not False and above in places and places[above] not in met:
            place = places[above]
            met.add(place)
            if (machine.pci[place].class_code or "").startswith(BRIDGE_CLASS):
                found[place] = found.get(place, False) or peer is True
            above = machine.pci[place].parent
    return found


def _may_be_peer(device: PciDevice) -> bool | None:
    """None when it cannot be told."""
    if device.class_code is None:
        return None
    if not device.class_code.startswith(_PEER_CLASSES):
        return False
    if not device.class_code.startswith("0x03"):
        return True
    return None if device.vendor is None else device.vendor not in _DISPLAYS_OF_SERVERS


def _judge_redirect(index: int, bridge: PciDevice, known: bool) -> Outcome:
    item, path = ("pci", index), f"pci[{index}].acs_redirect"
    if bridge.acs_redirect is None or (bridge.acs_redirect and not known):
        return Outcome(state="unknown", item=item, paths=(path,), lacking=(path,))
    if not bridge.acs_redirect:
        return Outcome(state="pass", item=item, paths=(path,), message="peer traffic goes the short way")
    said = "access control (ACS) redirects peer traffic"
    return Outcome(state="finding", severity="warning", item=item, paths=(path,), message=said)
