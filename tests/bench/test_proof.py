"""Phases of a proof, with next to no time: what they return and how they fail, never a speed."""

import re
import sys

import pytest

from wellfed.bench import proof
from wellfed.check.table import tables
from wellfed.model import WellfedError


@pytest.mark.parametrize("name", proof.PROBES)
def test_a_cost_is_positive(name: str) -> None:
    if name == "wake-latency" and not sys.platform.startswith("linux"):
        pytest.skip("pins two processes")
    assert proof.PROBES[name].run(0.01) > 0


def test_a_phase_is_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    meter = proof.meter("clock-read", seconds=0.01)
    monkeypatch.setitem(proof.PROBES, "clock-read", proof.Probe("", "ns", lambda _: -1.0))
    assert (meter.id, meter.unit) == ("clock-read", "ns") and meter.run() > 0


def test_what_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WellfedError, match="no measurement `nonsense`"):
        proof.meter("nonsense")
    meter = proof.meter("clock-read", seconds=0.01)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(WellfedError, match="did not run"):
        meter.run()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(WellfedError, match="exit code 1"):
        meter.run()


def test_entries_name_measurements_that_exist() -> None:
    named = {code: row.entry.proof for code, row in tables().items() if row.entry.proof is not None}
    assert {"MEM01", "CPU01"} <= named.keys()
    assert set(named.values()) <= proof.PROBES.keys()
    assert all(tables()[code].entry.reversible == "live" for code in named), (
        "only what is undone at once is proved"
    )


def test_names_are_words() -> None:
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", name) for name in proof.PROBES)
