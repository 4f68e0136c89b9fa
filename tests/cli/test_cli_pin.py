"""`wellfed pin plan` on a recorded machine."""

import json
import os
import tarfile
from pathlib import Path

import pytest


@pytest.fixture
def box(tmp_path: Path) -> str:
    """Two nodes of two CPUs, no GPU."""
    root = tmp_path / "box"
    files = {"sys/devices/system/cpu/online": "0-3", "sys/devices/system/cpu/present": "0-3"}
    for cpu in range(4):
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"] = f"{cpu}"
        files[f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id"] = f"{cpu // 2}"
    for node in range(2):
        files[f"sys/devices/system/node/node{node}/cpulist"] = f"{2 * node}-{2 * node + 1}"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    target = tmp_path / "box.tar"
    with tarfile.open(target, "w") as tar:
        tar.add(root, ".")
    return os.fspath(target)


def test_the_plan_as_text(run_cli, box: str) -> None:
    result = run_cli("pin", "plan", "--host", box, "--mode", "exclusive", "--ranks", "2")
    assert result.code == 0, result.err
    assert "2 ranks, 0 GPUs, mode exclusive: 2 of 4 CPUs each" in result.out
    assert "--cpu-bind=mask_cpu:0x3,0xc" in result.out and "--mem-bind=prefer,map_mem:0,1" in result.out
    assert "CPUAffinity=2-3 NUMAPolicy=preferred NUMAMask=1" in result.out
    assert max(map(len, result.out.splitlines())) <= 80


def test_the_plan_as_json(run_cli, box: str) -> None:
    result = run_cli("pin", "plan", "--host", box, "--ranks", "1", "--format", "json")
    found = json.loads(result.out)
    assert list(found) == [
        "schema",
        "asked",
        "mode",
        "gpus",
        "allowed",
        "reserved",
        "ranks",
        "warnings",
        "equivalents",
    ]
    assert list(found["ranks"][0]) == [
        "rank", "gpu", "uuid", "address", "cpus", "other_cpus", "nodes", "memory_policy", "memory_nodes", "nics",
        "environment", "reasons",
    ]  # fmt: skip
    assert found["ranks"][0]["cpus"] == [0, 1, 2, 3] and found["equivalents"][0]["for"] == "torchrun"


@pytest.mark.parametrize(
    ("args", "text"),
    [
        (("--mode", "nice"), "no mode `nice`"),
        (("--memory", "fast"), "no memory policy `fast`"),
        (("--ranks", "0"), "0 ranks are none"),
        (("--cpus", "a-b"), "`a-b` is no list of CPUs"),
        (("--cpus", "99"), "no CPU is left"),
    ],
)
def test_errors_are_one_line_and_a_hint(run_cli, box: str, args: tuple[str, ...], text: str) -> None:
    result = run_cli("pin", "plan", "--host", box, *args)
    lines = result.err.splitlines()
    assert result.code == 2 and text in lines[0] and lines[1].startswith("hint: ") and len(lines) == 2


def test_the_library_says_the_same(box: str) -> None:
    import wellfed

    placed = wellfed.pin_plan(box, mode="exclusive", ranks=2)
    assert [rank.cpus for rank in placed.ranks] == [(0, 1), (2, 3)]
