"""Firmware checks that need thought."""

import re
from collections.abc import Iterable

from wellfed.check.evaluate import Outcome
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine


@rule("BIOS11", "microcode-missing", layer="bios", severity="info", risk="reboot", reversible="reboot")
def judge_microcode(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """The CPU lacks microcode that the kernel's mitigations count on.

    What it looks at. `/sys/devices/system/cpu/vulnerabilities/*` for the words `no microcode`, on physical machines.
    Why it costs. What a mitigation costs changes with the microcode, so nodes with different microcode run at
    different speeds, and the slowest holds up the job.
    How it is judged. A note when any line says `no microcode`. A virtual machine shows what its host lets through,
    and is not judged.
    What is known of the gain. No figure is published.
    Remedy. install the microcode package of your distribution (`intel-microcode`, `amd64-microcode`, `microcode_ctl`) on
    every node and restart
    Restore. install the previous version of the package and restart
    When to ignore. When all nodes are alike and the firmware cannot be updated.
    Sources. seen on a 2-core VM: spec_rstack_overflow says Vulnerable: Safe RET, no microcode; Linux: Documentation/admin-guide/hw-vuln
    """
    if machine.cpu.hypervisor is None:
        return [Outcome(state="unknown", lacking=("cpu.hypervisor",))]
    if machine.cpu.hypervisor != "none":
        return [Outcome(state="not-applicable", message="the microcode of a virtual machine is its host's")]
    if not machine.kernel.mitigations:
        return [Outcome(state="unknown", lacking=("kernel.mitigations",))]
    bad = [
        name
        for name, said in machine.kernel.mitigations.items()
        if re.search("no microcode", said, re.IGNORECASE)
    ]
    if bad:
        paths = tuple(f"kernel.mitigations[{name}]" for name in bad)
        return [Outcome(state="finding", message=f"no microcode for {', '.join(bad)}", paths=paths)]
    paths = tuple(f"kernel.mitigations[{name}]" for name in machine.kernel.mitigations)
    return [
        Outcome(state="pass", message=f"none of {len(paths)} mitigations lacks its microcode", paths=paths)
    ]
