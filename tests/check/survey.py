"""The 265 rows of the first survey of host settings: where each is judged, or why it is not.

    python tests/check/survey.py docs/decisions/0014-rows-of-the-first-survey.md

writes the page; `test_survey.py` holds it against the checks there are. A row is judged under its own code (`NUMA-03`
as `NUMA03`) unless it stands in ELSEWHERE or DROPPED."""

import sys
from pathlib import Path

ROWS = {
    "BIOS": 11,
    "CPU": 20,
    "NUMA": 14,
    "MEM": 22,
    "KRN": 16,
    "IRQ": 7,
    "PCIE": 14,
    "GPU": 26,
    "NVL": 9,
    "DRV": 13,
    "RDMA": 14,
    "NET": 21,
    "STO": 16,
    "LIM": 9,
    "CON": 17,
    "ENV": 24,
    "SW": 12,
}
"""Family -> how many rows it has; they are numbered from 1."""

ELSEWHERE = {
    "NUMA-11": ("PCIE10", "the nearest adapter of each GPU, by the path between them"),
    "MEM-06": ("MEM05", "every size of huge pages is counted, 1 GiB too"),
    "KRN-13": ("SW03", "a kernel with a known fault is a row of its table; a module built for another kernel is DRV01"),
    "RDMA-10": (
        "PCIE10",
        "a rail that is missing leaves its GPU without an adapter near it, one that is down is RDMA01; how many rails a "
        "machine should have stands nowhere on it, but for instances of AWS (RDMA12)",
    ),
    "NVL-07": ("ENV11", "`NCCL_NVLS_ENABLE=0` is a note among the other switches"),
    "NET-04": ("KRN03", "the kernel refuses a name it does not know, so the value in force is always one it has; what a file "
     "asked for in vain is found there"),
    "SW-01": ("DRV02", "PyTorch, CUDA and the driver against each other; versions with a fault are SW03"),
    "SW-11": ("CPU20", "two services that set the same knobs"),
}  # fmt: skip
"""Row -> the check that judges it, and how."""

DROPPED = {
    "BIOS-05": "no file shows the state of the data fabric; only the latency of an idle and of a loaded memory could tell, "
    "and a look loads nothing",
    "BIOS-06": "the width of the links between sockets is not shown to the system, and no figure a model is published that a "
    "measured bandwidth could be held against",
    "BIOS-10": "one machine cannot tell whether it drifts: it takes several, and `wellfed check` looks at one",
    "CPU-11": "it warns of a false alarm and is none to judge: `max_cstate` of intel_idle counts only where that driver is in "
    "use; a test of CPU07 and CPU10",
    "CPU-13": "speed against security, without a figure for the gain; wellfed never proposes `mitigations=off`",
    "KRN-04": "no source says what autogrouping costs a job on GPUs, and jobs in a group with the cpu controller are not "
    "autogrouped (sched(7))",
    "KRN-08": "every value in use (250 to 1000 ticks a second) is called good: there is nothing to find",
    "KRN-12": "locking the kernel down is a choice, and only takes cures away: a write that is refused is said when it is "
    "tried",
    "KRN-16": "whether user namespaces are wanted cannot be seen, and a default made for security must not alarm",
    "GPU-07": "it takes a second of real work on the GPU, and a look starts none; under load GPU03 says why clocks are low",
    "DRV-12": "whether GPUDirect Storage is wanted cannot be seen, and without it everything works as designed",
    "RDMA-04": "waits and marks for congestion mean something only as differences under load, and no limit is published",
    "RDMA-11": "a bandwidth over the network takes two machines and traffic",
    "RDMA-14": "the adapter's own settings are read by opening it as root with a tool of its maker, and no values are "
    "published to hold them against",
    "NET-03": "neither a small nor a large default of socket buffers has a published effect here",
    "NET-05": "since TCP paces itself (Linux 4.13) no published figure ties the queueing discipline to work on GPUs",
    "NET-14": "pause frames are right or wrong by the plan of the whole fabric, which one machine does not know",
    "STO-02": "the kernel's depth follows the device, and no figure is published for another",
    "STO-10": "which folder holds checkpoints cannot be seen from the machine; a trace shows what saving costs",
    "STO-15": "whether io_uring is wanted cannot be seen, and switching it off is a default made for security",
    "STO-16": "whether the dataset is in memory takes its path, and which path that is cannot be seen",
    "CON-09": "a fact and no fault: both versions of control groups are read, and no check says that one is bad",
    "CON-10": "what can be written here decides which cures are possible, and is no fault of its own",
    "CON-16": "it says which checks apply, and is in each of them that leaves virtual machines out (term `vm`)",
    "CON-17": "it says how to compute and is in the checks: amounts are compared with the total of the same look, so "
    "memory that grows changes no verdict",
    "SW-04": "the list of architectures takes an import of PyTorch, seconds and a context on the GPU; a look does neither",
    "SW-05": "no published figure says that a version of Python starves a GPU",
    "SW-06": "it asks for a report only: C library and allocator are facts of `wellfed inspect`",
}  # fmt: skip
"""Row -> why no check judges it."""

BEYOND = {
    "GPU27": "who else uses the GPU now",
    "GPU28": "results of DCGM that are handed over",
    "NVL10": "a log of the fabric manager that is handed over",
    "CON18": "WSL2",
    "CON19": "containers without root",
    "CON20": "gVisor",
    "CPU21": "who else uses the cores now",
    "NET22": "who else uses the adapter now",
    "ENV25": "what the facts speak for among NCCL's variables",
}
"""Checks that no row of the survey asked for."""


def rows() -> tuple[str, ...]:
    return tuple(f"{family}-{number:02}" for family, count in ROWS.items() for number in range(1, count + 1))


def own_codes() -> dict[str, str]:
    """Row -> code, of the rows that are judged under their own."""
    return {row: row.replace("-", "") for row in rows() if row not in ELSEWHERE and row not in DROPPED}


_HEAD = """# 14. Each row of the first survey is a check, or has a reason

**Context.** {total} rows of settings, states and counters were collected from tuning guides, health checks and issues before a
check was written. Some ask for what one look at one machine cannot tell.

**Choice.** {own} are checks under their own number, {elsewhere} are judged by another check, {dropped} are none: a rule that
cannot see what it judges, or that no source calls good or bad, would alarm by chance. `tests/check/test_survey.py` holds
this page against the checks there are; `tests/check/survey.py` writes it.

**What would change our mind.** A published figure, or a file that shows what is not shown today.
"""


def page() -> str:
    own = own_codes()
    head = _HEAD.format(total=len(rows()), own=len(own), elsewhere=len(ELSEWHERE), dropped=len(DROPPED))
    parts = [head, "## Not judged\n", "| row | why no check judges it |", "|---|---|"]
    parts += [f"| {row} | {why} |" for row, why in DROPPED.items()]
    parts += ["", "## Judged by another check\n", "| row | check | how |", "|---|---|---|"]
    parts += [f"| {row} | {code} | {how} |" for row, (code, how) in ELSEWHERE.items()]
    parts += ["", "## Judged under their own number\n", "| rows | checks |", "|---|---|"]
    for family in ROWS:
        codes = [code for row, code in own.items() if row.startswith(f"{family}-")]
        parts.append(f"| {family} | {' '.join(codes)} |")
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), "utf-8")
