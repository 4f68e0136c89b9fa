"""What a finding tells to paste, and what it counts."""

import re

import pytest
from host_cases import CASES, machine

from wellfed.check import host_codes, judge_machine, manual

ROOT_ONLY = [
    "sysctl",
    "systemctl",
    "ethtool",
    "modprobe",
    "rmmod",
    "mount",
    "swapoff",
    "swapon",
    "setpci",
    "cpupower",
    "tee",
    "mdadm",
]


@pytest.mark.parametrize("code", host_codes())
def test_commands_that_only_root_may_run_say_so(code: str) -> None:
    """A command that is refused when it is pasted is no remedy."""
    page = manual(code)
    for text in (page.remedy, page.restore):
        for command in re.findall(r"`([^`]+)`", text or ""):
            for part in re.split(r"[|;]|&&|\bdo\b", command):
                words = part.split()
                changes = len(words) > 1 and words[0] in ROOT_ONLY
                asks = (words[:1] == ["sysctl"] and "=" not in part) or words[1:2] in (
                    ["-l"],
                    ["-g"],
                    ["-k"],
                    ["-c"],
                )
                assert not changes or asks, (code, command)


def test_only_isolated_cpus_that_may_be_used_are_named() -> None:
    found = next(
        v
        for v in judge_machine(
            machine({"cpu": {"isolated": [1, 2, 9, 10], "allowed": [0, 1, 2, 3], "logical": 12}})
        )
        if v.code == "CPU14"
    )
    assert found.verdict == "finding"
    assert "(1, 2)" in found.message


def test_a_mixed_machine_is_one_finding_and_its_echo() -> None:
    gpus = [{"vendor": "nvidia", "name": name} for name in ("NVIDIA H100", "NVIDIA L4")]
    found = {v.code: v for v in judge_machine(machine({"gpus": gpus, "environment": {"RANK": "0"}}))}
    assert found["ENV17"].verdict == found["CON13"].verdict == "finding"
    assert found["CON13"].causes == ("ENV17",)


@pytest.mark.parametrize("code", ["CON03", "CPU15", "GPU05", "NUMA01", "NUMA02", "SW07", "LIM08"])
def test_no_finding_names_its_item_twice(code: str) -> None:
    """`GPU 0: GPU 0 is ...`: the item stands before the sentence anyway."""
    found = next(v for v in judge_machine(machine(CASES[code].bad)) if v.code == code)
    head, _, rest = found.message.partition(": ")
    assert found.verdict == "finding"
    assert not rest.startswith(f"{head} "), found.message
