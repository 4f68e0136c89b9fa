"""What two looks at counters tell of others on our CPUs and adapters."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wellfed.host import busy, host_of, look
from wellfed.host.busy import cpu_ticks, foreign_pct, own_usage, rates

STAT = (
    "cpu  100 0 0 900 0 0 0 0 0 0\n"
    "cpu0 10 1 2 80 5 3 4 6 99 99\n"
    "cpu1 20 0 0 80 0 0 0 0 0 0\n"
    "cpu10 7 0 0 0 0 0 0 0 0 0\n"
    "intr 5 1 2\nctxt 7\n"
)
TICKS = st.lists(st.integers(0, 1 << 40), min_size=8, max_size=8)


def test_busy_is_work_of_this_machine() -> None:
    """Idle, waiting for a disk and stolen time are no work here; guests stand in `user` already."""
    assert cpu_ticks(STAT, [0]) == (20, 111)
    assert cpu_ticks(STAT, [0, 1]) == (40, 211)
    assert cpu_ticks(STAT, [10]) == (7, 7)


@pytest.mark.parametrize("cpus", [[2], [0, 2], [100]])
def test_a_cpu_that_is_not_listed_makes_it_unknown(cpus: list[int]) -> None:
    assert cpu_ticks(STAT, cpus) is None


@given(st.dictionaries(st.integers(0, 300), TICKS, max_size=6), st.sets(st.integers(0, 300), max_size=4))
def test_ticks_add_up_over_cpus(rows: dict[int, list[int]], cpus: set[int]) -> None:
    text = "\n".join(f"cpu{cpu} {' '.join(map(str, row))} 0 0" for cpu, row in rows.items())
    found = cpu_ticks(text, cpus)
    if cpus <= rows.keys():
        each = [cpu_ticks(text, [cpu]) or (0, 0) for cpu in cpus]
        assert found == (sum(a for a, _ in each), sum(b for _, b in each))
        assert found[0] <= found[1]
    else:
        assert found is None


@given(st.text(max_size=200))
def test_no_text_breaks_the_count(text: str) -> None:
    cpu_ticks(text, [0])
    cpu_ticks("cpu0 " + text, [0])
    own_usage(text)


@given(st.integers(0, 80), st.integers(0, 80), st.floats(0, 0.4), st.floats(0.05, 2))
def test_what_is_ours_is_taken_off(busy_ticks: int, idle: int, own: float, seconds: float) -> None:
    before, after = (50, 100, 1.0), (50 + busy_ticks, 101 + busy_ticks + idle, 1.0 + own)
    percent, why = foreign_pct(before, after, seconds, 100)
    assert why is None and percent is not None
    assert percent == pytest.approx(max(0.0, busy_ticks - 100 * own) / seconds, abs=0.06)
    more = foreign_pct(before, (after[0] + 10, after[1] + 10, after[2]), seconds, 100)[0]
    assert more is not None and more >= percent


def test_counts_that_stand_still_are_no_idle_machine() -> None:
    """A sandbox that makes up `/proc/stat` would look idle for ever."""
    assert foreign_pct((0, 0, 0.0), (0, 0, 0.0), 0.1, 100)[0] is None
    assert foreign_pct(None, (1, 2, 0.0), 0.1, 100)[0] is None


@given(
    st.dictionaries(st.sampled_from(["a rx", "a tx", "b c rx"]), st.integers(0, 1 << 50)),
    st.integers(0, 1 << 40),
)
def test_rates_take_the_busier_way(before: dict[str, int], more: int) -> None:
    after = {key: count + more for key, count in before.items()}
    assert set(rates(before, after, 0.1).values()) <= {more / 0.1}
    assert rates(after, before, 0.1).keys() == (rates(before, before, 0.1).keys() if more == 0 else set())
    assert rates({"a rx": 0, "a tx": 0}, {"a rx": 5, "a tx": 9}, 1.0) == {"a": 9.0}


def test_a_count_that_went_back_tells_nothing() -> None:
    assert rates({"eth0 rx_bytes": 10}, {"eth0 rx_bytes": 3, "eth1 rx_bytes": 9}, 0.1) == {}


def test_the_usage_of_the_own_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(busy, "_GROUPS", tmp_path)
    group = tmp_path / "user.slice" / "job"
    group.mkdir(parents=True)
    (group / "cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    text = "1:name=systemd:/x\n0::/user.slice/job\n"
    assert own_usage(text) is None, "the root group has no type, and holds everybody"
    (group / "cgroup.type").write_text("domain\n")
    assert own_usage(text)() == 2.5
    (group / "cpu.stat").write_text("nothing\n")
    assert own_usage(text)() is None


def answer(**changes: Any) -> dict[str, Any]:
    good = {
        "window_s": 0.1,
        "cpu_pct": 140.0,
        "why": None,
        "nics": [{"name": "eth0", "mbps": 80.5}],
        "ports": [{"name": "mlx5_0/1", "gbps": 12.0}],
    }
    return {**good, **changes}


FILES: dict[str, Any] = {
    "/sys/class/net/eth0/device/vendor": "0x15b3\n",
    "/sys/class/net/eth0/operstate": "up\n",
    "/sys/class/net/lo/mtu": "65536\n",
    "/sys/class/infiniband/mlx5_0/ports/1/state": "4: ACTIVE\n",
}


def test_readers_hand_the_answer_on() -> None:
    machine = look(host_of(FILES, probes={"busy": answer()}))
    assert machine.cpu.foreign_pct == 140.0
    assert [nic.busy_mbps for nic in machine.nics] == [80.5, None]
    assert [port.busy_gbps for port in machine.rdma] == [12.0]


@pytest.mark.parametrize(
    "wrong",
    [
        {"cpu_pct": None, "why": "a file system of the container stands in for /proc/stat"},
        {"cpu_pct": "many"},
        {"cpu_pct": float("nan")},
        {"cpu_pct": True},
        {"nics": [7, {"name": 3}, {"name": "eth0", "mbps": -1}], "ports": {}},
        {"nics": None, "ports": [{}]},
    ],
)
def test_an_odd_answer_is_a_gap(wrong: dict[str, Any]) -> None:
    machine = look(host_of(FILES, probes={"busy": json.loads(json.dumps(answer(**wrong)))}))
    for key in ("cpu_pct", "nics", "ports"):
        field = {"cpu_pct": "cpu.foreign_pct", "nics": "nics[0].busy_mbps", "ports": "rdma[0].busy_gbps"}[key]
        assert (field in machine.gaps) == (key in wrong), field
    if wrong.get("why"):
        assert str(wrong["why"]) in machine.gaps["cpu.foreign_pct"]


def test_a_recording_without_it_says_so() -> None:
    machine = look(host_of(FILES))
    for key in ("cpu.foreign_pct", "nics[0].busy_mbps", "rdma[0].busy_gbps"):
        assert machine.gaps[key].startswith("missing"), key


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="only Linux counts in /proc")
def test_this_machine_answers() -> None:
    told = busy.measure()
    assert told["cpu_pct"] is None or told["cpu_pct"] >= 0
    assert (told["cpu_pct"] is None) == (told["why"] is not None)
    assert told["window_s"] >= busy.WINDOW_S * 0.9
