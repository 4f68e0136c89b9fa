"""Facts to a Machine, and what happens when a fact or a reader is wrong."""

from pathlib import Path

import pytest
from boxes import BOXES, box
from hypothesis import given, settings
from hypothesis import strategies as st

import wellfed.host.assemble as assembling
from wellfed.host import COMMANDS, PROBES, host_of, look
from wellfed.host.assemble import assemble, readers, split_key
from wellfed.model import Fact, Machine
from wellfed.model.machine import CpuThread


def test_keys() -> None:
    assert split_key("memory.thp_enabled") == ["memory", "thp_enabled"]
    assert split_key("gpus[0].name") == ["gpus", 0, "name"]
    assert split_key("kernel.sysctls[vm.swappiness]") == ["kernel", "sysctls", "vm.swappiness"]
    assert split_key("rdma[2].counters[link_downed]") == ["rdma", 2, "counters", "link_downed"]
    assert split_key("environment[OMP_NUM_THREADS]") == ["environment", "OMP_NUM_THREADS"]


def test_facts_fill_the_fields_of_their_name() -> None:
    machine = assemble(
        [
            Fact(key="memory.thp_enabled", value="madvise"),
            Fact(key="gpus[1].index", value=1),
            Fact(key="gpus[0].index", value=0),
            Fact(key="gpus[0].name", value="NVIDIA H200"),
            Fact(key="kernel.sysctls[vm.swappiness]", value="60"),
            Fact(key="cpu.threads", value=[{"id": 0, "core": 0}]),
            Fact(key="hostname", value="box"),
        ]
    )
    assert machine.memory.thp_enabled == "madvise"
    assert [gpu.name for gpu in machine.gpus] == ["NVIDIA H200", None]
    assert machine.kernel.sysctls == {"vm.swappiness": "60"}
    assert machine.cpu.threads == (CpuThread(id=0, core=0),)
    assert machine.hostname == "box"
    assert machine.gaps == {}


def test_what_was_not_seen_is_a_gap_with_its_reason() -> None:
    fact = Fact(key="cpu.boost", source="/sys/x", status="denied", detail="Permission denied")
    machine = assemble([fact])
    assert machine.cpu.boost is None
    assert machine.gaps == {"cpu.boost": "denied: `/sys/x` (Permission denied)"}


def test_of_two_facts_the_first_that_was_seen_counts() -> None:
    missing = Fact(key="cpu.arch", status="missing", source="a")
    first, second = Fact(key="cpu.arch", value="x86_64"), Fact(key="cpu.arch", value="aarch64")
    machine = assemble([missing, first, second])
    assert machine.cpu.arch == "x86_64"
    assert machine.gaps == {}


def test_a_single_field_refines_a_whole_list() -> None:
    facts = [
        Fact(key="gpus", value=[{"index": 0, "name": "A"}, {"index": 1, "name": "B"}]),
        Fact(key="gpus[1].numa_node", value=1),
    ]
    assert [(gpu.name, gpu.numa_node) for gpu in assemble(facts).gpus] == [("A", None), ("B", 1)]


@pytest.mark.parametrize(
    "wrong",
    [
        Fact(key="memory.total_bytes", value="a lot"),
        Fact(key="gpus[0].name", value=["x"]),
        Fact(key="cpu.threads", value=[{"id": 0}, {"id": "one"}]),
        Fact(key="cpu.threads", value=[{"core": 0}]),
        Fact(key="environment[X]", value=7),
        Fact(key="limits.open_files", value={"soft": 1}),
    ],
)
def test_a_fact_that_does_not_fit_costs_only_its_field(wrong: Fact) -> None:
    right = [Fact(key="memory.thp_enabled", value="never"), Fact(key="kernel.release", value="6.8")]
    machine = assemble([*right, wrong])
    assert machine.memory.thp_enabled == "never"
    assert machine.kernel.release == "6.8"
    assert machine.facts[wrong.key].status == "error"
    assert "does not fit" in machine.gaps[wrong.key]


@given(
    st.dictionaries(
        st.sampled_from(
            ["cpu.logical", "cpu.boost", "gpus[0].index", "gpus[0].name", "gpus[3].index", "numa", "numa[0].cpus",
             "kernel.sysctls[a.b]", "mounts[0]", "hostname", "memory.huge_pools"]
        ),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
            max_leaves=5,
        ),
    )
)  # fmt: skip
def test_no_fact_can_break_the_machine(values: dict[str, object]) -> None:
    machine = assemble([Fact(key=key, value=value) for key, value in values.items()])
    assert isinstance(machine, Machine)
    assert set(machine.facts) == set(values)
    for key, fact in machine.facts.items():
        assert (fact.status == "ok") == (key not in machine.gaps)


def test_readers_are_found_by_folder() -> None:
    core = {"cpu", "numa", "memory", "kernel", "limits", "container", "storage", "environment"}
    assert core <= set(readers())
    folder = Path(assembling.__file__).parent
    for path in folder.glob("*.py"):
        assert (f"def read_{path.stem}(" in path.read_text()) == (path.stem in readers()), path.name


def test_a_broken_reader_costs_only_its_own_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> list[Fact]:
        raise KeyError("oops")

    monkeypatch.setattr(assembling, "readers", lambda: {**readers(), "cpu": broken})
    machine = look(box("numa_server"))
    assert machine.cpu.logical is None
    assert machine.memory.total_bytes
    assert "reader failed (KeyError" in machine.gaps["readers.cpu"]


@pytest.mark.parametrize("name", list(BOXES))
def test_every_unknown_field_has_a_gap(name: str) -> None:
    """Unknown is None and a reason: no field of the core may be left out by its reader."""
    machine = look(box(name))
    for room in ("cpu", "memory", "kernel", "limits", "container"):
        values = getattr(machine, room)
        for field in values.__struct_fields__:
            if getattr(values, field) is None:
                assert f"{room}.{field}" in machine.gaps, f"{room}.{field}"


def test_a_host_with_nothing_has_only_gaps() -> None:
    machine = look(host_of({"/proc/nothing": ""}))
    assert machine.cpu.logical is None
    assert machine.numa == ()
    assert not [gap for gap in machine.gaps if gap.startswith("readers.")]
    assert all(not fact.value for fact in machine.facts.values() if fact.status == "ok")


NASTY = st.sampled_from(
    ["", "\n", "-1", "0-", "999999999999", "max", "\0", "a b c", "0x", "[]", "NaN", "1e9", "{}", "٣", "1" * 400, "é\udcff"]
) | st.text(max_size=12)  # fmt: skip


@settings(max_examples=150)
@given(st.sampled_from(list(BOXES)), st.data())
def test_no_content_of_a_file_breaks_a_reader(name: str, data: st.DataObject) -> None:
    files = BOXES[name]()
    texts = sorted(path for path, content in files.items() if isinstance(content, str))
    for path in data.draw(st.lists(st.sampled_from(texts), min_size=1, max_size=8)):
        files[path] = data.draw(NASTY).encode("utf-8", "surrogateescape")
    machine = look(host_of(files))
    assert [gap for gap in machine.gaps.items() if gap[0].startswith("readers.")] == []


@given(
    st.dictionaries(st.sampled_from(list(PROBES)), st.none() | st.integers() | st.text(max_size=3) | st.just({}) | st.just([[]])),
    st.dictionaries(st.sampled_from([name + ("@eth0" if "{item}" in " ".join(entry.argv) else "") for name, entry in COMMANDS.items()]), NASTY.map(lambda text: text.encode("utf-8", "replace").decode())),
)  # fmt: skip
def test_no_answer_breaks_a_reader(probes: dict[str, object], commands: dict[str, str]) -> None:
    machine = look(host_of(BOXES["numa_server"](), probes=probes, commands=commands))
    assert [gap for gap in machine.gaps.items() if gap[0].startswith("readers.")] == []
