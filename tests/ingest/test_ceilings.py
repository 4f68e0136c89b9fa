"""Result files of other tools: our ids and units, and what is left of damaged ones. Samples are made here, in the
layout that the tools' sources print."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import wellfed
from wellfed.ingest.ceilings import _readers, read_ceilings
from wellfed.ingest.ceilings.common import parse_json
from wellfed.model import Ceiling, WellfedError


def read(tmp_path: Path, text: str, name: str = "out.txt") -> dict[str, Ceiling]:
    path = tmp_path / name
    path.write_text(text)
    found = read_ceilings(path)
    return {f"{c.id}@{c.environment['gpu']}" if "gpu" in c.environment else c.id: c for c in found}


# --- nvbandwidth -----------------------------------------------------------------------------------------

NVB = """nvbandwidth Version: v0.8
Built from Git version: v0.8

CUDA Runtime Version: 12080
Driver Version: 570.1

gpu-node-7
Device 0: NVIDIA H200 (00000000:0F:00)
Device 1: NVIDIA H200 (00000000:2D:00)

Running host_to_device_memcpy_ce.
memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)
           0         1
 0     55.31     27.02

SUM host_to_device_memcpy_ce 82.33

Running device_to_device_memcpy_write_ce.
memcpy CE GPU(row) <- GPU(column) bandwidth (GB/s)
           0         1
 0       N/A    396.10
 1    395.40       N/A

SUM device_to_device_memcpy_write_ce 791.50

Waived:
Running device_local_copy.
memcpy local GPU(column) bandwidth (GB/s)
           0         1
 0   2130.00   2140.00

SUM device_local_copy 4270.00

Running host_device_latency_sm.
memory latency SM CPU(row) <-> GPU(column) (ns)
           0         1
 0    772.58    780.10

SUM host_device_latency_sm 1552.68

NOTE: The reported results may not reflect the full capabilities of the platform.
"""


def nvb_json() -> dict[str, Any]:
    return {
        "nvbandwidth": {
            "CUDA Runtime Version": 12080,
            "version": "v0.8",
            "testcases": [
                {
                    "name": "host_to_device_memcpy_ce", "status": "Passed", "sum": 82.33,
                    "bandwidth_description": "memcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)",
                    "bandwidth_matrix": [["55.31", "27.02"]],
                },
                {"name": "device_to_device_memcpy_write_ce", "status": "Passed", "bandwidth_matrix": [["N/A", "396.1"], ["395.4", "N/A"]]},
                {"name": "device_local_copy", "status": "Passed", "bandwidth_matrix": [["2130", "2140"]]},
                {"name": "host_device_latency_sm", "status": "Passed", "bandwidth_matrix": [["772.58", "780.1"]]},
                {"name": "multicast_one_to_all_sm", "status": "Waived"},
                {"name": "device_to_host_memcpy_ce", "status": "Error"},
            ],
        }
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["text", "json"])
def test_nvbandwidth(tmp_path: Path, kind: str) -> None:
    found = read(tmp_path, NVB if kind == "text" else "a line before\n" + json.dumps(nvb_json(), indent=1))
    assert found["h2d.pinned@0"].best == pytest.approx(55.31)
    assert found["h2d.pinned@1"].best == pytest.approx(27.02)
    assert found["p2p.write"].best == pytest.approx(396.1) and found["p2p.write"].n == 2
    assert found["p2p.write"].environment["matrix"] == [[None, 396.1], [395.4, None]]
    # it counts a local copy's bytes once: read and write are twice that
    assert found["hbm-copy@1"].best == pytest.approx(4280.0)
    assert "twice" in found["hbm-copy@1"].method and "nvbandwidth v0.8" in found["hbm-copy@1"].method
    assert found["host-gpu-latency@0"].unit == "ns" and not found["host-gpu-latency@0"].higher_is_better
    if kind == "json":
        assert found["p2p.write"].environment["left_out"] == 1  # the test that failed; a waived one is none
    else:
        assert "left_out" not in found["p2p.write"].environment
    assert "gpu-node-7" not in repr(found)


def test_a_cut_json_gives_its_whole_tests(tmp_path: Path) -> None:
    text = json.dumps(nvb_json(), indent=1)
    found = read(tmp_path, text[: text.index("device_local_copy") + 30])
    assert found["h2d.pinned@0"].best == pytest.approx(55.31)
    assert "p2p.write" in found and not any("hbm" in id for id in found)
    assert found["p2p.write"].environment["left_out"] == 1


# --- nccl-tests ------------------------------------------------------------------------------------------


def nccl_text(
    n: int = 8, *, root: bool = True, name: str | None = "all_reduce_perf", wrong: str = "0"
) -> str:
    lines = [
        f"# nThread 1 nGpus {n} minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1"
    ]
    if name:
        lines = [
            "# nccl-tests version 2.17.1 nccl-headers=22703 nccl-library=22703",
            f"# Collective test starting: {name}",
            *lines,
        ]
    lines += ["#", "# Using devices"]
    lines += [
        f"#  Rank {k:2} Group  0 Pid   6{k} on secret-host device  {k} [0000:0{k}:00] NVIDIA H200"
        for k in range(n)
    ]
    head = "size         count      type   redop" + ("    root" if root else "")
    lines += ["#", f"#       {head}     time   algbw   busbw #wrong     time   algbw   busbw #wrong"]
    lines += ["#        (B)    (elements)"]
    for size in (8, 1 << 20, 1 << 30):
        t = 20.0 + size / 275e3
        alg = size / t / 1e3
        row = f"{size}  {size // 4}  float  sum" + ("  -1" if root else "")
        lines.append(f"{row}  {t:.1f}  {alg:.4f}  {alg * 2 * (n - 1) / n:.4f}  {wrong}  {t:.1f}  1.0  1.0  0")
    return "\n".join([*lines, "# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 68.4048", ""])


@pytest.mark.parametrize("root", [True, False])
def test_nccl_tests_text(tmp_path: Path, root: bool) -> None:
    found = read(tmp_path, nccl_text(root=root))
    rate, latency = found["all-reduce.nccl.8"], found["all-reduce-latency.nccl.8"]
    assert rate.best == pytest.approx(275 * 1.75 * (1 - 20 / (20 + 2**30 / 275e3)), rel=1e-3)
    assert latency.best == pytest.approx(20.0, rel=1e-3) and latency.unit == "us"
    assert rate.curve is not None and rate.curve.sizes == (8.0, 2.0**20, 2.0**30) and rate.curve.ranks == 8
    assert rate.dtype == "float" and "nccl-tests 2.17.1" in rate.method
    assert rate.environment["library"] == "2.27.3" and rate.environment["devices"] == ["NVIDIA H200"]
    assert "secret-host" not in repr(found)


def test_an_old_table_without_a_name_is_known_by_its_factor_or_the_files_name(tmp_path: Path) -> None:
    assert "all-reduce.nccl.8" in read(tmp_path, nccl_text(name=None))
    # with two ranks all factors could be another's: nobody can tell
    with pytest.raises(WellfedError, match="holds no result"):
        read(tmp_path, nccl_text(2, name=None))
    assert "all-gather.nccl.2" in read(tmp_path, nccl_text(2, name=None), "nccl_allgather.log")


def test_runs_one_after_the_other_are_told_apart(tmp_path: Path) -> None:
    text = (
        nccl_text(name="all_gather_perf")
        + nccl_text(name="reduce_scatter_perf")
        + nccl_text(4, name="alltoall_perf")
    )
    found = read(tmp_path, text)
    assert {"all-gather.nccl.8", "reduce-scatter.nccl.8", "all-to-all.nccl.4"} <= set(found)


def test_wrong_data_are_not_a_ceiling_to_trust(tmp_path: Path) -> None:
    found = read(tmp_path, nccl_text(wrong="12"))
    assert found["all-reduce.nccl.8"].verdict == "implausible"


def nccl_json() -> dict[str, Any]:
    rows = [
        {
            "size": size, "count": size // 4, "type": "float", "redop": "sum", "root": "    -1",
            "out_of_place": {"time": 20.0 + size / 275e3, "alg_bw": 1.0, "bus_bw": 1.75 * size / (20.0 + size / 275e3) / 1e3, "nwrong": 0.0},
            "in_place": {"time": 1.0, "alg_bw": 1.0, "bus_bw": 1.0, "nwrong": 0.0}, "actual_iterations": 20,
        }
        for size in (8, 1 << 20, 1 << 30)
    ]  # fmt: skip
    devices = [
        {
            "rank": k,
            "group": 0,
            "pid": 1,
            "hostname": f"secret-{k // 4}",
            "device": k,
            "device_info": "NVIDIA H200",
        }
        for k in range(8)
    ]
    return {
        "version": 3, "start_time": "2026-01-01 00:00:00", "args": ["/opt/build/all_reduce_perf", "-b", "8"],
        "env": ["SECRET_TOKEN=abc"], "nccl_version": 22703,
        "config": {"nthreads": 1, "ngpus": 8, "devices": devices}, "results": rows,
        "out_of_bounds": {"count": 0, "okay": "true"},
    }  # fmt: skip


def test_nccl_tests_json(tmp_path: Path) -> None:
    found = read(tmp_path, json.dumps(nccl_json()), "r.json")
    rate = found["all-reduce.nccl.8"]
    assert rate.best == pytest.approx(275 * 1.75, rel=0.01)
    assert rate.curve is not None and len(rate.curve.sizes) == 3
    assert rate.environment["nodes"] == 2
    assert "abc" not in repr(found) and "secret" not in repr(found)


def test_a_cut_nccl_json_gives_its_whole_rows(tmp_path: Path) -> None:
    text = json.dumps(nccl_json())
    found = read(tmp_path, text[: text.rindex('"in_place"')], "all_reduce.json")
    rate = found["all-reduce.nccl.8"]
    assert rate.curve is not None and rate.curve.sizes == (8.0, 2.0**20)
    assert rate.environment["left_out"] == 1


# --- fio -------------------------------------------------------------------------------------------------


def fio_job(way: str, rw: str, bs: str, rate: float, size: int, **more: Any) -> dict[str, Any]:
    body = {
        "io_bytes": 1, "bw_bytes": rate, "bw": rate / 1024, "iops": rate / size, "iops_mean": rate / size, "iops_stddev": rate / size / 50,
        "iops_samples": 120, "clat_ns": {"mean": 1.0, "percentile": {"50.000000": 228000}},
    }  # fmt: skip
    idle = {"bw_bytes": 0, "bw": 0, "iops": 0.0}
    other = "write" if way == "read" else "read"
    return {"jobname": "a", "groupid": 0, "error": 0, "job options": {"rw": rw, "bs": bs, "direct": "1", "iodepth": "64"}, way: body, other: idle, **more}  # fmt: skip


def test_fio(tmp_path: Path) -> None:
    jobs = [
        fio_job("read", "read", "1M", 3.5e9, 1 << 20),
        fio_job("read", "randread", "4k", 1e9, 4096, groupid=1),
        fio_job("read", "randread", "4k", 1e9, 4096, groupid=1),
        fio_job("write", "write", "128k", 2e9, 1 << 17, **{"job options": {"rw": "write", "bs": "128k"}}),
        fio_job("read", "read", "1M", 3.5e9, 1 << 20, error=5),
    ]
    text = "fio: a warning\n" + json.dumps({"fio version": "fio-3.36", "global options": {}, "jobs": jobs})
    found = read(tmp_path, text, "x.json")
    assert (
        found["storage-read-seq"].best == pytest.approx(3500.0) and found["storage-read-seq"].unit == "MB/s"
    )
    random = found["storage-read-rand"]
    assert random.best == pytest.approx(2e9 / 4096) and random.unit == "IOPS" and random.threads == 2
    assert random.n == 120 and random.cv == pytest.approx(0.02) and random.why is None
    assert random.environment["latency_p50_us"] == 228.0 and "fio 3.36" in random.method
    assert "page cache" in (found["storage-write-seq.cached"].why or "")
    assert random.environment["left_out"] == 1


# --- perftest --------------------------------------------------------------------------------------------

IB = """---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Dual-port       : OFF		Device         : mlx5_0
 Link type       : IB
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 2          2000             5.32               5.30               2.778732
 8388608    2000             23240.68            23240.68                  0.002905
---------------------------------------------------------------------------------------
"""


def test_perftest_text(tmp_path: Path) -> None:
    found = read(tmp_path, IB)
    assert found["rdma-write"].best == pytest.approx(23240.68 * 2**20 / 1e9)  # MB are MiB here
    assert found["rdma-write"].environment["device"] == "mlx5_0"
    in_gbits = IB.replace("MB/sec", "Gb/sec").replace("23240.68", "196.12")
    assert read(tmp_path, in_gbits)["rdma-write"].best == pytest.approx(24.515)


def test_perftest_latency(tmp_path: Path) -> None:
    text = IB.replace("BW Test", "Latency Test").split(" #bytes")[0] + (
        " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]\n"
        " 2       1000          1.71           6.03         1.80     	       1.81        	0.10   		1.98    		6.03\n"
    )
    found = read(tmp_path, text)
    assert found["rdma-write-latency"].best == pytest.approx(1.80) and found["rdma-write-latency"].n == 1000


@pytest.mark.parametrize("quote", ['"', ""])
def test_perftest_json_does_not_tell_its_unit(tmp_path: Path, quote: str) -> None:
    def text(average: float) -> str:
        return f'{{"test_info": {{"test": {quote}RDMA_Write BW Test{quote}, "Device": {quote}mlx5_1{quote}}},\n"results": {{"MsgSize": 65536, "n_iterations": 5000, "BW_peak": 0, "BW_average": {average}, "MsgRate": 0.374}}}}'

    bytes_s = 65536 * 0.374e6
    assert read(tmp_path, text(bytes_s / 125e6), "a.json")["rdma-write"].best == pytest.approx(bytes_s / 1e9)
    assert read(tmp_path, text(bytes_s / 2**20), "a.json")["rdma-write"].best == pytest.approx(bytes_s / 1e9)


# --- Intel MLC -------------------------------------------------------------------------------------------

MLC = """Intel(R) Memory Latency Checker - v3.11
*** Unable to modify prefetchers (try executing 'modprobe msr')
Measuring idle latencies for random access (in ns)...
                Numa node
Numa node            0       1
       0         103.1   179.6
       1         182.7   107.3

Measuring Peak Injection Memory Bandwidths for the system
Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)
ALL Reads        :      199381.1
3:1 Reads-Writes :      218009.3
Stream-triad like:      205531.7

Measuring Memory Bandwidths between nodes within system
Bandwidths are in MB/sec (1 MB/sec = 1,000,000 Bytes/sec)
Using Read-only traffic type
                Numa node
Numa node            0       1
       0        101203.0        80509.9
       1        87389.3 90140.2

Measuring Loaded Latencies for the system
"""


def test_mlc(tmp_path: Path) -> None:
    found = read(tmp_path, MLC)
    assert found["latency-memory"].best == 103.1 and found["latency-memory.remote"].p90 == 182.7
    assert found["memory-read.all"].best == pytest.approx(199.3811)
    assert found["memory-mixed.3-1"].best == pytest.approx(218.0093)
    assert found["memory-read.local"].best == pytest.approx(101.203) and found[
        "memory-read.remote"
    ].best == pytest.approx(87.3893)
    assert "Intel MLC v3.11" in found["memory-read.all"].method


# --- SuperBench ------------------------------------------------------------------------------------------


def test_superbench(tmp_path: Path) -> None:
    def node(name: str, factor: float) -> str:
        return json.dumps({
            "node": name, "kernel-launch/event_time:0": 0.0055 * factor, "kernel-launch/event_time:1": 0.0056 * factor,
            "mem-bw/h2d_bw:0": 25.9, "nccl-bw:nvlink/allreduce_8_time:0": 35.2 * factor, "nccl-bw:nvlink/allreduce_8_busbw:0": 0.0,
            "nccl-bw:nvlink/allreduce_1073741824_time:0": 8159.5, "nccl-bw:nvlink/allreduce_1073741824_algbw:0": 131.59,
            "nccl-bw:nvlink/allreduce_1073741824_busbw:0": 230.29, "bert_models/pytorch-bert/steptime:0": 3.0,
            "mem-bw/return_code:0": 0,
        })  # fmt: skip

    found = read(
        tmp_path,
        "\n".join([node("secret-a", 1.0), node("secret-b", 1.1), "{broken"]),
        "results-summary.jsonl",
    )
    launch = found["launch.event"]
    assert launch.n == 4 and launch.unit == "us" and launch.best == pytest.approx(5.5)
    assert found["all-reduce.nccl.8"].best == pytest.approx(230.29)
    assert found["all-reduce-latency.nccl.8"].best == pytest.approx(35.2)
    assert launch.environment["left_out"] == 3 and launch.environment["nodes"] == 2
    assert "secret" not in repr(found)


# --- TransferBench ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("border", [" | ", "  │ ", ", "])
def test_transferbench(tmp_path: Path, border: str) -> None:
    rows = [
        "TransferBench v1.62.00", "Test 1:",
        " Executor: GPU 00 | 56.299 GB/s | 4.768 ms | 268435456 bytes | 56.309 GB/s (sum)",
        "     Transfer 00 | 56.309 GB/s | 4.767 ms | 268435456 bytes | G0 -> G000:004 -> G1",
        " Aggregate (CPU) | 55.015 GB/s | 4.879 ms | 268435456 bytes | Overhead: 0.111 ms", "Test 2:",
        "     Transfer 00 | 60.973 GB/s | 4.403 ms | 268435456 bytes | C0 -> D000:001 -> G1", "Test 3:",
        "     Transfer 00 | 37.857 GB/s | 0.028 ms | 1048576 bytes | G0 -> G000:004 -> G0", "Test 4:",
        "     Transfer 00 | 30.000 GB/s | 0.028 ms | 1048576 bytes | G0 -> G000:004 -> G1",
        "     Transfer 01 | 31.000 GB/s | 0.028 ms | 1048576 bytes | G1 -> G001:004 -> G0",
        "     Transfer 02 | 31.0",
    ]  # fmt: skip
    found = read(tmp_path, "\n".join(rows).replace(" | ", border))
    assert found["p2p-by-kernel.write"].best == pytest.approx(56.309)
    assert found["p2p-by-kernel.write"].environment["matrix"] == [[None, 56.309], [None, None]]
    assert found["h2d.pinned"].best == pytest.approx(60.973)
    assert found["hbm-copy-by-kernel"].best == pytest.approx(2 * 37.857)
    assert found["copies-beside.p2p-by-kernel.write"].n == 2
    assert found["h2d.pinned"].environment["left_out"] == 1


# --- all of them -----------------------------------------------------------------------------------------

SAMPLES = {
    "nvb.txt": NVB, "nvb.json": json.dumps(nvb_json()), "nccl.txt": nccl_text(), "nccl.json": json.dumps(nccl_json()),
    "fio.json": json.dumps({"fio version": "fio-3.36", "jobs": [fio_job("read", "read", "1M", 3e9, 1 << 20)]}),
    "ib.txt": IB, "mlc.txt": MLC,
}  # fmt: skip


def test_each_sample_is_of_one_tool_only() -> None:
    for name, text in SAMPLES.items():
        assert [r.__name__ for r in _readers() if r.matches(text[: 1 << 16], name)].__len__() == 1, name


def test_packed_files_and_the_library_function(tmp_path: Path) -> None:
    path = tmp_path / "nvb.txt.gz"
    path.write_bytes(gzip.compress(NVB.encode()))
    assert {c.id for c in wellfed.read_ceilings(path)} >= {"h2d.pinned", "hbm-copy"}


@pytest.mark.parametrize("text", ["", "nothing", "{", "[]", '{"node": 1}', "\0" * 100])
def test_what_is_of_no_tool_is_said(tmp_path: Path, text: str) -> None:
    with pytest.raises(WellfedError) as error:
        read(tmp_path, text)
    assert error.value.hint
    with pytest.raises(WellfedError):
        read_ceilings(tmp_path / "missing")


@given(st.sampled_from(sorted(SAMPLES)), st.floats(0, 1), st.binary(max_size=40), st.booleans())
def test_damage_gives_what_is_left_or_a_word(
    tmp_path_factory: pytest.TempPathFactory, name: str, at: float, junk: bytes, cut: bool
) -> None:
    raw = SAMPLES[name].encode()
    k = int(at * len(raw))
    path = tmp_path_factory.mktemp("damaged") / name
    path.write_bytes(raw[:k] + junk + (b"" if cut else raw[k + len(junk) :]))
    try:
        found = read_ceilings(path)
    except WellfedError:
        return
    for one in found:
        assert one.best == one.best and abs(one.best) != float("inf")
        assert one.method and one.unit


@given(st.text(max_size=200))
def test_json_never_raises(text: str) -> None:
    parse_json(text)
    parse_json("{" * 5000 + text)
