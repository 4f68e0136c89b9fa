"""A log of many GPU errors: the one that counts is among those kept, wherever it stands."""

from pathlib import Path

import pytest

from wellfed.check import judge_machine
from wellfed.host import host_of, look
from wellfed.host.evidence import facts_of
from wellfed.host.kernel_log import XIDS_KEPT, xid_lines
from wellfed.model import Machine, Verdict

LOST = "[1.000000] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus."
FATAL = "[1.500000] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up"


def programs(count: int, start: int = 2) -> list[str]:
    """Errors of programs that lost their GPU, of five numbers on eight GPUs."""
    return [
        f"[{start + n}.000000] NVRM: Xid (PCI:0000:{n % 8:02x}:00): {(13, 31, 43, 45, 154)[n % 5]}, pid={n}, x"
        for n in range(count)
    ]


def verdict(machine: Machine, code: str) -> Verdict:
    return next(v for v in judge_machine(machine) if v.code == code)


@pytest.mark.parametrize("after", [0, 10, 49, 50, 51, 5000])
@pytest.mark.parametrize("before", [0, 3, 400])
def test_a_lost_gpu_is_found_among_any_number_of_errors_of_programs(before: int, after: int) -> None:
    log = "\n".join([*programs(before), LOST, FATAL, *programs(after)])
    machine = look(host_of({"/proc/cpuinfo": "processor\t: 0\n"}, commands={"dmesg": log}))
    assert machine.kernel.xids is not None
    assert len(machine.kernel.xids) <= XIDS_KEPT
    assert LOST in machine.kernel.xids
    found = verdict(machine, "GPU12")
    assert (found.verdict, found.severity) == ("finding", "error")
    assert "Xid 79" in found.message
    assert ("at least" in found.message) == (before + after + 2 >= XIDS_KEPT)
    assert verdict(machine, "GPU13").severity == "error"


def test_a_saved_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "\n".join([LOST, *(f"[9.{n:06d}] usb 1-1: new device" for n in range(150_000))])
    )
    (xids,) = (fact.value for fact in facts_of(tmp_path / "log") if fact.key == "kernel.xids")
    assert [line for line in xids if "79" in line]


def test_few_lines_are_all_kept_and_many_stay_in_order() -> None:
    assert xid_lines(programs(XIDS_KEPT)) == tuple(programs(XIDS_KEPT))
    many = programs(1000)
    kept = xid_lines(many)
    assert len(kept) == XIDS_KEPT
    assert list(kept) == sorted(kept, key=many.index)
    assert {line.split("): ")[1].split(",")[0] for line in kept} == {"13", "31", "43", "45", "154"}
    assert many[-1] in kept
