"""Placement side by side with PyTorch's own `--numa-binding`, on the same machines.

    WELLFED_CORPUS=../shared/corpus python benchmarks/placement_vs_torch.py BINDING.py docs/validation/placement.md

BINDING.py is `torch/numa/binding.py` of an installed PyTorch (none of it is in this repository). It is loaded as it is; only what
it asks of the machine is answered from a snapshot: files of `/sys`, the affinity of the thread, the GPUs and their addresses, and
whether `numactl` is there."""

import builtins
import contextlib
import importlib.util
import io
import os
import re
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests" / "place")]
import machines  # noqa: E402

from wellfed.host import look, open_host  # noqa: E402
from wellfed.model import Machine  # noqa: E402
from wellfed.model.base import replace  # noqa: E402
from wellfed.model.machine import Container  # noqa: E402
from wellfed.model.placement import PlaceRequest, cpu_ranges  # noqa: E402
from wellfed.place import plan_placement  # noqa: E402

MODES = {"node": "node", "socket": "socket", "exclusive": "exclusive", "l3": "core-complex"}


class Case(NamedTuple):
    """`files` overlay what the machine shows in /sys; `visible` are the GPUs that the process sees."""

    name: str
    machine: Machine
    visible: tuple[int, ...] | None = None
    note: str = ""


def cases(corpus: Path | None) -> Iterator[Case]:
    if corpus is not None:
        yield from _of_corpus(corpus)
    yield Case("2 sockets x 2 SNC nodes, 3+1+2+2 GPUs", machines.snc())
    yield Case("GH200-like: 72 cores, 8 memory nodes", machines.gh200())
    yield Case("C4140: interleaved CPU numbers", machines.c4140())
    yield Case("numa_node -1, 2 nodes, 4 GPUs", machines.nowhere())
    yield Case("cpuset 0-55 and 70-99,102-107, 4+4 GPUs", machines.cut())
    yield Case("EPYC, 4 L3 groups, 3 GPUs", machines.epyc())
    two = machines.machine({0: range(16)}, l3_cores=8, gpus=machines.gpus_on(0, 0, 0, 0))
    yield Case("2 L3 groups, 4 GPUs", two)
    yield Case(
        "C4140, one GPU visible to each worker (as Ray does)",
        machines.c4140(),
        (1,),
        "rank 0 of GPU 1's worker",
    )


def _of_corpus(corpus: Path) -> Iterator[Case]:
    host = corpus / "host"
    power9 = look(open_host(os.fspath(host / "hwloc/linux/nvidiagpunumanodes.tar.bz2")))
    whole = replace(power9, container=Container())
    yield Case(
        "POWER9 + 6 V100 (hwloc)", whole, note="its CPUs were cut from the snapshot: 32 of 176 are described"
    )
    server = look(open_host(f"{host}/cri-resource-manager/topology-aware-sysfs.tar.bz2::sysfs/server"))
    server = replace(server, gpus=machines.gpus_on(0, 0, 0, 3))
    yield Case(
        "`server` of cri-resource-manager, 3+1 GPUs",
        server,
        note="GPUs are ours; CPUs 4-7,60-63 are isolated",
    )
    hybrid = look(open_host(f"{host}/hwloc/linux/20em64t-hybrid-1p6c2t+2ca4co1t.tar.bz2"))
    yield Case(
        "hybrid, 12 fast + 8 slow threads (hwloc), 2 GPUs", replace(hybrid, gpus=machines.gpus_on(-1, -1))
    )


# -- PyTorch's code, its questions answered ----------------------------------------------------------------


def load(path: Path) -> Any:
    """The module, with a stub for the two things it imports from PyTorch."""
    torch, internal = types.ModuleType("torch"), types.ModuleType("torch._utils_internal")
    internal.signpost_event = lambda **_: None  # type: ignore[attr-defined]
    sys.modules |= {"torch": torch, "torch._utils_internal": internal}
    spec = importlib.util.spec_from_file_location("binding", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["binding"] = module
    spec.loader.exec_module(module)
    return module


def files_of(machine: Machine) -> dict[str, str]:
    """What the kernel would show of this machine, where PyTorch looks."""
    files = {"/sys/devices/system/node/possible": ",".join(str(node.id) for node in machine.numa)}
    for node in machine.numa:
        files[f"/sys/devices/system/node/node{node.id}/cpulist"] = cpu_ranges(node.cpus)
    threads = machine.cpu.threads or ()
    for thread in threads:
        base = f"/sys/devices/system/cpu/cpu{thread.id}"
        files[f"{base}/topology/physical_package_id"] = str(thread.package)
        siblings = tuple(t.id for t in threads if t.core == thread.core)
        files[f"{base}/topology/thread_siblings_list"] = cpu_ranges(siblings)
        shared = tuple(t.id for t in threads if t.l3 == thread.l3 and t.node == thread.node)
        files |= {
            f"{base}/cache/index3/type": "Unified",
            f"{base}/cache/index3/level": "3",
            f"{base}/cache/index3/shared_cpu_list": cpu_ranges(shared),
        }
    for gpu in machine.gpus:
        files[f"/sys/bus/pci/devices/{gpu.address}/numa_node"] = str(bus_node(machine, gpu.index))
    return files


def bus_node(machine: Machine, index: int) -> int:
    """`numa_node` of the PCI device: where the machine tells near CPUs only, the node that they are of; -1 where nobody knows."""
    gpu = machine.gpus[index]
    if gpu.numa_node is not None:
        return gpu.numa_node
    pci = next((d for d in machine.pci if d.address == gpu.address), None)
    near = set(gpu.cpu_affinity or (pci.local_cpus if pci else None) or ())
    nodes = [node.id for node in machine.numa if set(node.cpus) & near]
    return nodes[0] if len(nodes) == 1 else -1


@contextlib.contextmanager
def pretend(binding: Any, machine: Machine, visible: tuple[int, ...]) -> Iterator[None]:
    files = files_of(machine)
    online = {t.id for t in machine.cpu.threads or ()} | {cpu for node in machine.numa for cpu in node.cpus}
    allowed = online & set(machine.container.cpuset) if machine.container.cpuset else online

    def opened(path: Any, *_: Any, **__: Any) -> io.StringIO:
        if str(path) not in files:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return io.StringIO(files[str(path)])

    def properties(index: int) -> types.SimpleNamespace:
        domain, bus, device = re.split("[:.]", machine.gpus[visible[index]].address or "")[:3]
        return types.SimpleNamespace(
            pci_domain_id=int(domain, 16), pci_bus_id=int(bus, 16), pci_device_id=int(device, 16)
        )

    binding.torch.cuda = types.SimpleNamespace(
        device_count=lambda: len(visible), get_device_properties=properties
    )
    kept = (builtins.open, os.listdir, os.sched_getaffinity, shutil.which)
    builtins.open = opened  # type: ignore[assignment]
    os.listdir = lambda path: ["index3"] if str(path).endswith("cache") else []  # type: ignore[assignment,misc]
    os.sched_getaffinity = lambda _: set(allowed)  # type: ignore[assignment]
    shutil.which = lambda name, **_: f"/usr/bin/{name}"  # type: ignore[assignment,misc]
    try:
        yield
    finally:
        builtins.open, os.listdir, os.sched_getaffinity, shutil.which = kept  # type: ignore[assignment]


class Answer(NamedTuple):
    cpus: list[tuple[int, ...]]
    error: str = ""


def theirs(binding: Any, case: Case, mode: str) -> Answer:
    visible = case.visible or tuple(range(len(case.machine.gpus)))
    options = binding.NumaOptions(affinity_mode=binding.AffinityMode(mode))
    found = []
    with pretend(binding, case.machine, visible):
        for index in range(len(visible)):
            try:
                cpus = binding._get_validated_logical_cpus_to_bind_to(gpu_index=index, numa_options=options)
            except Exception as error:  # noqa: BLE001 - what it raises is the result
                text = Path(str(getattr(error, "filename", "") or "")).name or str(error)
                return Answer(found, f"{type(error).__name__}: {text.split(',')[0]}")
            found.append(tuple(sorted(cpus)))
    return Answer(found)


def ours(case: Case, mode: str) -> Answer:
    visible = None if case.visible is None else tuple(map(str, case.visible))
    placed = plan_placement(case.machine, PlaceRequest(mode=mode, visible=visible))
    note = "" if placed.mode == mode else f"{placed.mode} instead"
    return Answer([rank.cpus for rank in placed.ranks], note)


# -- the page ----------------------------------------------------------------------------------------------


def told(answer: Answer, mode: str) -> str:
    """Sizes, and sets where they are few; CPUs that two ranks have where none should."""
    if answer.error and not answer.cpus:
        return f"**{answer.error}**"
    distinct = list(dict.fromkeys(answer.cpus))
    text = "/".join(str(len(cpus)) for cpus in answer.cpus) + " CPUs"
    if len(distinct) <= 4:
        text += ": " + "; ".join(
            f"`{cpu_ranges(c)}`" if len(cpu_ranges(c)) < 40 else f"`{cpu_ranges(c)[:34]}...`"
            for c in distinct
        )
    if answer.error:
        text += f", then **{answer.error}**" if "Error" in answer.error else f", {answer.error}"
    shared = sum(map(len, answer.cpus)) - len({cpu for cpus in answer.cpus for cpu in cpus})
    if mode in ("exclusive", "l3") and shared:
        text += f"; **{shared} CPUs given twice**"
    return text


HEAD = """# Validation: placement

Made by `benchmarks/placement_vs_torch.py`, which runs PyTorch's own `torch/numa/binding.py` (version {version}) on the same snapshots
and invented machines, its questions to the machine answered from them; do not edit. Sizes are CPUs of each rank in turn. `l3` stands
beside PyTorch's `core-complex`. Ours leaves a core of each node to the system where there are more than 8 cores a GPU, which
PyTorch does not: a size two below theirs is that core's two threads.

| machine | mode | PyTorch | wellfed |
|---|---|---|---|
"""


def page(binding: Any, version: str, found: list[Case]) -> str:
    rows = []
    for case in found:
        for mode, name in MODES.items():
            rows.append(
                f"| {case.name} | {mode} | {told(theirs(binding, case, name), mode)} | {told(ours(case, mode), mode)} |"
            )
    notes = "\n".join(f"- {case.name}: {case.note}." for case in found if case.note)
    return HEAD.format(version=version) + "\n".join(rows) + f"\n\n## Notes\n\n{notes}\n"


def main() -> None:
    path, target = Path(sys.argv[1]), Path(sys.argv[2])
    folder = os.environ.get("WELLFED_CORPUS")
    found = list(cases(Path(folder) if folder else None))
    version = (path.parents[1] / "version.py").read_text("utf-8")
    number = re.search(r"__version__ = '([^']+)'", version)
    target.write_text(page(load(path), number.group(1) if number else "unknown", found), "utf-8")


if __name__ == "__main__":
    main()
