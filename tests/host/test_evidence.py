"""Files handed over: known by their content, kept without names, refused in words."""

import json
import os
from pathlib import Path

import pytest

from wellfed.check import judge_machine
from wellfed.host import with_evidence
from wellfed.host.evidence import facts_of
from wellfed.model import Machine, Verdict, WellfedError

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
