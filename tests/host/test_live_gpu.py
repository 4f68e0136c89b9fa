"""On a machine with an NVIDIA GPU: what we read through NVML is what `nvidia-smi --query-gpu` prints there."""

import csv
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from wellfed.check import INTENTS, judge_machine
from wellfed.host import look, open_host, record
from wellfed.model import Machine
from wellfed.model.devices import Gpu

pytestmark = pytest.mark.gpu

Row = dict[str, str]
# nvidia-smi's name of a value, and the same value as we read it, in the form in which nvidia-smi prints it.
QUERIES: dict[str, Callable[[Gpu], Any]] = {
    "index": lambda gpu: gpu.index,
    "name": lambda gpu: gpu.name,
    "driver_version": lambda gpu: gpu.driver,
    "uuid": lambda gpu: gpu.uuid,
    "vbios_version": lambda gpu: gpu.vbios,
    "memory.total": lambda gpu: None if gpu.memory_bytes is None else gpu.memory_bytes >> 20,
    "ecc.mode.current": lambda gpu: switch(gpu.ecc),
    "ecc.mode.pending": lambda gpu: switch(gpu.ecc_pending),
    "mig.mode.current": lambda gpu: switch(gpu.mig) if gpu.mig_capable else None,
    "persistence_mode": lambda gpu: switch(gpu.persistence),
    "pcie.link.gen.max": lambda gpu: gpu.pcie_gen_max,
    "pcie.link.width.max": lambda gpu: gpu.pcie_width_max,
    "clocks.max.sm": lambda gpu: gpu.sm_max_mhz,
    "clocks.max.memory": lambda gpu: gpu.mem_max_mhz,
    "power.limit": lambda gpu: watts(gpu.power_limit_w),
    "power.default_limit": lambda gpu: watts(gpu.power_default_w),
    "power.max_limit": lambda gpu: watts(gpu.power_max_w),
}


def switch(value: bool | None) -> str | None:
    return None if value is None else "Enabled" if value else "Disabled"


def watts(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


@pytest.fixture(scope="module")
def printed() -> list[Row]:
    program = shutil.which("nvidia-smi")
    if program is None:
        pytest.skip("the driver is loaded, but nvidia-smi is not installed")
    done = subprocess.run(
        [program, f"--query-gpu={','.join(QUERIES)}", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [
        dict(zip(QUERIES, map(str.strip, row), strict=True)) for row in csv.reader(done.stdout.splitlines())
    ]


@pytest.fixture(scope="module")
def machine() -> Machine:
    return look(open_host(None))


def test_every_gpu_is_seen(machine: Machine, printed: list[Row]) -> None:
    assert len(machine.gpus) == len(printed) > 0
    assert machine.facts["gpus[0].name"].source == "NVML"


@pytest.mark.parametrize("query", QUERIES)
def test_nvml_says_what_nvidia_smi_prints(machine: Machine, printed: list[Row], query: str) -> None:
    for gpu, row in zip(machine.gpus, printed, strict=True):
        value = QUERIES[query](gpu)
        said = None if row[query].strip("[]") in ("N/A", "Not Supported") else row[query]
        assert (None if value is None else str(value)) == said


def test_it_replays_and_is_judged_the_same(machine: Machine, tmp_path: Path) -> None:
    record(open_host(None), tmp_path / "box.tar")
    again = look(open_host(str(tmp_path / "box.tar")))
    assert again.facts.keys() == machine.facts.keys()
    for key, fact in machine.facts.items():
        assert again.facts[key].status == fact.status, key
    for intent in INTENTS:
        live, replayed = (judge_machine(m, intent=intent) for m in (machine, again))
        assert {v.code: v.verdict for v in live} == {v.code: v.verdict for v in replayed}


def test_names_of_this_gpu_are_not_in_its_recording(machine: Machine, tmp_path: Path) -> None:
    record(open_host(None), tmp_path / "box.tar")
    data = (tmp_path / "box.tar").read_bytes()
    for gpu in machine.gpus:
        for name in filter(None, (gpu.serial, (gpu.uuid or "").removeprefix("GPU-"))):
            assert name.encode() not in data
