"""Benchmarks in a process of their own: what they find survives what they do to it."""

from pathlib import Path

import pytest

from wellfed.bench.isolate import Child
from wellfed.bench.setup import Setup
from wellfed.model import Machine

PROGRAM = """
import os, sys, time
import wellfed.bench.isolate as isolate
from wellfed.model import Ceiling

def ceiling(id):
    return Ceiling(id=id, title=id, method="", hardware_key="", unit="s", best=1, median=1, p10=1, p90=1, n=3, cv=0)

class Fake:
    def __init__(self, act=None):
        self.act = act
    def measure(self, setup, budget_s):
        print("noise on stdout")
        yield ceiling(f"first-{setup.folder.name}")
        if self.act:
            self.act()
        yield ceiling("second")

def fail(error):
    raise error

def cry():
    print("CUDA said no", file=sys.stderr, flush=True)
    os.kill(os.getpid(), 11)

isolate.benchmarks = lambda: {
    "good": Fake(), "crash": Fake(cry), "leave": Fake(lambda: os._exit(3)), "hang": Fake(lambda: time.sleep(60)),
    "raise": Fake(lambda: fail(RuntimeError("CUDA error: out of memory\\nmore"))),
    "os": Fake(lambda: fail(OSError(28, "No space left on device", "/x"))),
}
isolate.serve()
"""


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(machine=Machine(), folder=tmp_path / "data")


def test_what_was_found_before_a_crash_is_kept_and_the_next_one_runs(setup: Setup) -> None:
    with Child(setup, program=PROGRAM) as child:
        for name, says in {
            "good": None,
            "crash": "its process was ended by signal 11 (SIGSEGV): CUDA said no",
            "raise": "CUDA error: out of memory",
            "os": "No space left on device (/x)",
            "leave": "its process ended with exit code 3",
        }.items():
            found, reason = child.measure(name, 0.1)
            assert [c.id for c in found] == (["first-data", "second"] if says is None else ["first-data"]), (
                name
            )
            assert reason == says or (says and reason and reason.startswith(says)), name
        assert child.measure("good", 0.1)[1] is None, "after a crash there is a new child"


def test_one_that_hangs_is_stopped(setup: Setup) -> None:
    with Child(setup, program=PROGRAM, start_s=2.0) as child:
        found, reason = child.measure("hang", 0.01)
        assert reason is not None and reason.startswith("it did not end and was stopped")
        assert len(found) <= 1


def test_a_child_that_never_starts_is_a_reason(setup: Setup) -> None:
    with Child(setup, program="raise SystemExit('no torch for you')") as child:
        assert child.measure("good", 0.1) == ([], "its process ended with exit code 1: no torch for you")


def test_no_child_is_started_for_nothing(setup: Setup) -> None:
    with Child(setup, program="raise SystemExit(1)") as child:
        assert child._process is None
