"""Where firmware, processor and memory look wrong and are not."""

from typing import Any

import msgspec
import pytest
from host_cases import CASES

from wellfed.check import judge_machine
from wellfed.model import Machine

HOSTS_OWN = ("BIOS02", "BIOS04", "BIOS07", "BIOS09", "BIOS11", "CPU02", "CPU03", "CPU06", "CPU08", "CPU09")
"""What only the host of a virtual machine can see or set."""
INTENT = {"CPU03": "latency", "CPU08": "latency"}


def verdict(code: str, tree: dict[str, Any], intent: str = "training") -> Any:
    machine = msgspec.convert(tree, Machine)
    return next(one for one in judge_machine(machine, intent=intent) if one.code == code)


@pytest.mark.parametrize("code", HOSTS_OWN)
@pytest.mark.parametrize("hypervisor", ["kvm", "microsoft", "wsl"])
def test_a_guest_is_not_blamed_for_its_host(code: str, hypervisor: str) -> None:
    bad = CASES[code].bad
    cpu = {"arch": "x86_64", **bad.get("cpu", {}), "hypervisor": hypervisor}
    gpus = [{"index": 0, **gpu} for gpu in bad.get("gpus", [])]
    said = verdict(code, {**bad, "cpu": cpu, "gpus": gpus}, INTENT.get(code, "training"))
    assert (said.verdict, said.reason) == ("not-judged", "not-applicable")


def test_gb10_ships_with_small_pages() -> None:
    tree = {
        "cpu": {"arch": "aarch64", "page_size_bytes": 4096},
        "memory": {"dmi_product": "NVIDIA NVIDIA_DGX_Spark"},
    }
    assert verdict("CPU18", tree).verdict == "not-judged"


def test_firmware_that_lists_cpus_to_plug_in_loses_none() -> None:
    cpu = {
        "arch": "x86_64",
        "hypervisor": "none",
        "smt": "on",
        "possible": 512,
        "logical": 128,
        "offline": [],
    }
    assert verdict("BIOS07", {"cpu": cpu, "kernel": {"iommu_groups": 0}}).verdict == "pass"


def test_heat_of_unknown_frequency_is_a_note() -> None:
    cpu = {"arch": "x86_64", "hypervisor": "none", "package_throttles": 3, "core_throttles": 3}
    assert verdict("CPU06", {"cpu": cpu}).severity == "info"


def test_a_memory_expander_that_is_demoted_to_is_a_note() -> None:
    numa = [{"id": 0, "cpus": [0]}, {"id": 1, "cpus": []}]
    gpus = [{"index": 0, "c2c": False}]
    said = verdict("MEM20", {"numa": numa, "gpus": gpus, "memory": {"demotion_enabled": True}})
    assert (said.verdict, said.severity) == ("finding", "info")


def test_cores_that_are_alike_are_no_mixture() -> None:
    tree = {
        "cpu": {"threads": [{"id": 0}, {"id": 1}]},
        "processes": [{"pid": 7, "gpus": [0], "allowed": [0, 1]}],
    }
    assert verdict("CPU15", tree).reason == "not-applicable"
