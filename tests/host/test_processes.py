"""Processes that hold a GPU: what is seen of them, and what must never be."""

import os
from pathlib import Path
from typing import Any

import pytest
from boxes import BOXES
from hypothesis import given
from hypothesis import strategies as st

from wellfed.host import host_of, look, processes, record
from wellfed.host.assemble import assemble
from wellfed.host.live import LiveHost
from wellfed.host.processes import COUNTED_BYTES, parse_libraries, parse_numa_maps, read_processes
from wellfed.model import Machine

OWNER = "zanzibar"
SELF = {
    "/proc/self/status": "Name:\twellfed\nUid:\t1000\t1000\t1000\t1000\n",
    "/proc/self/cgroup": "0::/user.slice/a\n",
}
MAPS = """\
7f0000000000 default anon=5 dirty=5 active=0 N0=3 N1=2 kernelpagesize_kB=4
7f0000100000 bind:1 anon=2 N1=2 kernelpagesize_kB=2048
7f0000200000 prefer (many):0-1 anon=1 N0=1 kernelpagesize_kB=4
7f0000300000 default file=/usr/lib/libx.so mapped=900 N0=900 kernelpagesize_kB=4
7f0000350000 default file=/dev/zero\\040(deleted) anon=8 N1=8 kernelpagesize_kB=4
7f0000360000 default file=/dev/shm/torch_1 anon=8 N0=8 kernelpagesize_kB=4
7f0000400000 default stack anon=1 N0=1 kernelpagesize_kB=64
"""


def devices(*pids: tuple[int, ...]) -> dict[str, Any]:
    """An NVML answer: process numbers by GPU."""
    rows = [{"processes": [{"pid": pid, "name": f"/home/{OWNER}/train"} for pid in one]} for one in pids]
    return {"status": "ok", "detail": None, "system": {}, "devices": rows}


def process(
    pid: int, *, uid: int = 1000, name: str = "python3", group: str = "0::/user.slice/a", **more: str
) -> dict[str, str]:
    base = f"/proc/{pid}"
    return {
        f"{base}/status": f"Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nRssAnon:\t  4096 kB\nCpus_allowed_list:\t0-3\n",
        f"{base}/cgroup": f"{group}\n",
        f"{base}/oom_score_adj": "200\n",
        f"{base}/maps": "7f00-7f01 r-xp 00000000 08:01 77 /opt/x/libgomp-a34b3233.so.1.0.0\n",
        f"{base}/cmdline": f"python\0--token={OWNER}\0",
        f"{base}/environ": f"TOKEN={OWNER}\0",
        **{f"{base}/{key}": text for key, text in more.items()},
    }  # fmt: skip


NODES = {
    "/sys/devices/system/node/node0/cpulist": "0-3\n",
    "/sys/devices/system/node/node1/cpulist": "4-7\n",
    "/proc/2/comm": "kthreadd\n",
}


def seen(files: dict[str, Any], nvml: dict[str, Any]) -> Machine:
    return assemble(read_processes(host_of({**SELF, **files}, nvml=nvml)))


def test_what_is_seen_of_a_process() -> None:
    tasks = {"task/7/status": "Cpus_allowed_list:\t0-3\n", "task/8/status": "Cpus_allowed_list:\t6\n"}
    machine = seen({**NODES, **process(7, numa_maps=MAPS, **tasks)}, devices((7,), (7,)))
    (one,) = machine.processes
    assert (one.pid, one.gpus, one.name, one.is_foreign) == (7, (0, 1), "python3", False)
    assert (one.allowed, one.thread_cpus) == ((0, 1, 2, 3), (0, 1, 2, 3, 6))
    assert (one.pages, one.policy) == ({"N0": 3 + 1 + 16, "N1": 2 + 2 * 512 + 8}, "bind:1")
    assert (one.oom_score_adj, one.libraries) == (200, ("libgomp-a34b3233.so.1.0.0",))
    assert not machine.gaps


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="only Linux has such a /proc")
def test_this_very_process_can_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """The files of a running kernel, not our idea of them."""
    host, pid = LiveHost(), os.getpid()
    monkeypatch.setattr(host, "nvml", lambda: devices((pid,)))
    monkeypatch.setattr(processes, "cpu_nodes", lambda _: {0: (0,), 1: (1,)})
    machine = assemble(read_processes(host))
    (one,) = machine.processes
    assert one.allowed == tuple(sorted(os.sched_getaffinity(0)))
    assert one.is_foreign is False and set(one.allowed) <= set(one.thread_cpus or ())
    assert one.oom_score_adj == int(Path("/proc/self/oom_score_adj").read_text()) or one.oom_score_adj is None
    if Path("/proc/self/numa_maps").exists():
        assert sum((one.pages or {}).values()) * 4096 > 1 << 20 and one.policy


def test_on_one_node_memory_and_threads_are_left_alone() -> None:
    machine = seen({"/proc/2/comm": "kthreadd\n", **process(7)}, devices((7,)))
    (one,) = machine.processes
    assert (one.thread_cpus, one.pages, one.policy) == (None, None, None)


# -- whose it is -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uid", "group", "foreign"),
    [(1000, "0::/user.slice/a", False), (1001, "0::/user.slice/a", True), (0, "0::/x", True), (1000, "0::/user.slice/b", None)],
)  # fmt: skip
def test_somebody_elses_is_another_users(uid: int, group: str, foreign: bool | None) -> None:
    machine = seen({**NODES, **process(7, uid=uid, group=group)}, devices((7,)))
    assert machine.processes[0].is_foreign is foreign
    assert ("may be ours" in machine.gaps.get("processes[0].is_foreign", "")) == (foreign is None)


def test_a_process_of_another_name_space_is_unknown_and_not_ours() -> None:
    machine = seen(NODES, devices((7,)))
    (one,) = machine.processes
    assert one.is_foreign is None and one.allowed is None
    for field in (
        "name",
        "is_foreign",
        "allowed",
        "thread_cpus",
        "pages",
        "policy",
        "oom_score_adj",
        "libraries",
    ):
        assert f"processes[0].{field}" in machine.gaps, field


@pytest.mark.parametrize("second", [{"/proc/2/comm": "bash\n"}, {"/proc/31/comm": "sh\n"}])
def test_an_empty_list_inside_a_container_is_no_free_gpu(second: dict[str, str]) -> None:
    machine = seen(second, devices(()))
    assert machine.container.sees_host_processes is False
    assert machine.gaps["processes"].startswith("denied")
    assert seen(NODES, devices(())).facts["processes"].value == []


def test_who_is_to_be_killed_first_is_the_kubelets_choice_in_a_pod() -> None:
    machine = seen({**NODES, **process(7, group="0::/kubepods.slice/pod1")}, devices((7,)))
    assert machine.processes[0].oom_score_adj is None
    assert "kubelet" in machine.gaps["processes[0].oom_score_adj"]


# -- what it may cost --------------------------------------------------------------------------------------


def test_counting_pages_has_a_budget() -> None:
    """The kernel walks every page of the process, which waits for some of its calls meanwhile."""
    large = {"status": f"Name:\tpython3\nRssAnon:\t{(COUNTED_BYTES >> 10) - 1000} kB\n", "numa_maps": MAPS}
    files = {**NODES, **process(7, **large), **process(8, numa_maps=MAPS), **process(9)}
    machine = seen({**files, "/proc/9/numa_maps": ""}, devices((7, 8, 9)))
    assert [one.pages is not None for one in machine.processes] == [True, False, False]
    assert "too long" in machine.gaps["processes[1].pages"]


def test_a_process_with_many_threads_is_not_judged_by_some_of_them() -> None:
    threads = {f"task/{tid}/status": "Cpus_allowed_list:\t0\n" for tid in range(100, 180)}
    pids = tuple(range(1000, 1064))
    files = {**NODES, **process(1000, **threads)}
    machine = seen(files, devices(pids))
    assert len(machine.processes) == 64
    assert machine.processes[0].thread_cpus is None
    assert "80 threads" in machine.gaps["processes[0].thread_cpus"]


# -- privacy -----------------------------------------------------------------------------------------------


class Watched:
    """A host that notes every path that is opened."""

    def __init__(self, host: Any) -> None:
        self.host, self.paths = host, []  # type: ignore[var-annotated]

    def read(self, path: str, limit: int = 1 << 20) -> Any:
        self.paths.append(path)
        return self.host.read(path, limit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.host, name)


def test_no_command_line_and_no_environment_is_ever_opened() -> None:
    host = Watched(host_of({**SELF, **NODES, **process(7, numa_maps=MAPS)}, nvml=devices((7,))))
    read_processes(host)  # type: ignore[arg-type]
    opened = {path.rpartition("/")[2] for path in host.paths if path.startswith("/proc/7/")}
    assert opened == {"status", "cgroup", "oom_score_adj", "maps", "numa_maps"}


@pytest.mark.parametrize("name", [f"{OWNER}-train", "a python3", "python3x", "../python"])
def test_no_name_and_no_user_is_kept(name: str) -> None:
    files = {**NODES, **process(7, uid=54321, name=name, group=f"0::/{OWNER}.slice")}
    facts = read_processes(host_of({**SELF, **files}, nvml=devices((7,))))
    assert assemble(facts).processes[0].name == "other"
    assert OWNER not in repr(facts) and "54321" not in repr(facts) and "/opt/x" not in repr(facts)


def test_a_recording_holds_nothing_of_them(tmp_path: Path) -> None:
    files = {
        **BOXES["numa_server"](),
        **NODES,
        **process(77, name=OWNER, numa_maps=MAPS),
        "/proc/77/comm": f"{OWNER}\n",
    }
    host = host_of(files, nvml=devices((77,)))
    record(host, tmp_path / "box.tar", redact=False, now="2026-01-02T03:04:05+00:00")
    data = (tmp_path / "box.tar").read_bytes()
    assert b"root/proc/77/" not in data and b"libgomp-a34b" not in data
    assert look(host).processes[0].allowed is not None


# -- parsers -----------------------------------------------------------------------------------------------

LINE = st.builds(
    "7f{:06x}000 {} anon=1{} kernelpagesize_kB={}".format,
    st.integers(0, 1 << 20),
    st.sampled_from(["default", "bind:0", "prefer:1", "interleave:0-1", "weighted interleave:0-1", "prefer (many):0-1"]),
    st.dictionaries(st.integers(0, 9), st.integers(0, 1 << 20), max_size=3).map(
        lambda nodes: "".join(f" N{node}={count}" for node, count in nodes.items())
    ),
    st.sampled_from([4, 16, 64, 2048, 1048576]),
)  # fmt: skip


@given(st.lists(LINE, max_size=8), st.lists(LINE, max_size=8))
def test_pages_add_up(first: list[str], second: list[str]) -> None:
    a, b, both = (
        parse_numa_maps("\n".join(lines)).get("pages", {}) for lines in (first, second, first + second)
    )
    assert both == {node: a.get(node, 0) + b.get(node, 0) for node in a.keys() | b.keys()}


@pytest.mark.parametrize(
    "policy", ["default", "bind:0-1", "prefer (many):0-1", "weighted interleave:0,1", "bind=static:0"]
)
def test_policies_are_read_whole(policy: str) -> None:
    assert parse_numa_maps(f"7f00 {policy} heap anon=1 N0=1 kernelpagesize_kB=4")["policy"] == policy


@given(st.text(max_size=200))
def test_no_text_breaks_the_parsers(text: str) -> None:
    parse_numa_maps(text)
    parse_numa_maps("7f00 default " + text)
    parse_libraries(text)


def test_libraries_are_counted_by_file() -> None:
    text = """\
7f00-7f01 r--p 00000000 08:01 77                         /opt/a/libnccl.so.2
7f01-7f02 r-xp 00001000 08:01 77                         /opt/a/libnccl.so.2
7f03-7f04 r-xp 00000000 08:01 78                         /usr/lib/libnccl.so.2
7f05-7f06 r-xp 00000000 08:01 79                         /usr/lib/libnccl-net.so
7f05-7f06 r-xp 00000000 08:01 80                         /usr/lib/libompitrace.so.40
7f07-7f08 r-xp 00000000 08:01 81                         /usr/lib/libiomp5.so
7f07-7f08 r-xp 00000000 00:00 0                          [vdso]
"""
    assert parse_libraries(text) == ("libiomp5.so", "libnccl.so.2", "libnccl.so.2")
