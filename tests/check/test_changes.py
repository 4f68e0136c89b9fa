"""The `change` rows of checks, and what is made of them."""

import re
from typing import Any

import pytest
from cure_cases import faulty, layers, over
from host_cases import CASES, ceilings, machine
from table_types import NUMBER, TEXT, TRUTH, check

from wellfed.apply.kinds import KINDS as APPLIED
from wellfed.apply.policy import consent_of
from wellfed.check import INTENTS, host_codes, judge_machine, manual
from wellfed.check.changes import INSTRUCTION, KINDS, changes_of, cures, exact
from wellfed.check.table import tables, terms
from wellfed.model import Machine
from wellfed.model.base import replace

PAGES = {code: manual(code) for code in host_codes()}
WITH_ROWS = [code for code in host_codes() if manual(code).change]
EACH = {"NET02": "nics"}
"""Collections that functions judge item by item; a table says it itself."""


def test_every_kind_is_one_that_can_be_applied() -> None:
    assert set(KINDS) == set(APPLIED)


@pytest.mark.parametrize("code", WITH_ROWS)
def test_rows_are_well_written(code: str) -> None:
    page = manual(code)
    each = tables()[code].entry.each if code in tables() else EACH.get(code)
    for row in page.change:
        assert row.kind in KINDS
        for text in (row.target, row.new):
            assert (
                text.strip() + ("\n" if (row.kind, text) == ("dropin", row.new) else "") == text
                and text.strip()
            )
            for expression in re.findall(r"\{([^{}]+)\}", text):
                assert check(expression, terms=terms(), each=each).name in (TEXT, NUMBER), expression
            assert "{" not in re.sub(r"\{[^{}]+\}", "", text)
        if row.when is not None:
            assert check(row.when, terms=terms(), each=each).name == TRUTH
        assert ("*" not in row.new or row.kind == "dropin") and re.fullmatch(r"@[\w.]+|[^@]*", row.new)


@pytest.mark.parametrize("code", WITH_ROWS)
def test_what_is_set_can_be_taken_back_without_a_reboot(code: str) -> None:
    page = manual(code)
    assert page.reversible in ("live", "live-nextproc"), page.reversible
    assert page.risk in ("safe", "restart", "unsafe") and page.remedy and page.restore
    assert all(row.risk != "reboot" for row in page.change)


def changes(code: str, layer: object, intent: str = "") -> list[tuple[str, str, str]]:
    intent = intent or (manual(code).intents or INTENTS)[0]
    layer = dict(layer)  # type: ignore[call-overload]
    gaps = layer.pop("gaps", {})
    seen: Machine = replace(machine(layer), gaps=gaps)
    verdicts = [v for v in judge_machine(seen, ceilings=ceilings(layer), intent=intent) if v.code == code]
    return [(c.kind, c.target, c.new) for c in changes_of(seen, verdicts, intent, PAGES)]


@pytest.mark.parametrize("code", CASES)
def test_every_finding_with_a_remedy_gets_a_change_or_an_instruction(code: str) -> None:
    found = changes(code, CASES[code].bad)
    assert found
    assert all(
        kind == INSTRUCTION or ("{" not in target + text and "?" not in target)
        for kind, target, text in found
    )
    assert changes(code, CASES[code].good) == []


def test_values_follow_the_intent() -> None:
    swapping = CASES["MEM07"].bad
    assert changes("MEM07", swapping) == [("sysctl", "vm.swappiness", "10")]
    assert changes("MEM07", swapping, "latency") == [("sysctl", "vm.swappiness", "1")]


def test_only_the_items_that_are_bad_are_changed() -> None:
    disks = [
        {"name": name, "read_ahead_kb": size} for name, size in (("sda", 16), ("nvme0n1", 256), ("sdb", 32))
    ]
    assert changes("STO03", {"disks": disks}) == [
        ("block", "sda/queue/read_ahead_kb", "128"),
        ("block", "sdb/queue/read_ahead_kb", "128"),
    ]


UNASKED = [
    "CPU01", "CPU02", "CPU03", "CPU08", "CPU19", "GPU02", "IRQ04", "IRQ05", "IRQ07",
    "KRN05", "KRN06", "KRN10", "KRN11", "MEM01", "MEM02", "MEM03", "MEM07", "MEM11", "MEM12", "MEM20", "MEM21",
    "NET02", "NET06", "NET07", "NET08", "NET18", "NUMA05", "NUMA06", "PCIE09", "STO01", "STO03", "STO04", "STO09", "STO13",
]  # fmt: skip
"""Checks of which something is set without anybody being asked. One is added here when it can't end or slow a job that
runs, takes back nothing that only a person can have set for a reason, and comes off wholly."""


def test_what_is_set_unasked_is_agreed() -> None:
    found = set()
    for code in host_codes():
        for one in faulty(code) if manual(code).change or code in cures() else ():
            for intent in manual(code).intents or INTENTS:
                verdicts = [v for v in judge_machine(one, intent=intent) if v.code == code]
                made = changes_of(one, verdicts, intent, {code: manual(code)})
                found |= {c.code for c in made if consent_of(c) == "auto"}
    assert sorted(found) == UNASKED


def test_an_interrupt_that_is_near_stays_on_its_cpu() -> None:
    layer = over(layers("IRQ01")[0], {})
    layer = {
        **layer,
        "irqs": [*layer["irqs"], {**layer["irqs"][0], "number": 99, "effective": [6], "count": 1}],
    }
    made = changes("IRQ01", layer)
    assert made and "99" not in [target for _, target, _ in made]
    assert {target for _, target, _ in made} == {str(irq["number"]) for irq in layer["irqs"][:-1]}


ARM = {"cpu": {"arch": "aarch64"}, "kernel": {"aspm_policy": "default"}}


@pytest.mark.parametrize(
    "code,more,risks",
    [
        ("NUMA05", {"kernel": {"sysctls": {"kernel.numa_balancing": "1"}}}, ["safe"]),
        ("NUMA05", {"kernel": {"sysctls": {"kernel.numa_balancing": "2"}}}, ["unsafe"]),
        ("STO01", {"disks": [{"scheduler": "mq-deadline"}]}, ["safe"]),
        ("STO01", {"disks": [{"scheduler": "bfq"}]}, ["unsafe"]),
        ("MEM20", {"gpus": [{"c2c": True}]}, ["safe"]),
        ("MEM20", {"gpus": [{"c2c": False}]}, ["unsafe"]),
    ],
)
def test_what_only_some_machines_can_do_without(code: str, more: dict[str, Any], risks: list[str]) -> None:
    one = machine(over(layers(code)[0], more))
    intent = (manual(code).intents or INTENTS)[0]
    verdicts = [v for v in judge_machine(one, intent=intent) if v.code == code]
    assert [c.risk for c in changes_of(one, verdicts, intent, {code: manual(code)})] == risks


def test_a_switch_of_all_links_is_not_offered_where_it_reaches_a_gpu_that_hangs() -> None:
    layer = over(layers("PCIE02")[0], ARM)
    card = layer["pci"][0]
    adapter = {**card, "class_code": "0x020000", "vendor": "0x15b3", "width_max": 16, "speed_max_gts": 32.0}
    one = machine({**layer, "pci": [adapter, {**card, "class_code": "0x030200", "vendor": "0x10de"}]})
    verdicts = [v for v in judge_machine(one, intent="training") if v.code == "PCIE02"]
    assert [v.verdict for v in verdicts] == ["finding"]
    assert [c.kind for c in changes_of(one, verdicts, "training", {"PCIE02": manual("PCIE02")})] == [
        INSTRUCTION
    ]


def test_pages_in_use_are_kept() -> None:
    pools = [
        {"page_bytes": 2 << 20, "total": 8000, "free": 7000},
        {"page_bytes": 1 << 30, "total": 2, "free": 0},
    ]
    layer = {"memory": {"total_bytes": 64 << 30, "huge_pools": pools}}
    assert changes("MEM05", layer) == [("hugepages", "2048kB", "1000")]


@pytest.mark.parametrize("driver,knob", [("intel_pstate", "no_turbo"), ("acpi-cpufreq", "boost")])
def test_the_switch_is_the_drivers(driver: str, knob: str) -> None:
    ((_, target, _),) = changes("CPU04", {"cpu": {"boost": False, "scaling_driver": driver}})
    assert target.endswith(knob)


def test_without_what_a_row_needs_there_is_an_instruction() -> None:
    ((kind, _, text),) = changes("CPU04", {"cpu": {"boost": False}})
    assert kind == INSTRUCTION and "no_turbo" in text


def test_numbers_are_not_rounded() -> None:
    assert [exact(value) for value in (True, 123456789.0, 0.5, 10**12)] == [
        "1",
        "123456789",
        "0.5",
        str(10**12),
    ]
