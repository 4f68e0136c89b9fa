"""Machines in working order, of every kind that people run: none of them is alarmed, and each is judged all the same."""

from collections.abc import Callable
from typing import Any

import pytest
from fleet import FLEET
from host_cases import machine
from random_machines import hide

from wellfed.check import INTENTS, judge_machine

Make = Callable[[], dict[str, Any]]
WARNED = {("desk", "latency"): {"CPU02"}}
"""What is worth a warning all the same: a desktop's power setting, when it is to answer fast."""
PASSES = {"hgx": 135, "busy": 140, "slurm": 135, "pod": 90, "grace": 120, "desk": 80}
"""How many checks at least must have seen enough to pass: a machine of which nothing is known is quiet as well."""


@pytest.mark.parametrize("intent", INTENTS)
@pytest.mark.parametrize("make", FLEET, ids=lambda make: make.__name__)
def test_a_machine_in_working_order_is_not_alarmed(make: Make, intent: str) -> None:
    verdicts = judge_machine(machine(make()), intent=intent)
    loud = {v.code: v.message for v in verdicts if v.verdict == "finding" and v.severity != "info"}
    assert loud.keys() == WARNED.get((make.__name__, intent), set()), loud


@pytest.mark.parametrize("make", FLEET, ids=lambda make: make.__name__)
def test_it_is_judged_all_the_same(make: Make) -> None:
    verdicts = judge_machine(machine(make()))
    assert sum(v.verdict == "pass" for v in verdicts) >= PASSES[make.__name__]


@pytest.mark.parametrize("make", FLEET, ids=lambda make: make.__name__)
def test_notes_for_training_are_few(make: Make) -> None:
    """A desktop has its defaults; a server that its vendor set up has nothing to be told but what it is."""
    notes = {v.code for v in judge_machine(machine(make())) if v.verdict == "finding"}
    known = {"grace": {"NUMA08", "MEM22"}, "desk": {"CPU01", "CPU07", "MEM13", "KRN01", "GPU02", "LIM02"}}
    assert notes == known.get(make.__name__, set())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("make", FLEET, ids=lambda make: make.__name__)
def test_what_could_not_be_seen_alarms_nobody(make: Make, seed: int) -> None:
    """Whatever part of a machine in working order is hidden, nothing is found that is not there, nor good that is not."""
    whole, intent = machine(make()), INTENTS[seed % len(INTENTS)]
    full = {v.code: v.verdict for v in judge_machine(whole, intent=intent)}
    for verdict in judge_machine(hide(whole, seed), intent=intent):
        assert verdict.verdict in ("not-judged", full[verdict.code]), verdict
