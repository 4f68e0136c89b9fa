"""Measured collectives and copies between GPUs, and what speaks for NCCL's variables."""

from collections.abc import Iterable

from wellfed.check.evaluate import Outcome
from wellfed.check.expression import was_seen
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine

SHOWN = 4
NEEDED = ("environment", "rdma")


@rule("ENV25", "nccl-settings-to-try", layer="env", severity="info", trust="read", reversible="live-nextproc")
def judge_nccl_advice(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """This machine's facts speak for other values of NCCL's variables.

    What it looks at. The environment, RDMA ports, whether this is a virtual machine, and measured collectives
    (`wellfed measure --only collectives`): the curve beside the link, computing beside communication.
    Why it costs. NCCL decides most by itself, and well; a slow port among fast ones, a virtual machine that hides its
    topology, or thread blocks that a GEMM would need, it cannot see.
    How it is judged. A note for each variable that a fact of this machine speaks for, with what it may be worth, or that
    nobody knows. What one machine cannot tell (queue pairs, traffic classes, timeouts, rails) is never advised.
    What is known of the gain. With each: measured on this machine, from the literature, or not known.
    Remedy. one at a time, each with a measurement before and after; `docs/guides/network.md` tells the dangers
    Restore. unset the variable
    When to ignore. When jobs use one GPU. When the values are set for the job elsewhere.
    Sources. NVIDIA NCCL documentation: environment variables; NVIDIA/nccl@5067397: src/graph/tuning.cc;
    Azure/azhpc-images: ndv5.sh; stas00/ml-engineering@744d01e: network/README.md
    """
    if len(machine.gpus) < 2 and not (machine.gpus and machine.rdma):
        if not machine.gpus and not was_seen(machine, "gpus"):
            return [Outcome(state="unknown", lacking=("gpus",))]
        return [
            Outcome(
                state="not-applicable", message="fewer than two GPUs and no RDMA: NCCL has nobody to talk to"
            )
        ]
    unseen = tuple(name for name in NEEDED if not getattr(machine, name) and not was_seen(machine, name))
    unseen = (*unseen, *_hidden(machine))
    if unseen:
        return [Outcome(state="unknown", lacking=unseen)]
    from wellfed.check.nccl_advice import UNKNOWN, advise  # numpy: only where there is something to advise

    # what is merely set and not measured is ENV11's to say
    found = [one for one in advise(machine, ceilings) if one.value is not None or one.worth != UNKNOWN]
    if not found:
        return [Outcome(state="pass", message="nothing here speaks for other values", paths=("environment",))]
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    message = "; ".join(one.text for one in found[:SHOWN]) + more
    return [Outcome(state="finding", severity="info", message=message, paths=("environment",))]


def _hidden(machine: Machine) -> tuple[str, ...]:
    """What would have to be seen of the ports, and of the machine around them, before nothing speaks for anything."""
    if not machine.rdma:
        return ()
    told = (
        machine.kernel.virtualization or machine.cpu.hypervisor or was_seen(machine, "kernel.virtualization")
    )
    ports = (
        f"rdma[{k}].{name}"
        for k, port in enumerate(machine.rdma)
        for name in ("state", "rate_gbps")
        if getattr(port, name) is None
    )
    return (*ports, *(() if told else ("kernel.virtualization",)))
