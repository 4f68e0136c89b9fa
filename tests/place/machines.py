"""Machines for the planner, made by hand: shapes of real ones, only what placing looks at."""

import random
from collections.abc import Iterable, Sequence

from wellfed.model import Machine
from wellfed.model.base import replace
from wellfed.model.devices import Gpu, Link, PciDevice, RdmaPort
from wellfed.model.fact import Fact
from wellfed.model.machine import Container, Cpu, CpuThread, NumaNode


def machine(
    nodes: dict[int, Iterable[int]],
    *,
    siblings: int = 0,
    l3_cores: int = 0,
    packages: dict[int, int] | None = None,
    gpus: Sequence[Gpu] = (),
    **cpu: object,
) -> Machine:
    """`nodes` to CPUs; thread n and n + `siblings` share a core (0: no SMT); `l3_cores` cores of a node share an L3
    (0: the whole node); `packages` by node (its own number when not given)."""
    threads, group = [], 0
    for node, cpus in nodes.items():
        cores: dict[int, list[int]] = {}
        for at in sorted(cpus):
            cores.setdefault(at % siblings if siblings else at, []).append(at)
        for place, (core, members) in enumerate(sorted(cores.items())):
            l3 = group + (place // l3_cores if l3_cores else 0)
            package = packages[node] if packages else node
            threads += [CpuThread(id=at, core=core, package=package, node=node, l3=l3) for at in members]
        group += -(-len(cores) // l3_cores) if l3_cores else 1
    numa = tuple(NumaNode(id=node, cpus=tuple(sorted(cpus))) for node, cpus in nodes.items())
    return Machine(
        cpu=Cpu(threads=tuple(sorted(threads, key=lambda t: t.id)), **cpu), numa=numa, gpus=tuple(gpus)
    )  # type: ignore[arg-type]


def gpus_on(*nodes: int | None, **more: object) -> tuple[Gpu, ...]:
    """A GPU for each node number; -1 is what the firmware says when it names none."""
    return tuple(
        Gpu(
            index=at,
            name="GPU",
            uuid=f"GPU-{at:08x}",
            address=f"0000:{0x10 + at:02x}:00.0",
            numa_node=node,
            **more,
        )  # type: ignore[arg-type]
        for at, node in enumerate(nodes)
    )


def both(first: range, second: range) -> list[int]:
    return [*first, *second]


def server() -> Machine:
    """112 CPUs in 4 interleaved nodes, 2 memory-only ones, siblings 56 apart, two nodes a socket; 3 + 1 GPUs."""
    nodes: dict[int, Iterable[int]] = {node: range(node, 112, 4) for node in range(4)}
    found = machine(nodes, siblings=56, packages={0: 0, 1: 1, 2: 0, 3: 1}, gpus=gpus_on(0, 0, 0, 3))
    extra = (NumaNode(id=4, mem_bytes=1 << 37), NumaNode(id=5, mem_bytes=1 << 37))
    return replace(found, numa=(*found.numa, *extra))


def power9() -> Machine:
    """2 sockets of 22 cores with 4 threads, nodes 0 and 8, and 6 nodes of GPU memory; 3 GPUs a socket."""
    threads = tuple(
        CpuThread(id=cpu, core=cpu // 4, package=0 if cpu < 88 else 8, node=0 if cpu < 88 else 8, l3=cpu // 8)
        for cpu in range(176)
    )
    numa = (
        NumaNode(id=0, cpus=tuple(range(88)), distances=(10, 40)),
        NumaNode(id=8, cpus=tuple(range(88, 176)), distances=(40, 10)),
        *(NumaNode(id=node, mem_bytes=15 << 30) for node in range(250, 256)),
    )
    gpus = gpus_on(None, None, None, None, None, None)
    gpus = tuple(
        replace(gpu, cpu_affinity=tuple(range(88) if gpu.index < 3 else range(88, 176))) for gpu in gpus
    )
    return Machine(cpu=Cpu(threads=threads), numa=numa, gpus=gpus)


def hybrid() -> Machine:
    """6 fast cores of 2 threads (0-11), 8 slow ones (12-19); 2 GPUs; one node."""
    threads = tuple(
        CpuThread(
            id=cpu,
            core=cpu // 2 if cpu < 12 else cpu - 6,
            package=0,
            node=0,
            l3=0,
            kind="performance" if cpu < 12 else "efficiency",
        )
        for cpu in range(20)
    )
    return Machine(
        cpu=Cpu(threads=threads), numa=(NumaNode(id=0, cpus=tuple(range(20))),), gpus=gpus_on(-1, -1)
    )


def snc() -> Machine:
    """2 sockets of 2 sub-NUMA nodes of 24 cores, siblings 96 apart; 3 + 1 + 2 + 2 GPUs."""
    nodes = {
        node: both(range(24 * node, 24 * node + 24), range(96 + 24 * node, 120 + 24 * node))
        for node in range(4)
    }
    return machine(
        nodes, siblings=96, packages={0: 0, 1: 0, 2: 1, 3: 1}, gpus=gpus_on(0, 0, 0, 1, 2, 2, 3, 3)
    )


def gh200() -> Machine:
    """72 cores in node 0, and 8 nodes of GPU memory."""
    found = machine({0: range(72)}, gpus=gpus_on(0, c2c=True))
    return replace(
        found, numa=(*found.numa, *(NumaNode(id=node, mem_bytes=96 << 30) for node in range(1, 9)))
    )


def gb200() -> Machine:
    """2 Grace CPUs of 72 cores, 4 GPUs. The bus says node 0 for all of them, and the driver knows better."""
    found = machine({0: range(72), 1: range(72, 144)})
    gpus = tuple(
        replace(gpu, name="NVIDIA GB200", cpu_affinity=tuple(range(72))) for gpu in gpus_on(0, 0, 1, 1)
    )
    facts = {
        f"gpus[{at}].cpu_affinity": Fact(
            key=f"gpus[{at}].cpu_affinity",
            value=[0],
            source="NVML",
            raw="/sys/bus/pci/devices/x/local_cpulist",
        )
        for at in range(4)
    }
    memory = tuple(NumaNode(id=node, mem_bytes=180 << 30) for node in range(2, 6))
    return replace(found, gpus=gpus, facts=facts, numa=(*found.numa, *memory))


def c4140() -> Machine:
    """2 sockets of 20 cores: node 0 has the even CPUs, node 1 the odd ones; 4 GPUs told by sysfs lists only."""
    nodes: dict[int, Iterable[int]] = {0: range(0, 80, 2), 1: range(1, 80, 2)}
    found = machine(nodes, siblings=40, gpus=gpus_on(None, None, None, None))
    gpus = tuple(replace(g, numa_node=None) for g in found.gpus)
    pci = tuple(PciDevice(address=g.address or "", local_cpus=tuple(nodes[g.index // 2])) for g in gpus)
    return replace(found, gpus=gpus, pci=pci)


def cut() -> Machine:
    """2 sockets of 56 cores with siblings 112 apart, in a cpuset of 0-55 and of 70-99,102-107; 4 + 4 GPUs, 2 NICs."""
    nodes = {0: both(range(56), range(112, 168)), 1: both(range(56, 112), range(168, 224))}
    found = machine(nodes, siblings=112, gpus=gpus_on(0, 0, 0, 0, 1, 1, 1, 1))
    cpuset = (*range(56), *range(70, 100), *range(102, 108))
    rdma = (
        RdmaPort(device="mlx5_0", port=1, state="ACTIVE"),
        RdmaPort(device="mlx5_1", port=1, state="DOWN"),
    )
    links = (Link(a="gpu0", b="mlx5_0", kind="PIX"), Link(a="gpu1", b="mlx5_0", kind="NODE"))
    links += (Link(a="gpu0", b="mlx5_1", kind="PIX"), Link(a="gpu4", b="mlx5_0", kind="SYS"))
    return replace(found, container=Container(cpuset=cpuset, cpuset_mems=(0, 1)), rdma=rdma, links=links)


def epyc() -> Machine:
    """One node of 32 cores in L3 groups of 8, siblings 32 apart; 3 GPUs."""
    return machine({0: range(64)}, siblings=32, l3_cores=8, gpus=gpus_on(-1, -1, -1))


def nowhere() -> Machine:
    """Two nodes of 8 cores, 4 GPUs whose firmware names no node and lists all CPUs as near."""
    gpus = tuple(replace(gpu, numa_node=None, cpu_affinity=tuple(range(16))) for gpu in gpus_on(*[None] * 4))
    return machine({0: range(8), 1: range(8, 16)}, gpus=gpus)


SHAPES = {
    made.__name__: made for made in (server, power9, hybrid, snc, gh200, gb200, c4140, cut, epyc, nowhere)
}


def random_machine(seed: int) -> Machine:
    """Sockets, nodes, L3 groups, SMT, hybrids, holes, limits and GPUs of any number, at home, lost or far away."""
    dice = random.Random(seed)
    count = dice.choice((1, 1, 2, 2, 3, 4, 8))
    per_node, smt = dice.choice((1, 2, 3, 5, 8, 12)), dice.choice((1, 1, 2, 4))
    l3 = dice.choice((0, 1, 2, 4))
    total = count * per_node
    interleaved, hybrid = dice.random() < 0.3, dice.random() < 0.2
    threads, nodes = [], {}
    for node in range(count):
        for at in range(per_node):
            core = at * count + node if interleaved else node * per_node + at
            for turn in range(smt):
                cpu = core + turn * total
                if dice.random() < 0.04:
                    continue
                threads.append(
                    CpuThread(
                        id=cpu,
                        core=core if dice.random() < 0.98 else None,
                        package=node // dice.choice((1, 1, 2)) if dice.random() < 0.9 else None,
                        node=node,
                        l3=node * 100 + (at // l3 if l3 else 0) if dice.random() < 0.95 else None,
                        kind=("performance" if at % 2 else "efficiency") if hybrid else None,
                        online=dice.random() > 0.03,
                    )
                )
                nodes.setdefault(node, []).append(cpu)
    if not any(t.online for t in threads):
        return random_machine(seed + 100_000)
    dead = {t.id for t in threads if not t.online}
    numa = [
        NumaNode(
            id=node,
            cpus=tuple(sorted(set(cpus) - dead)),
            distances=tuple(dice.choice((10, 20, 32)) for _ in nodes),
        )
        for node, cpus in nodes.items()
    ]
    numa += [NumaNode(id=200 + at, mem_bytes=1 << 34) for at in range(dice.choice((0, 0, 2)))]
    gpus = []
    for at in range(dice.choice((0, 1, 2, 4, 5, 8))):
        node = dice.choice((*nodes, None, -1, 200))
        near = tuple(nodes.get(dice.choice(list(nodes)), ())) if dice.random() < 0.3 else None
        gpus.append(
            Gpu(
                index=at,
                uuid=f"GPU-{at}",
                address=f"0000:{at + 1:02x}:00.0",
                numa_node=node,
                cpu_affinity=near,
            )
        )
    online = [t.id for t in threads if t.online]
    allowed = tuple(cpu for cpu in online if dice.random() < 0.8) if dice.random() < 0.3 else None
    isolated = tuple(cpu for cpu in online if dice.random() < 0.1) if dice.random() < 0.3 else None
    mems = (next(iter(nodes)),) if dice.random() < 0.2 else None
    return Machine(
        cpu=Cpu(
            threads=tuple(sorted(threads, key=lambda t: t.id)), allowed=allowed or None, isolated=isolated
        ),
        numa=tuple(numa) if dice.random() < 0.9 else (),
        gpus=tuple(gpus),
        container=Container(cpuset_mems=mems),
    )
