"""CPU checks that need thought."""

from collections.abc import Iterable

from wellfed.check.evaluate import Outcome
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine
from wellfed.model.devices import Process
from wellfed.model.machine import CpuThread


@rule("CPU15", "hybrid-cores-mixed", layer="cpu", severity="info")
def judge_kinds(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """A process that feeds a GPU may run on fast and on slow cores.

    What it looks at. The kind of every core (performance or efficiency) and the affinity of every process that holds
    a GPU.
    Why it costs. At a barrier all threads wait for the slowest, and the thread that launches kernels may land on a
    slow core.
    How it is judged. A note when the affinity of a process with a GPU holds cores of both kinds. Machines whose cores
    are alike are not judged.
    What is known of the gain. No figure is published.
    Remedy. start the job with `wellfed pin`, or `taskset` with the list of the fast cores (`/sys/devices/cpu_core/cpus`)
    Restore. nothing to undo: the affinity ends with the process
    When to ignore. When the work is not held up by the CPU.
    Sources. open-mpi/hwloc: cpukinds@3b37b02
    """
    threads = machine.cpu.threads
    if threads is None:
        return [Outcome(state="unknown", lacking=("cpu.threads",))]
    kinds = {thread.kind for thread in threads}
    if len(kinds - {None}) < 2:
        return [
            Outcome(state="not-applicable", message="all cores are of one kind, as far as the kernel tells")
        ]
    if not machine.processes and "processes" not in machine.facts:
        return [Outcome(state="unknown", lacking=("processes",))]
    busy = [(index, process) for index, process in enumerate(machine.processes) if process.gpus]
    if not busy:
        return [Outcome(state="not-applicable", message="no process that holds a GPU can be seen")]
    return [_judge_process(index, process, threads) for index, process in busy]


def _judge_process(index: int, process: Process, threads: tuple[CpuThread, ...]) -> Outcome:
    path, item = f"processes[{index}].allowed", ("processes", index)
    if process.allowed is None:
        return Outcome(state="unknown", item=item, lacking=(path,))
    kinds = {thread.id: thread.kind for thread in threads}
    seen = {kinds.get(cpu) for cpu in process.allowed}
    held = seen - {None}
    if len(held) > 1:
        return Outcome(
            state="finding",
            item=item,
            message="may run on cores of both kinds",
            paths=(path, "cpu.threads"),
        )
    if None in seen:
        return Outcome(state="unknown", item=item, lacking=("cpu.threads",))
    return Outcome(state="pass", item=item, message="runs on cores of one kind", paths=(path, "cpu.threads"))
