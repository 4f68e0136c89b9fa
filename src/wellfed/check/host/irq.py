"""Interrupt checks that compare all vectors of an adapter."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from wellfed.check.evaluate import Outcome, no_items
from wellfed.check.host.numa_ranks import cpu_nodes, with_neighbours
from wellfed.check.manual import ChangeRow, cure, rule
from wellfed.model import Ceiling, Machine
from wellfed.model.devices import Irq

FEW = 100_000
"""Fewer interrupts than this since boot cost nobody anything."""
MANY = 1_000_000
FAST_MBPS = 100_000
ONE_CPU = 0.5
MAX_CPUS = 8192
"""The most that a kernel can be built for: beyond are no CPUs, whatever a recording says."""
VECTORS = 4


class Adapter(NamedTuple):
    """Vectors of one network adapter that have fired, with their places in `Machine.irqs`."""

    address: str
    vectors: list[tuple[int, Irq]]
    all_vectors: int

    @property
    def total(self) -> int:
        return sum(irq.count or 0 for _, irq in self.vectors)

    def paths(self, *fields: str) -> tuple[str, ...]:
        return tuple(f"irqs[{place}].{field}" for place, _ in self.vectors[:4] for field in fields)


def adapters(machine: Machine) -> list[Adapter]:
    """Network and RDMA adapters. Interrupts of disks are spread by the kernel itself, and cannot be moved."""
    found: dict[str, list[tuple[int, Irq]]] = {}
    for place, irq in enumerate(machine.irqs):
        if irq.kind in ("nic", "rdma") and irq.address:
            found.setdefault(irq.address, []).append((place, irq))
    return [
        Adapter(address, [pair for pair in pairs if pair[1].count], len(pairs))
        for address, pairs in found.items()
    ]


def rate_mbps(machine: Machine, address: str) -> float:
    """The fastest rate that is known of an adapter; 0 when none is."""
    rates = [nic.speed_mbps for nic in machine.nics if nic.address == address]
    rates += [
        round(port.rate_gbps * 1000) for port in machine.rdma if port.address == address and port.rate_gbps
    ]
    return max((rate for rate in rates if rate), default=0)


@rule("IRQ01", "irq-on-wrong-node", layer="irq", severity="warning", reversible="live")
def judge_places(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """Interrupts of a network adapter are taken by CPUs far from it.

    What it looks at. Where each interrupt of a network or RDMA adapter goes now, how many there were since boot, and the
    CPUs near the adapter.
    Why it costs. The far CPU fetches descriptors and packets across sockets, for every packet.
    How it is judged. On physical machines with more than one NUMA node that has CPUs, of adapters with at least 100000
    interrupts. Spread blindly over all CPUs, a part of them lands near by itself: bad when it is less than half of that
    part. CPUs of the same socket count as near (a distance of at most 15). A warning from 100 Gbit/s. Interrupts of
    disks are not judged: the kernel manages them.
    What is known of the gain. No figure is published; it is the main thing that mlnx_tune does.
    Remedy. `sudo set_irq_affinity_bynode.sh NODE INTERFACE` of the vendor's tools, or write the near CPUs to
    `/proc/irq/NUMBER/smp_affinity_list`; tell irqbalance with a policy script, or it moves them back
    Restore. write the old list again
    When to ignore. When the adapter hardly matters to the job, or the near CPUs are kept free on purpose.
    Sources. mlnx_tune@8fbfd9c (HIGH_THROUGHPUT); tuned: plugin_irq; Irqbalance/irqbalance#50
    """
    if machine.cpu.hypervisor is None:
        return [Outcome(state="unknown", lacking=("cpu.hypervisor",))]
    if machine.cpu.hypervisor != "none":
        return [
            Outcome(state="not-applicable", message="a virtual machine's interrupts are placed by its host")
        ]
    if len(cpu_nodes(machine)) < 2:
        message = "there is one NUMA node with CPUs"
        return [
            Outcome(state="not-applicable", message=message)
            if machine.numa
            else Outcome(state="unknown", lacking=("numa",))
        ]
    nothing = no_items(machine, "irqs")
    found = [_judge_place(machine, adapter) for adapter in adapters(machine)]
    return nothing or found or [_none()]


@cure("IRQ01")
def place_near(machine: Machine, intent: str) -> Iterable[ChangeRow]:
    """The near CPUs for each far interrupt of an adapter whose interrupts are far. Not where irqbalance runs, which would
    move them back, and never to isolated CPUs. Where none runs somebody may have placed them, and kept the near CPUs free
    for the job: so it has to be asked for, and what is near stays as it is (mostly one CPU each)."""
    services, isolated = machine.kernel.active_services, machine.cpu.isolated
    if services is None or isolated is None or any(name.startswith("irqbalance") for name in services):
        return
    for adapter in adapters(machine):
        near = near_adapter(machine, adapter.address)
        if near is None or _judge_place(machine, adapter).state != "finding":
            continue
        cpus = sorted(near.difference(isolated, machine.cpu.offline or ()))
        if are_cpus(cpus):
            for irq in machine.irqs:
                if irq.address == adapter.address and not (irq.effective and near.issuperset(irq.effective)):
                    new = ",".join(map(str, cpus))
                    yield ChangeRow(kind="irq_affinity", target=str(irq.number), new=new, risk="unsafe")


@cure("IRQ05")
def clear_work_queues(machine: Machine, intent: str) -> Iterable[ChangeRow]:
    """The mask of work queues without the isolated CPUs. Where the mask of interrupts holds some too it is left to
    people: one without the other is half a cure."""
    isolated, queues = machine.cpu.isolated, machine.kernel.workqueue_cpumask
    default = machine.kernel.default_irq_affinity
    if isolated is None or queues is None or default is None or not set(isolated).isdisjoint(default):
        return
    rest = set(queues).difference(isolated)
    if are_cpus(rest):
        yield ChangeRow(kind="sysfs", target="/sys/devices/virtual/workqueue/cpumask", new=mask(rest))


def are_cpus(cpus: Collection[int]) -> bool:
    return bool(cpus) and min(cpus) >= 0 and max(cpus) < MAX_CPUS


def mask(cpus: Iterable[int]) -> str:
    """CPUs as the kernel prints and takes them: words of 32 bits in hex, the highest first."""
    bits = sum(1 << cpu for cpu in cpus)
    words = [f"{bits >> shift & 0xFFFFFFFF:08x}" for shift in range(0, max(1, bits.bit_length()), 32)]
    return ",".join(reversed(words))


def _none() -> Outcome:
    return Outcome(state="not-applicable", message="no network adapter has interrupts of its own")


def _judge_place(machine: Machine, adapter: Adapter) -> Outcome:
    name = adapter.address
    if adapter.total < FEW:
        return Outcome(state="not-applicable", message=f"{name} had hardly any interrupts since boot")
    near = near_adapter(machine, name)
    if near is None:
        return Outcome(state="unknown", reason="no-fact", message=f"{name}: its NUMA node is not known")
    everywhere = {cpu for cpus in cpu_nodes(machine).values() for cpu in cpus}
    if near == everywhere:
        return Outcome(state="not-applicable", message=f"{name} is near every CPU")
    unplaced = tuple(f"irqs[{place}].effective" for place, irq in adapter.vectors if not irq.effective)
    if unplaced:
        return Outcome(state="unknown", lacking=unplaced)
    there = sum(
        (irq.count or 0) * len(near & set(irq.effective or ())) / len(irq.effective or (0,))
        for _, irq in adapter.vectors
    )
    share, chance = there / adapter.total, len(near & everywhere) / len(everywhere)
    message = f"{name}: {share:.0%} of its interrupts go to CPUs near it ({chance:.0%} of all CPUs are near)"
    paths = adapter.paths("effective", "count")
    if share >= chance / 2:
        return Outcome(state="pass", message=message, paths=paths)
    severity = "warning" if rate_mbps(machine, name) >= FAST_MBPS else "info"
    return Outcome(state="finding", severity=severity, message=message, paths=paths)  # type: ignore[arg-type]


def near_adapter(machine: Machine, address: str) -> set[int] | None:
    """CPUs near a PCI device, those of its socket counted; None when the machine does not tell."""
    device = next((one for one in machine.pci if one.address == address), None)
    nodes = cpu_nodes(machine)
    if device is None or device.numa_node not in nodes:
        return None
    return {cpu for node in with_neighbours(machine, [device.numa_node]) for cpu in nodes[node]}


@rule("IRQ03", "one-cpu-takes-all-interrupts", layer="irq", severity="info", reversible="live")
def judge_shares(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """One CPU has taken most of the interrupts of a network adapter that has several queues.

    What it looks at. `/proc/interrupts`: counts since boot of each vector of a network or RDMA adapter, by CPU.
    Why it costs. That CPU is the limit of what the adapter can receive over TCP, and of what else runs on it.
    How it is judged. Adapters with at least 4 vectors and a million interrupts. A note when one CPU took more than half.
    Where vectors moved between CPUs that is told only when it is certain.
    What is known of the gain. No figure is published.
    Remedy. spread the vectors (irqbalance, or the vendor's `set_irq_affinity`); see that the adapter has as many queues
    as it can: `ethtool -l INTERFACE`
    Restore. write the old lists to `/proc/irq/NUMBER/smp_affinity_list`
    When to ignore. When the traffic was one stream, or is over: counts are since boot.
    Sources. mlnx_tune@8fbfd9c; kernel: Documentation/networking/scaling.rst (RSS)
    """
    nothing = no_items(machine, "irqs")
    judged = [_judge_share(adapter) for adapter in adapters(machine)]
    return nothing or judged or [_none()]


def _judge_share(adapter: Adapter) -> Outcome:
    name = adapter.address
    if adapter.all_vectors < VECTORS:
        return Outcome(
            state="not-applicable", message=f"{name} has {adapter.all_vectors} vectors: nothing to spread"
        )
    if adapter.total < MANY:
        return Outcome(
            state="not-applicable", message=f"{name} had less than a million interrupts since boot"
        )
    least: dict[int, float] = {}
    loose = 0.0
    for place, irq in adapter.vectors:
        if irq.busiest is None or irq.max_share is None:
            return Outcome(state="unknown", lacking=(f"irqs[{place}].busiest",))
        least[irq.busiest] = least.get(irq.busiest, 0.0) + (irq.count or 0) * irq.max_share
        loose += (irq.count or 0) * (1 - irq.max_share)
    cpu = max(least, key=lambda one: least[one])
    share = least[cpu] / adapter.total
    message = (
        f"{name}: CPU {cpu} took {share:.0%} of {adapter.total} interrupts on {adapter.all_vectors} vectors"
    )
    paths = adapter.paths("busiest", "max_share", "count")
    if share > ONE_CPU:
        return Outcome(state="finding", severity="info", message=message, paths=paths)
    if share + loose / adapter.total > ONE_CPU:
        return Outcome(state="unknown", reason="no-fact", message=f"{name}: its vectors moved between CPUs")
    return Outcome(state="pass", message=message, paths=paths)
