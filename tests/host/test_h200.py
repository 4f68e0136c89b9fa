"""The machine that was recorded with an H200 in it: seen right, judged without a false alarm, and nobody's."""

import gzip
import json
import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from h200_page import ARGUED, BOX, PRINTED, UNSEEN, section

import wellfed
from wellfed.catalog import find_gpu
from wellfed.check import INTENTS, judge_machine
from wellfed.host import look, open_host
from wellfed.model import Machine
from wellfed.model import patterns as p
from wellfed.model.redact import Redactor

DEMO = Path(wellfed.__file__).parent / "demo" / "host.tar.gz"
PAGE = Path(__file__).resolve().parents[2] / "docs" / "validation" / "host.md"


@pytest.fixture(scope="module")
def machine() -> Machine:
    return look(open_host(str(BOX)))


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """Every member of the recording, its name, link and content."""
    with tarfile.open(BOX) as tar:
        return {
            f"{member.name} {member.linkname}": (file.read().decode() if member.isreg() and (file := tar.extractfile(member)) else "")
            for member in tar.getmembers()
        }  # fmt: skip


# -- seen right --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "read"), [(row[1], row[3]) for row in PRINTED], ids=[row[0] for row in PRINTED]
)
def test_we_read_what_the_tools_of_that_machine_printed(
    machine: Machine, said: Any, read: Callable[[Machine], Any]
) -> None:
    assert read(machine) == said


def test_the_versions_are_those_that_were_installed(machine: Machine) -> None:
    software = machine.software
    assert (software.torch, software.torch_cuda) == ("2.11.0+cu130", "13.0")
    assert (software.nccl, software.cudnn, software.cuda_toolkit) == ("2.28.9", "9.19.0.56", "13.0.88")
    assert len(software.nccl_libraries or ()) == 2, "the wheel's and the system's"
    assert (software.python, software.glibc) == ("3.12.3", "2.39")
    assert (software.mps_running, software.persistenced_running) == (False, False)


def test_the_catalogue_knows_this_gpu(machine: Machine) -> None:
    (gpu,) = machine.gpus
    found = find_gpu(name=gpu.name, device_id=gpu.device_id, memory_bytes=gpu.memory_bytes)
    assert found is not None
    assert gpu.catalog == found.key == "h200-sxm-141"


def test_nvml_and_nvidia_smi_agree(machine: Machine, texts: dict[str, str]) -> None:
    """The recording holds both. Here the log is read by its own tags, not by our parser of it."""
    log = ElementTree.fromstring(json.loads(texts["commands/nvidia-smi-xml.json "])["text"])
    (gpu,) = machine.gpus

    def said(path: str) -> str:
        return (log.findtext(f"gpu/{path}") or "").strip()

    def number(path: str) -> float:
        return float(said(path).split()[0].rstrip("x"))

    assert said("product_name") == gpu.name
    assert said("uuid") == gpu.uuid
    assert number("fb_memory_usage/total") == (gpu.memory_bytes or 0) >> 20
    assert number("bar1_memory_usage/total") == (gpu.bar1_bytes or 0) >> 20
    assert (said("ecc_mode/current_ecc"), gpu.ecc) == ("Enabled", True)
    assert (said("mig_mode/current_mig"), gpu.mig_capable, gpu.mig) == ("Disabled", True, False)
    assert (said("persistence_mode"), gpu.persistence) == ("Enabled", True)
    link = "pci/pci_gpu_link_info"
    assert number(f"{link}/pcie_gen/max_link_gen") == gpu.pcie_gen_max
    assert number(f"{link}/link_widths/current_link_width") == gpu.pcie_width
    assert (number("clocks/sm_clock"), number("max_clocks/sm_clock")) == (gpu.sm_mhz, gpu.sm_max_mhz)
    assert number("gpu_power_readings/current_power_limit") == gpu.power_limit_w
    assert number("temperature/gpu_temp") == gpu.temperature_c


def test_what_could_not_be_seen_has_its_reason(machine: Machine) -> None:
    assert UNSEEN.keys() <= machine.gaps.keys()
    for key in UNSEEN:
        assert machine.facts[key].status in ("missing", "unsupported"), key
    assert machine.facts["gpus[0].nvlinks_active"].value is None


# -- judged right ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("intent", INTENTS)
def test_a_healthy_machine_raises_no_alarm(machine: Machine, intent: str) -> None:
    verdicts = judge_machine(machine, intent=intent)
    assert [v.code for v in verdicts if v.verdict == "finding" and v.severity != "info"] == []
    # Its network has one queue for 16 CPUs, which bears on nothing but many small answers.
    true_notes = ["IRQ06", "LIM02"] if intent == "throughput" else ["LIM02"]
    assert [v.code for v in verdicts if v.verdict == "finding"] == true_notes
    assert sum(v.verdict == "pass" for v in verdicts) >= 35, "silence must come from looking"


def test_every_verdict_is_argued(machine: Machine) -> None:
    assert {verdict.code for verdict in judge_machine(machine)} == ARGUED.keys()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda device: device.update(ecc=[False, False]), "GPU08"),
        (lambda device: device.update(pcie_width=4), "PCIE01"),
        (lambda device: device.update(power_limit_mw=300_000), "GPU05"),
        (lambda device: device.update(clock_sm_app=900), "GPU06"),
        (lambda device: device.update(persistence=False), "GPU02"),
        (lambda device: device.update(remapped_rows=[0, 1, 1, 0]), "GPU10"),
        (lambda device: device.update(bar1={"total": 256 << 20, "used": 0}), "BIOS03"),
    ],
)
def test_the_same_machine_with_one_fault_is_found_out(
    change: Callable[[dict[str, Any]], None], code: str
) -> None:
    """What is silent here is not deaf: one answer of NVML changed, and the check for it speaks."""
    host = open_host(str(BOX))
    answers = json.loads(json.dumps(host.nvml()))
    change(answers["devices"][0])

    class Faulty:
        def __getattr__(self, name: str) -> Any:
            return getattr(host, name)

        def nvml(self) -> dict[str, Any]:
            return answers

    verdicts = judge_machine(look(Faulty()))  # type: ignore[arg-type]
    assert code in {v.code for v in verdicts if v.verdict == "finding"}


def test_the_page_shows_this() -> None:
    assert PAGE.read_text("utf-8").endswith(section()), "run tests/host/corpus_machines.py"


# -- nobody's ----------------------------------------------------------------------------------------------

# What to look for, and a text in which it must be found. In pieces where other tests look for the same in all files.
PRIVATE = {
    "its operator's programs": ("process_" + r"api|sand" + r"box|model_tools|egress", "/Sand" + "box"),
    "its operator's kernel": (
        r"6\.18\.44-(?!custom)|fire" + r"cracker|nixbld|init_private|fc_\w+=|vsock-port",
        "6.18.44-x-v9",
    ),
    "folders of the one who looked": ("/wo" + r"rk\b|/root\b|/home/(?!user-)|/tmp/(?!dir-)", "/wo" + "rk/x"),
    "arguments of init": (r"--addr|--auth|--block| -- ", "quiet -- x"),
    "ports": (r"(?<![\w.])(?:2024|5001|5002)(?![\w.])", "0.0.0.0:2024"),
    "a key": (r"_key\b(?!\w)|PRIVATE KEY|Bearer", "tcp_fastopen_key"),
    "an address of the kernel": (r"0xffffffff(?!ffffffff)[89a-f][0-9a-f]{7}", "0xffffffffc0400000"),
    "a private network": (
        r"(?<![\w.])(?:10|127|192\.168|172\.(?:1[6-9]|2\d|3[01]))(?:\.\d{1,3}){2,3}(?![\w.])",
        "10.1.2.3",
    ),
    "a builder": (r"\w@\w", "(me@there)"),
    "a GPU's number": (
        r"GPU-(?!uuid-)[0-9a-f]{8}|<serial>(?!serial-)|\"serial\":\"(?!serial-)",
        "<serial>165</serial>",
    ),
}


@pytest.mark.parametrize("what", PRIVATE)
def test_no_byte_tells_whose_it_was(what: str, texts: dict[str, str]) -> None:
    form, sample = PRIVATE[what]
    pattern = re.compile(form, re.IGNORECASE if "operator" in what else 0)
    assert pattern.search(sample), "what cannot be found is not absent"
    found = [
        (name, match[0]) for name, text in texts.items() for match in pattern.finditer(f"{name}\n{text}")
    ]
    assert found == []


@pytest.mark.parametrize("form", ["MAC", "UUID", "MAIL", "TOKEN", "URL_LOGIN", "DISK_ID", "PEM"])
def test_nothing_has_the_form_of_an_identifier(form: str, texts: dict[str, str]) -> None:
    pattern: re.Pattern[str] = getattr(p, form)
    found = [(name, match[0]) for name, text in texts.items() for match in pattern.finditer(text)]
    # Zeros are no address.
    assert [item for item in found if set(item[1]) - set("0:-x")] == []


def test_long_hexadecimal_words_are_masks_only(texts: dict[str, str]) -> None:
    words = {word for text in texts.values() for word in re.findall(r"\b[0-9a-f]{16,}\b", text)}
    assert all(len(set(word)) < 8 or word.isdigit() for word in words), words


def test_redacting_it_again_changes_no_name(machine: Machine) -> None:
    for mount in machine.mounts:
        assert Redactor().path(mount.path) == mount.path
    for word in machine.kernel.cmdline or ():
        assert Redactor().parameters(word) == word
    assert Redactor().path(machine.software.python_path or "") == machine.software.python_path


def test_programs_and_packages_are_those_that_bear_on_speed(texts: dict[str, str]) -> None:
    programs = {text for name, text in texts.items() if name.endswith("/comm ")}
    assert programs == {"process-1", "kthreadd"}
    site = next(
        names
        for folder, names in json.loads(texts["index.json "])["listings"].items()
        if folder.endswith("-packages")
    )
    assert {"torch", "torch-2.11.0.dist-info", "numpy-2.5.2.dist-info"} <= set(site)
    assert [name for name in site if not name.endswith(".dist-info")] == ["nvidia", "torch"]


def test_the_demo_ships_the_same_machine() -> None:
    packed = DEMO.read_bytes()
    assert gzip.decompress(packed) == BOX.read_bytes()
    assert packed[4:8] == bytes(4), "no time of packing, so that two builds are the same"
    assert BOX.stat().st_size < 1_500_000
