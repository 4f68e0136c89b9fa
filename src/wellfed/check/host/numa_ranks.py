"""NUMA checks of the processes that hold GPUs: where they run, where their memory lies, and how tightly it is bound."""

import re
from collections.abc import Callable, Iterable

from wellfed.check.evaluate import Outcome, no_items
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine
from wellfed.model.devices import Gpu, Process
from wellfed.model.places import DAEMONS

SAME_SOCKET = 15
"""Nodes up to this distance are parts of one socket: firmware gives 11 or 12 to those of SNC and NPS, 20 and more to the
next socket (hwloc's collection of machines)."""
LOCAL_SHARE = 0.95
LITTLE_PAGES = (64 << 20) // 4096
"""With less memory than 64 MiB it does not matter where it lies."""

Nodes = dict[int, tuple[int, ...]]


def cpu_nodes(machine: Machine) -> Nodes:
    """CPUs by node; nodes without CPUs are no place for a process."""
    return {node.id: node.cpus for node in machine.numa if node.cpus}


def with_neighbours(machine: Machine, nodes: Iterable[int]) -> set[int]:
    """These nodes and those of the same sockets, as far as distances tell."""
    order = [node.id for node in machine.numa]
    rows = {node.id: node.distances for node in machine.numa}
    near = set(nodes)
    for node in tuple(near):
        row = rows.get(node)
        if row is not None and len(row) == len(order):
            near |= {
                other for other, distance in zip(order, row, strict=True) if 10 <= distance <= SAME_SOCKET
            }
    return near & cpu_nodes(machine).keys()


def near_gpu(machine: Machine, gpu: Gpu) -> set[int] | None:
    """The nodes near a GPU; None when the machine does not tell, or names all of them."""
    nodes = cpu_nodes(machine)
    near = {node for node, cpus in nodes.items() if not set(cpus).isdisjoint(gpu.cpu_affinity or ())}
    if not near or near == nodes.keys():
        near = {gpu.numa_node} & nodes.keys() if gpu.numa_node is not None else set()
    return with_neighbours(machine, near) if near else None


def near_process(machine: Machine, process: Process) -> set[int] | str:
    """The nodes near any of its GPUs, or the path of what would be needed to tell."""
    near: set[int] = set()
    for index in process.gpus:
        there = 0 <= index < len(machine.gpus)
        found = near_gpu(machine, machine.gpus[index]) if there else None
        if found is None:
            return f"gpus[{index}].cpu_affinity" if there else "gpus"
        near |= found
    return near


Judge = Callable[[Machine, int, Process, set[int]], Outcome]


def _each_rank(machine: Machine, judge: Judge) -> list[Outcome]:
    """The outcome of every process that holds a GPU and is no daemon of the system."""
    if len(cpu_nodes(machine)) < 2:
        known = bool(machine.numa)
        message = "there is one NUMA node with CPUs"
        return [
            Outcome(state="not-applicable", message=message)
            if known
            else Outcome(state="unknown", lacking=("numa",))
        ]
    nothing = no_items(machine, "processes")
    if nothing:
        return nothing
    outcomes = []
    for index, process in enumerate(machine.processes):
        if not process.gpus or process.name in DAEMONS:
            continue
        near = near_process(machine, process)
        item = ("processes", index)
        if isinstance(near, str):
            outcomes.append(Outcome(state="unknown", item=item, lacking=(near,)))
        elif near == cpu_nodes(machine).keys():
            message = "its GPUs are near every NUMA node"
            outcomes.append(Outcome(state="not-applicable", item=item, message=message))
        else:
            outcomes.append(judge(machine, index, process, near))
    return outcomes or [Outcome(state="not-applicable", message="no process holds a GPU")]


def _names(nodes: Iterable[int]) -> str:
    found = sorted(nodes)
    return f"node{'s' if len(found) > 1 else ''} {', '.join(map(str, found))}"


@rule("NUMA02", "rank-on-wrong-cpus", layer="numa", severity="warning", reversible="live")
def judge_cpus(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """A process runs, or may run, on CPUs that are far from its GPU.

    What it looks at. The CPUs that each process with a GPU may use, all of its threads together, and the CPUs near its
    GPUs by NVML or sysfs.
    Why it costs. Each launch and each copy crosses to the other socket, and buffers are taken where the thread runs.
    How it is judged. On machines with more than one NUMA node that has CPUs. A warning when no CPU that it may use is
    near, a note when some of them are far. Nodes of the same socket (SNC, NPS: a distance of at most 15) count as near,
    of several GPUs the CPUs near any of them. Daemons of the system are left out, and a GPU that is near every node.
    What is known of the gain. 1 to 10 % as a rule (PyTorch); on GB200 D2H copies ran at 330 against 115 GB/s.
    Remedy. start it with `wellfed pin`; for one that runs `taskset --all-tasks --cpu-list --pid CPUS PID`, which moves
    its threads and not its memory
    Restore. `taskset --all-tasks --cpu-list --pid OLD PID`
    When to ignore. When the work is not held up by launches and host copies.
    Sources. pytorch: torch/numa/binding.py@01c9f4f; pytorch/torchtitan#3519; 1Cat-vLLM#678
    """
    return _each_rank(machine, _judge_cpus)


def _judge_cpus(machine: Machine, index: int, process: Process, near: set[int]) -> Outcome:
    item, path = ("processes", index), f"processes[{index}].thread_cpus"
    said = process.allowed if process.thread_cpus is None else process.thread_cpus
    if said is None:
        return Outcome(state="unknown", item=item, lacking=(f"processes[{index}].allowed",))
    used = {node for node, cpus in cpu_nodes(machine).items() if not set(cpus).isdisjoint(said)}
    paths = (path if process.thread_cpus is not None else f"processes[{index}].allowed",)
    where = f"its GPUs are near {_names(near)}"
    if used and not used & near:
        message = f"runs on {_names(used)}, {where}"
        return Outcome(state="finding", severity="warning", item=item, message=message, paths=paths)
    if used - near:
        message = f"may run on {_names(used - near)} too, {where}"
        return Outcome(state="finding", severity="info", item=item, message=message, paths=paths)
    if process.thread_cpus is None:
        return Outcome(state="unknown", item=item, lacking=(path,))
    return Outcome(state="pass", item=item, message=f"runs on {_names(used)}, {where}", paths=paths)


@rule("NUMA03", "rank-memory-far", layer="numa", severity="warning")
def judge_memory(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """Host memory of a process lies far from its GPU.

    What it looks at. How many pages each process with a GPU has on which NUMA node, mapped files left out.
    Why it costs. Copies to and from the GPU cross to the other socket each time; pinned pages never move by themselves.
    How it is judged. Good from 95 % on the nodes near its GPUs (those of the same socket count); a note below, a warning
    when more than half is far. Memory of nodes without CPUs (CXL, GPU memory) is left out, and so are processes with less
    than 64 MiB or interleaved memory. Counting is left off where it would take long: a gap says so.
    What is known of the gain. One report: from 72.6 to 98.2 % near gave 1.9 % more tokens on V100.
    Remedy. start it with `wellfed pin`, so that memory is near from the first touch; pages that are not pinned follow
    with `migratepages PID FROM TO`
    Restore. `migratepages PID TO FROM`
    When to ignore. When host copies do not matter to the job.
    Sources. 1Cat-vLLM#678; pytorch/pytorch#160420
    """
    return _each_rank(machine, _judge_memory)


def _judge_memory(machine: Machine, index: int, process: Process, near: set[int]) -> Outcome:
    item, path = ("processes", index), f"processes[{index}].pages"
    if process.pages is None:
        return Outcome(state="unknown", item=item, lacking=(path,))
    if "interleave" in (process.policy or ""):
        return Outcome(state="not-applicable", item=item, message="its memory is interleaved on purpose")
    held = {node: process.pages.get(f"N{node}", 0) for node in cpu_nodes(machine)}
    total = sum(held.values())
    if total < LITTLE_PAGES:
        return Outcome(state="not-applicable", item=item, message="it holds less than 64 MiB")
    share = sum(pages for node, pages in held.items() if node in near) / total
    message = f"{share:.1%} of {total * 4096 / (1 << 30):.1f} GiB is near its GPUs ({_names(near)})"
    if share >= LOCAL_SHARE:
        return Outcome(state="pass", item=item, message=message, paths=(path,))
    severity = "warning" if share < 0.5 else "info"
    return Outcome(state="finding", severity=severity, item=item, message=message, paths=(path,))  # type: ignore[arg-type]


@rule("NUMA04", "memory-bound-strictly", layer="numa", severity="info", reversible="live-nextproc")
def judge_policy(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """A process may take memory from some nodes only, and they are nearly full.

    What it looks at. The memory policy of most of the pages of each process with a GPU, and what is free on the nodes
    that it names; cached files count as free.
    Why it costs. When those nodes are full the process is killed or waits for reclaim, though others have memory left;
    with a policy that only prefers them it takes the next best page.
    How it is judged. A note when the policy is `bind` and its nodes could not give the process once more what it has.
    What is known of the gain. It is a question of going on at all.
    Remedy. prefer instead of bind: `numactl --preferred=N`, or `wellfed pin`
    Restore. start it as before
    When to ignore. When the process has all the memory that it will ever need.
    Sources. sgl-project/sglang#27368; pytorch/pytorch#149334; NVIDIA-NeMo/RL#2613
    """
    return _each_bound(machine)


def _each_bound(machine: Machine) -> list[Outcome]:
    nothing = no_items(machine, "processes")
    if len(machine.numa) < 2:
        return (
            [Outcome(state="not-applicable", message="there is one NUMA node")]
            if machine.numa
            else [Outcome(state="unknown", lacking=("numa",))]
        )
    outcomes = [
        _judge_policy(machine, index, process)
        for index, process in enumerate(machine.processes)
        if process.gpus
    ]
    return nothing or outcomes or [Outcome(state="not-applicable", message="no process holds a GPU")]


def _judge_policy(machine: Machine, index: int, process: Process) -> Outcome:
    item, path = ("processes", index), f"processes[{index}].policy"
    if process.policy is None or process.pages is None:
        return Outcome(state="unknown", item=item, lacking=(path,))
    found = re.fullmatch(r"bind(?:=[\w|]+)?:([\d,-]+)", process.policy)
    if found is None:
        return Outcome(state="pass", item=item, message=f"memory policy {process.policy}", paths=(path,))
    bound = numbers(found[1])
    rooms = [
        (place, node.mem_free_bytes, node.file_bytes)
        for place, node in enumerate(machine.numa)
        if node.id in bound
    ]
    lacking = tuple(
        f"numa[{place}].mem_free_bytes" for place, free, file in rooms if free is None or file is None
    )
    if lacking or not rooms:
        return Outcome(state="unknown", item=item, lacking=lacking or ("numa",))
    room = sum((free or 0) + (file or 0) for _, free, file in rooms)
    held = sum(process.pages.values()) * 4096
    message = (
        f"bound to {_names(bound)} with {room / (1 << 30):.1f} GiB left, and holds {held / (1 << 30):.1f} GiB"
    )
    paths = (path, f"processes[{index}].pages", *(f"numa[{place}].mem_free_bytes" for place, _, _ in rooms))
    state = "pass" if room >= held else "finding"
    return Outcome(state=state, severity="info", item=item, message=message, paths=paths)  # type: ignore[arg-type]


def numbers(text: str) -> set[int]:
    """`0-1,3` as numbers; what is none is left out."""
    found: set[int] = set()
    for low, high in re.findall(r"(?:^|,)([0-9]{1,4})(?:-([0-9]{1,4}))?(?=,|$)", text):
        found.update(range(int(low), min(int(high or low), 1023) + 1))
    return {number for number in found if number < 1024}
