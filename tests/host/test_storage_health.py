"""Software RAID, and what NVMe disks say of themselves."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from wellfed.host.archive import Link
from wellfed.host.arrays import arrays, read_arrays
from wellfed.host.assemble import assemble
from wellfed.host.recorded import host_of, open_recorded
from wellfed.host.storage import read_storage
from wellfed.model.machine import Machine

MDSTAT = """Personalities : [raid0] [raid1] [raid6]
md7 : active raid6 sdb1[0] sde1[3] sdd1[2] sdc1[1](F)
      7813735424 blocks super 1.2 level 6, 512k chunk, algorithm 2 [4/3] [U_UU]
      bitmap: 0/30 pages [0KB], 65536KB chunk

md8 : active (auto-read-only) raid1 sdb1[1] sda1[0]
      195310144 blocks [2/2] [UU]
      [=>...................]  resync =  8.5% (16775552/195310144) finish=17.0min

md12 : active raid0 sdc2[0] sdd2[1]
      3886394368 blocks super 1.2 256k chunks

md4 : inactive raid1 sda3[0](F) sdb3[1](S)
      4883648 blocks [2/2] [UU]

md219 : inactive sdb[2](S) sdc[1](S) sda[0](S)
        7932 blocks super external:imsm

unused devices: <none>
"""


def test_arrays() -> None:
    found = {one["name"]: (one["level"], one["degraded"], one["chunk_kb"]) for one in arrays(MDSTAT)}
    assert found == {
        "md7": ("raid6", 1, 512),
        "md8": ("raid1", 0, None),
        "md12": ("raid0", None, 256),
        "md4": ("raid1", None, None),
    }


def test_no_array_and_no_driver_are_two_things() -> None:
    none = assemble(read_arrays(host_of({"/proc/mdstat": "Personalities : \nunused devices: <none>\n"})))
    assert none.arrays == () and none.facts["arrays"].status == "ok"
    assert assemble(read_arrays(host_of({}))).gaps["arrays"].startswith("missing")


@pytest.mark.parametrize(
    "text", ["", "md", "md0 : ", "md0 : active\n[1/2]", "md0 : active raid1 x\n [1/99999]", "\0"]
)
def test_odd_texts_break_nothing(text: str) -> None:
    assert all((one["degraded"] or 0) >= 0 for one in arrays(text))


@pytest.mark.corpus
def test_the_arrays_of_a_public_fixture() -> None:
    host = open_recorded(str(Path(os.environ["WELLFED_CORPUS"]) / "host/procfs/fixtures.ttar"))
    found = {one.name: one.degraded for one in assemble(read_arrays(host)).arrays}
    assert len(found) == 17 and "md219" not in found, "of 18 one is a container of the firmware's RAID"
    assert {name: missing for name, missing in found.items() if missing} == {"md6": 1, "md7": 1, "md42": 1}


# -- disks -------------------------------------------------------------------------------------------------


def disks(answer: str | None, name: str = "nvme0n1", **queue: str) -> Machine:
    device = "/sys/devices/pci0000:40/0000:40:01.1/0000:41:00.0/nvme/nvme0"
    files: dict[str, Any] = {
        f"/sys/block/{name}": Link(f"{device}/{name}"),
        f"{device}/{name}/size": "7501476528",
        **{f"{device}/{name}/queue/{key}": text for key, text in queue.items()},
    }
    commands = {} if answer is None else {f"nvme-smart@{name[:5]}": answer}
    return assemble(read_storage(host_of(files, commands=commands)))


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"critical_warning": 0, "percent_used": 3, "media_errors": 0}, (0, 3, 0)),
        ({"critical_warning": {"value": 2, "temp_threshold": 1}, "percent_used": 101, "media_errors": "12"}, (2, 101, 12)),
        ({"critical_warning": 4, "percentage_used": 7}, (4, 7, None)),
        ({"critical_warning": True, "percent_used": [], "media_errors": -1}, (None, None, None)),
        ([], (None, None, None)),
    ],
)  # fmt: skip
def test_health(answer: Any, said: tuple[int | None, ...]) -> None:
    found = disks(json.dumps(answer))
    (disk,) = found.disks
    assert (disk.smart_warning, disk.smart_used_pct, disk.smart_media_errors) == said
    for field, value in zip(("smart_warning", "smart_used_pct", "smart_media_errors"), said, strict=True):
        assert (value is None) == (f"disks[0].{field}" in found.gaps)


def test_without_nvme_cli_there_is_a_reason() -> None:
    assert "disks[0].smart_warning" in disks(None).gaps


def test_other_disks_are_not_asked() -> None:
    found = disks(None, name="sda")
    assert "disks[0].smart_warning" not in found.facts


def test_queue_and_sleep() -> None:
    found = disks(None, nomerges="2", rq_affinity="1")
    assert (found.disks[0].nomerges, found.disks[0].rq_affinity) == (2, 1)
    path = "/sys/module/nvme_core/parameters/default_ps_max_latency_us"
    assert assemble(read_storage(host_of({path: "100000\n"}))).kernel.nvme_ps_max_latency_us == 100_000
