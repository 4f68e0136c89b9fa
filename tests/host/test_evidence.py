"""Files handed over: known by their content, kept without names, refused in words."""

import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from wellfed.check import judge_machine
from wellfed.host import with_evidence
from wellfed.host.assemble import assemble
from wellfed.host.evidence import facts_of
from wellfed.host.fabric_log import read_fabric_log
from wellfed.host.parse import known
from wellfed.host.recorded import host_of
from wellfed.model import Machine, Verdict, WellfedError
from wellfed.model.base import replace
from wellfed.model.devices import Gpu
from wellfed.model.fact import Fact

XID = "[Sun Feb 23 16:24:18 2025] NVRM: Xid (PCI:0000:9b:00): 119, pid=20, name=secret-job, Timeout after 6s"
FM = "[Feb 27 2025 15:10:02] [{}] [tid 12] {}"


def diag(*results: tuple[str, str], version: str = "4.5.0", key: str = "gpu_ids") -> str:
    tests = [{"name": name, "results": [{key: "0", "status": status}]} for name, status in results]
    body = {"test_categories": [{"category": "Hardware", "tests": [None, *tests]}], "version": version}
    return "WARNING: first\n" + json.dumps(
        {"DCGM Diagnostic": {**body, "Driver Version Detected": "580.65.06"}}
    )


def judged(tmp_path: Path, code: str, *texts: str) -> Verdict:
    paths = []
    for i, text in enumerate(texts):
        paths.append(tmp_path / str(i))
        paths[-1].write_text(text)
    return next(v for v in judge_machine(with_evidence(Machine(), paths)) if v.code == code)


@pytest.mark.parametrize("key", ["gpu_ids", "entity_id"])
def test_results_of_dcgm(tmp_path: Path, key: str) -> None:
    bad = judged(tmp_path, "GPU28", diag(("memory", "Fail"), ("pcie", "Skip"), key=key))
    assert (bad.verdict, bad.severity) == ("finding", "warning") and "memory" in bad.message
    assert judged(tmp_path, "GPU28", diag(("memory", "PASS"), ("pcie", "SKIPPED"), key=key)).verdict == "pass"


def test_a_known_fault_of_dcgm_is_a_note(tmp_path: Path) -> None:
    assert judged(tmp_path, "GPU28", diag(("pcie", "Fail"), version="4.4.1")).severity == "info"
    assert judged(tmp_path, "GPU28", diag(("memory", "Fail"), version="4.4.1")).severity == "warning"


def test_a_kernel_log_keeps_no_name(tmp_path: Path) -> None:
    verdict = judged(tmp_path, "GPU12", f"{XID}\n")
    assert verdict.verdict == "finding" and "119" in verdict.message
    (fact,) = facts_of(tmp_path / "0")
    assert "secret" not in f"{fact.value}{fact.raw}"


def test_a_log_of_the_fabric_manager(tmp_path: Path) -> None:
    quiet = FM.format("INFO", "multicast group 0 is freed.")
    note = FM.format("ERROR", "detected NVSwitch non-fatal error 12028 on fid 0")
    fatal = FM.format("ERROR", "detected NVSwitch fatal error 20034 on fid 0")
    assert judged(tmp_path, "NVL10", quiet).verdict == "pass"
    assert judged(tmp_path, "NVL10", note).severity == "info"
    assert judged(tmp_path, "NVL10", note, fatal).severity == "warning"


def own(*lines: str, at: str = "/var/log/fabricmanager.log") -> list[dict[str, str]]:
    stat = f"cpu 1 2 3\nbtime {int(datetime(2025, 2, 27, 12, tzinfo=UTC).timestamp())}\n"
    host = host_of({"/proc/stat": stat, at: ""}, commands={"fabricmanager-log": "\n".join(lines)})
    (fact,) = read_fabric_log(host)
    found: list[dict[str, str]] = fact.value
    return found


def test_the_own_log_of_the_fabric_manager() -> None:
    fatal = FM.format("ERROR", "detected NVSwitch fatal error 20034 on fid 0")
    assert own(at="/var/log/other") == []
    assert [one["result"] for one in own(fatal, fatal)] == ["fatal"]
    assert own(fatal, fatal)[0]["detail"] == "2 lines"
    assert own("no line of a log")[0]["result"] == "Pass"
    before_boot = fatal.replace("Feb 27 2025 15", "Feb 26 2025 15")
    assert own(before_boot)[0]["result"] == "Pass"
    assert own(before_boot, fatal)[0]["detail"] == "1 lines"
    assert own(before_boot.replace("Feb 26 2025", "Feb 99 2025"))[0]["result"] == "fatal"


def test_what_is_handed_over_stands_beside_the_own_log(tmp_path: Path) -> None:
    log = {"tool": "fabricmanager", "test": "NVSwitch error 20034", "result": "fatal", "detail": "1 line"}
    machine = assemble([known("diagnostics", [log], "tail")])
    (tmp_path / "diag").write_text(diag(("memory", "Fail")))
    both = judge_machine(with_evidence(machine, [tmp_path / "diag"]))
    assert {v.code for v in both if v.verdict == "finding"} >= {"NVL10", "GPU28"}


@pytest.mark.parametrize("text", ["", "hello\n", "{}", "[1, 2]", '{"tests": 3}', "\0\0"])
def test_what_is_none_of_them_is_refused_in_words(tmp_path: Path, text: str) -> None:
    (tmp_path / "x").write_text(text)
    with pytest.raises(WellfedError, match="neither"):
        facts_of(tmp_path / "x")
    with pytest.raises(WellfedError):
        facts_of(tmp_path / "not-there")


@pytest.mark.corpus
def test_real_logs() -> None:
    corpus = os.environ.get("WELLFED_CORPUS")
    if not corpus:
        pytest.skip("WELLFED_CORPUS is not set")
    nvidia = Path(corpus) / "host/gpud/components/accelerator/nvidia"
    (log,) = facts_of(nvidia / "fabric-manager/testdata/fabricmanager.log")
    assert [(item["test"], item["result"]) for item in log.value] == [("NVSwitch error 12028", "non-fatal")]
    (kernel,) = facts_of(nvidia / "xid/testdata/dmesg-with-xid-119.log")
    assert len(kernel.value) == 5 and all(": 119" in line for line in kernel.value)
    memory = Path(corpus) / "host/gpud/components/memory/testdata/dmesg.decode.iso.log"
    xids = {fact.key: fact.value for fact in facts_of(memory)}["kernel.xids"]
    assert len(xids) == memory.read_text().count("NVRM: Xid") > 10
    azure = Path(corpus) / "host/azurehpc-health-checks/test/data"
    (flaps,) = facts_of(azure / "1dev_6flap_syslog")
    assert (flaps.key, flaps.value) == ("kernel.events[link-flap]", 6)
    for name in ("bad_nvsmi8_output.txt", "orig_nvsmi8_output.txt"):
        said = re.findall(r"Pending Page Blacklist\s*: (\w+)", (azure / name).read_text())
        assert [fact.value for fact in facts_of(azure / name)] == [word == "Yes" for word in said]
        assert len(said) == 8
    good = {fact.key.rpartition(".")[2]: fact.value for fact in facts_of(azure / "good_nvlink_status.txt")}
    assert (good["nvlinks_active"], good["nvlinks_total"], good["nvlink_gbps"]) == (12, 12, [25.0] * 12)
    (bad,) = facts_of(azure / "bad_nvlink_status.txt")
    assert (bad.key.rpartition(".")[2], bad.value) == ("nvlinks_active", 0)
    for name in ("kmsg.1.log", "kmsg.2.peermem.log"):
        assert facts_of(Path(corpus) / "host/gpud/pkg/kmsg/testdata" / name)[0].value == []
    (crash,) = facts_of(
        Path(corpus) / "host/gpud/components/accelerator/nvidia/nccl/testdata/dmesg.decode.iso.log"
    )
    assert crash.value == []


WAYS = {
    "dmesg": "[  123.456789] {}",
    "dmesg -T": "[Sun Feb 23 16:24:18 2025] {}",
    "dmesg -r": "<4>[  123.456789] {}",
    "dmesg -x": "kern  :warn  : 2025-01-21T04:41:44,283302+00:00 {}",
    "kmsg": "4,3964,206764307,-;{}",
    "syslog": "Feb 23 16:24:18 node-17.secret.example kernel: [  123.456789] {}",
    "journal": "2025-02-23T16:24:18+0000 node-17.secret.example kernel: {}",
}


@pytest.mark.parametrize("way", WAYS)
def test_ways_to_save_a_kernel_log(tmp_path: Path, way: str) -> None:
    """The same in all of them: an Xid is kept, without names; of other lines only how many; none is no zero."""
    lines = (
        "NVRM: Xid (PCI:0000:9b:00): 79, pid=20, name=secret-job, GPU has fallen off the bus.",
        "pcieport 0000:00:01.0: AER: Correctable error received: 0000:00:01.0",
        "secret-job[7]: segfault at 0",
    )
    (tmp_path / "x").write_text("\n".join(WAYS[way].format(line) for line in lines))
    facts = {fact.key: fact for fact in facts_of(tmp_path / "x")}
    assert set(facts) == {"kernel.xids", "kernel.events[aer]"}
    assert facts["kernel.events[aer]"].value == 1
    (xid,) = facts["kernel.xids"].value
    assert ": 79," in xid
    assert "secret" not in f"{facts}"


def test_a_quiet_log_of_the_kernel_is_one(tmp_path: Path) -> None:
    (tmp_path / "x").write_text(WAYS["dmesg"].format("usb 1-1: new device") + "\n")
    (fact,) = facts_of(tmp_path / "x")
    assert (fact.key, fact.value) == ("kernel.xids", [])


def test_a_log_of_other_programs_says_nothing_of_gpus(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("Aug 17 06:18:01 box systemd-networkd[8]: ib6: lost carrier\n" * 3)
    (fact,) = facts_of(tmp_path / "x")
    assert (fact.key, fact.value) == ("kernel.events[link-flap]", 3)
    assert "box" not in f"{fact.value}{fact.raw}"


def test_of_counts_the_larger_one_stands(tmp_path: Path) -> None:
    """Logs overlap: a sum would count lines twice."""
    line = WAYS["dmesg"].format("mlx5_core 0000:01:00.0 eth0: Link down\n")
    for name, count in (("a", 2), ("b", 3)):
        (tmp_path / name).write_text(line * count)
    machine = with_evidence(Machine(), [tmp_path / "a", tmp_path / "b"])
    assert machine.kernel.events == {"link-flap": 3}
    again = with_evidence(machine, [tmp_path / "a"])
    assert again.kernel.events == {"link-flap": 3}


def query(*pending: str, title: str = "Retired Pages", line: str = "Pending Page Blacklist") -> str:
    gpus = "".join(
        f"GPU 0000000{at}:00:00.0\n    Product Name                      : NVIDIA A100\n    {title}\n"
        f"        Single Bit ECC                : 3\n        {line}        : {word}\n\n"
        for at, word in enumerate(pending, 1)
    )
    return f"\n==============NVSMI LOG==============\n\nAttached GPUs : {len(pending)}\n{gpus}"


@pytest.mark.parametrize(
    ("title", "line", "field"),
    [
        ("Retired Pages", "Pending Page Blacklist", "retired_pending"),
        ("Remapped Rows", "Pending", "remap_pending"),
        ("Remapped Rows", "Remapping Failure Occurred", "remap_failed"),
    ],
)
def test_health_that_nvidia_smi_printed(tmp_path: Path, title: str, line: str, field: str) -> None:
    (tmp_path / "q").write_text(query("No", "Yes", "N/A", title=title, line=line))
    alone = with_evidence(Machine(), [tmp_path / "q"])
    assert [(gpu.address, getattr(gpu, field)) for gpu in alone.gpus] == [
        ("0001:00:00.0", False),
        ("0002:00:00.0", True),
    ]
    here = Machine(gpus=(Gpu(index=0, address="0002:00:00.0"), Gpu(index=1, address="0001:00:00.0")))
    facts = {
        f"gpus[{at}].{key}": Fact(key=f"gpus[{at}].{key}", value=value)
        for at, gpu in enumerate(here.gpus)
        for key, value in (("index", gpu.index), ("address", gpu.address))
    }
    (tmp_path / "q").write_text(query("No", "Yes", title=title, line=line))
    both = with_evidence(replace(here, facts=facts), [tmp_path / "q"])
    assert [getattr(gpu, field) for gpu in both.gpus] == [True, False]
    with pytest.raises(WellfedError, match="this machine has not"):
        with_evidence(Machine(gpus=(Gpu(index=0, address="0009:00:00.0"),)), [tmp_path / "q"])


def test_links_that_nvidia_smi_printed(tmp_path: Path) -> None:
    gpu = "GPU {0}: NVIDIA H100 (UUID: GPU-00000000-0000-0000-0000-00000000000{0})\n"
    links = "\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"
    off = "NVML: Unable to retrieve NVLink information as all links are inactive\n"
    (tmp_path / "n").write_text(gpu.format(0) + links + gpu.format(1) + off)
    machine = with_evidence(Machine(), [tmp_path / "n"])
    assert [(gpu.nvlinks_active, gpu.nvlinks_total) for gpu in machine.gpus] == [(1, 2), (0, None)]


def test_links_stand_at_their_gpu(tmp_path: Path) -> None:
    """By UUID; by number where a redacted recording has none; and a container may see some of a file's GPUs only."""
    uuid = "GPU-00000000-0000-0000-0000-00000000000{0}"
    line = "GPU {0}: NVIDIA H100 (UUID: " + uuid + ")\n\t Link 0: 26.562 GB/s\n"
    (tmp_path / "n").write_text(line.format(3) + line.format(5) + "\t Link 1: 26.562 GB/s\n")

    def links(*gpus: Gpu) -> list[int | None]:
        machine = Machine(gpus=gpus)
        facts = {
            f"gpus[{at}].index": Fact(key=f"gpus[{at}].index", value=gpu.index) for at, gpu in enumerate(gpus)
        }
        seen = with_evidence(replace(machine, facts=facts), [tmp_path / "n"])
        return [gpu.nvlinks_active for gpu in seen.gpus]

    assert links(Gpu(index=0, uuid=uuid.format(5)), Gpu(index=1, uuid=uuid.format(3))) == [2, 1]
    assert links(Gpu(index=3), Gpu(index=5, uuid="[redacted]")) == [1, 2]
    assert links(Gpu(index=0, uuid=uuid.format(5))) == [2]
    with pytest.raises(WellfedError, match="this machine has not"):
        links(Gpu(index=3, uuid=uuid.format(9)))
