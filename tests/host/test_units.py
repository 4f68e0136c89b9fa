"""Limits of services as systemd prints them, answers that are one value, and files that variables name."""

import json
from pathlib import Path

import pytest

from wellfed.check.host.env_interfaces import wanted
from wellfed.host.container import _answer
from wellfed.host.door import Reading
from wellfed.host.environment import read_environment
from wellfed.host.units import read_units

SHOWN = """LimitNOFILE=infinity
LimitMEMLOCK=8388608
Id=docker.service
TasksMax=18446744073709551615

LimitNOFILE=1024
LimitMEMLOCK=infinity
Id=sshd.service
TasksMax=[not set]
"""


class Told:
    """A host that has an environment and the answer of one command."""

    recorded = False

    def __init__(self, text: str | None = None, environment: dict[str, str] | None = None) -> None:
        self.text, self.environment = text, environment or {}

    def run(self, name: str, item: str = "") -> Reading:
        if self.text is None:
            return Reading(source=name, status="missing", detail="not installed")
        return Reading(source=name, text=self.text)

    def environ(self) -> dict[str, str]:
        return self.environment

    def exists(self, path: str) -> bool:
        return Path(path).exists()


@pytest.mark.parametrize(
    ("variable", "value", "picked"),
    [
        ("NCCL_SOCKET_IFNAME", "eth", ("eth0", "eth1")),
        ("NCCL_SOCKET_IFNAME", "=eth1", ("eth1",)),
        ("NCCL_SOCKET_IFNAME", "=eth", ()),
        ("NCCL_SOCKET_IFNAME", "ib,eth0", ("eth0",)),
        ("NCCL_SOCKET_IFNAME", "^docker", None),
        ("GLOO_SOCKET_IFNAME", "eth", ()),
        ("GLOO_SOCKET_IFNAME", "eth0, eth1", ("eth0", "eth1")),
        ("GLOO_SOCKET_IFNAME", "eth0:1", ("eth0",)),
    ],
)
def test_interfaces_are_picked_as_nccl_and_gloo_do(
    variable: str, value: str, picked: tuple[str, ...] | None
) -> None:
    assert wanted(variable, value, ("lo", "eth0", "eth1")) == picked


def test_units_have_limits_and_none_is_made_up() -> None:
    (units,) = read_units(Told(SHOWN))  # type: ignore[arg-type]
    assert units.value == (
        {"name": "docker", "memlock_bytes": 8388608, "open_files": -1, "tasks_max": -1},
        {"name": "sshd", "memlock_bytes": -1, "open_files": 1024, "tasks_max": None},
    )


def test_without_systemd_there_is_a_gap() -> None:
    (units,) = read_units(Told())  # type: ignore[arg-type]
    assert units.status == "missing" and units.value is None


@pytest.mark.parametrize(
    ("said", "means"), [(True, True), (False, False), ("EPERM", "EPERM"), (None, None), (3, None)]
)
def test_an_answer_is_yes_no_or_a_word(said: object, means: object) -> None:
    assert _answer(json.dumps(said)) is means or _answer(json.dumps(said)) == means


def test_files_that_variables_name_are_looked_for(tmp_path: Path) -> None:
    there = tmp_path / "topo.xml"
    there.write_text("<system/>")
    named = {"NCCL_TOPO_FILE": str(there), "NCCL_GRAPH_FILE": str(tmp_path / "gone.xml")}
    facts = {fact.key: fact for fact in read_environment(Told(environment=named))}  # type: ignore[arg-type]
    assert facts["software.env_files[NCCL_TOPO_FILE]"].value is True
    assert facts["software.env_files[NCCL_GRAPH_FILE]"].value is False


def test_a_file_named_from_some_folder_is_not_judged() -> None:
    facts = {fact.key: fact for fact in read_environment(Told(environment={"NCCL_TOPO_FILE": "topo.xml"}))}  # type: ignore[arg-type]
    assert facts["software.env_files"].status == "unsupported"
