"""Networks with next to no time: orders, tokens, bounds, refusals, and that no process and no namespace is left behind."""

import contextlib
import errno
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from wellfed.bench import run_benchmarks
from wellfed.bench.network import nest, netlink, pair, streams, virtual
from wellfed.bench.setup import Options, Setup
from wellfed.model import Machine, WellfedError

TINY_S = 0.05
linux = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux's kernel")


# -- orders ----------------------------------------------------------------------------------------------------


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, threading.Thread, list[int]]]:
    """Our end of a connection, the thread that serves the other, and what it says it moved."""
    near, far = nest.connect_pair("127.0.0.1", 0, None, None)
    near.settimeout(10.0)
    moved: list[int] = []

    def work() -> None:
        with far, contextlib.suppress(OSError):
            moved.append(streams.serve_orders(far, 10_000_000))

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    with near:
        yield near, thread, moved
    thread.join(10)


@pytest.mark.parametrize("count", [1, streams.CHUNK, streams.CHUNK + 1, 3_000_001])
def test_all_bytes_arrive_both_ways(
    ends: tuple[socket.socket, threading.Thread, list[int]], count: int
) -> None:
    near, thread, moved = ends
    buffer = memoryview(bytearray(streams.CHUNK))
    assert streams.send_bytes(near, count, buffer) > 0
    assert streams.receive_bytes(near, count, buffer) > 0
    assert len(streams.round_trips(near, 5)) == 5
    near.close()
    thread.join(10)
    assert moved == [2 * count + 5]


def test_an_order_above_the_bound_ends_the_connection(
    ends: tuple[socket.socket, threading.Thread, list[int]],
) -> None:
    near, thread, moved = ends
    with pytest.raises(OSError):
        streams.receive_bytes(near, 10_000_001, memoryview(bytearray(streams.CHUNK)))
    thread.join(10)
    assert moved == [0]


@pytest.mark.parametrize("order", [b"Z" + struct.pack("!Q", 5), b"U", b"\xff" * 9])
def test_orders_that_are_none_end_the_connection(
    ends: tuple[socket.socket, threading.Thread, list[int]], order: bytes
) -> None:
    near, thread, moved = ends
    near.sendall(order)
    near.shutdown(socket.SHUT_WR)
    thread.join(10)
    assert moved == [0]


def test_an_error_in_one_stream_is_raised() -> None:
    def fail() -> float:
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError, match="gone"):
        streams.together([fail, lambda: 1.0])


@linux
def test_the_kernel_tells_of_a_connection() -> None:
    near, far = nest.connect_pair("127.0.0.1", 0, None, None)
    with near, far:
        info = streams.tcp_info(near)
        assert info is not None and info.retransmits == 0
        assert 0 < info.mss < info.path_mtu <= 65535


# -- networks of namespaces ------------------------------------------------------------------------------------


def test_attributes_are_padded() -> None:
    assert netlink.attribute(3, b"abc\0d") == struct.pack("=HH", 9, 3) + b"abc\0d\0\0\0"
    assert len(netlink.message(16, 5, b"x" * 8)) == 24


@linux
def test_the_kernels_refusal_is_an_error() -> None:
    with pytest.raises(OSError):  # an index that no link has, or no permission to ask
        netlink.route(netlink._NEW_LINK, netlink.link_header(0x7FFFFFF0, 1, 1), create=False)


@pytest.fixture(scope="module")
def found() -> dict[str, object]:
    """All networks, measured once."""
    if nest.needs():
        pytest.skip(nest.needs() or "")
    try:
        return nest.measure_networks(list(nest.NETWORKS), TINY_S, [])
    except WellfedError as error:
        pytest.skip(str(error))


def test_rounds_are_the_same_for_all(found: dict[str, dict[str, list[float]]]) -> None:
    names = ["loopback", *(name for name in nest.NETWORKS if name not in found["refused"])]
    assert len({len(found[name]["gb_s"]) for name in names}) == 1
    for name in names:
        assert len(found[name]["gb_s"]) == len(found[name]["batch_us"]) >= 4
        assert min(found[name]["gb_s"]) > 0 and min(found[name]["rtt_us"]) > 0


def test_bytes_went_through_the_networks(found: dict[str, dict[str, dict[str, int]]]) -> None:
    """The kernel's own word: the MTU of the path is Ethernet's, less the tunnel's header in the overlay."""
    mtu = {name: info["path_mtu"] for name, info in found["tcp"].items()}
    expected = {"veth": 1500, "bridge": 1500, "routed": 1500, "nat": 1500, "overlay": 1450}
    assert {name: mtu[name] for name in mtu if name != "loopback"} == {
        name: expected[name] for name in expected if name not in found["refused"]
    }


@linux
def test_the_host_sees_nothing_of_it(found: dict[str, object]) -> None:
    links = sorted(name for _, name in socket.if_nameindex())
    with contextlib.suppress(WellfedError):
        nest.measure_networks(["bridge", "overlay"], TINY_S, [])
    assert sorted(name for _, name in socket.if_nameindex()) == links
    assert not Path("/run/netns").is_dir() or not any(
        "wellfed" in p.name for p in Path("/run/netns").iterdir()
    )


@linux
@pytest.mark.parametrize("victim", ["parent", "nest"])
def test_a_kill_leaves_no_process(victim: str) -> None:
    """Namespaces without a process, a name or a descriptor are gone: all of them hang on these processes."""
    program = "from wellfed.bench.network import nest; nest.measure_networks(list(nest.NETWORKS), 30.0, [])"
    quiet = subprocess.DEVNULL
    with subprocess.Popen([sys.executable, "-c", program], stdout=quiet, stderr=quiet) as process:
        parent = psutil.Process(process.pid)
        deadline = time.monotonic() + 20
        family: list[psutil.Process] = []
        while len(family) < 2 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
            with contextlib.suppress(psutil.NoSuchProcess):
                family = parent.children(recursive=True)
        if process.poll() is not None:
            pytest.skip("namespaces are not allowed here")
        (process if victim == "parent" else parent.children()[0]).send_signal(signal.SIGKILL)
        assert process.wait(10) != 0
    _, alive = psutil.wait_procs(family, timeout=5)
    assert not alive


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSPC, errno.EINVAL])
def test_no_namespaces_cost_one_line(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(nest, "unshare", lambda flags: OSError(code, os.strerror(code)))
    reason = nest.enter()
    assert reason is not None and os.strerror(code) in reason and "CAP_SYS_ADMIN" in reason
    with pytest.raises(WellfedError, match="no network namespace"):
        nest.read_answer(b'{"error": "no network namespace: x"}', 0)
    with pytest.raises(WellfedError, match=r"ended early \(-9\)"):
        nest.read_answer(b"", -9)


def test_a_network_that_is_refused_leaves_the_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    samples = {"gb_s": [1.0, 2.0, 4.0], "batch_us": [10.0, 11.0, 12.0], "rtt_us": [1.0]}
    half = {"gb_s": [0.5, 1.0, 2.0], "batch_us": [20.0, 22.0, 24.0], "rtt_us": [1.0]}
    answer = {"loopback": samples, "nat": half, "refused": {"overlay": "no vxlan"}, "tcp": {}}
    monkeypatch.setattr(nest, "measure_networks", lambda *_: answer)
    ceilings = {c.id: c for c in virtual.measure(Setup(machine=Machine(), folder=tmp_path), 1.0)}
    assert sorted(ceilings) == ["virtual-bandwidth.nat", "virtual-latency.nat"]
    assert ceilings["virtual-bandwidth.nat"].median == 0.5 and ceilings["virtual-bandwidth.nat"].cv == 0
    assert ceilings["virtual-latency.nat"].median == 2.0
    assert ceilings["virtual-latency.nat"].environment["added_us"] == [10.0, 11.0, 12.0]
    monkeypatch.setattr(
        nest, "measure_networks", lambda *_: {"loopback": samples, "refused": {"nat": "no nft"}}
    )
    with pytest.raises(WellfedError, match="nat: no nft"):
        virtual.measure(Setup(machine=Machine(), folder=tmp_path), 1.0)


# -- two hosts -------------------------------------------------------------------------------------------------

SERVER = """
import sys
from wellfed.bench.network import pair
served = pair.serve(sys.argv[1], say=lambda text: print(text, flush=True), seconds=float(sys.argv[2]), most_bytes=int(sys.argv[3]))
print(served.connections, served.refused, served.why, flush=True)
"""


@contextlib.contextmanager
def server(seconds: float = 30.0, most_bytes: int = 1 << 40) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """A server on loopback, and the peer to name."""
    command = [sys.executable, "-c", SERVER, "127.0.0.1:0", str(seconds), str(most_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process, process.stdout.readline().split()[-1]
        finally:
            process.kill()


def last_line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.read().strip()


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@needs_fork
def test_two_hosts_that_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair, "_SAMPLE_S", 0.01)
    with server() as (process, peer):
        measured = run_benchmarks(
            Machine(), budget_s=0.3, only=["network.pair"], options=Options(peers=(peer,))
        )
        assert last_line(process) == "8 0 the session ended"
    assert [c.id for c in measured.ceilings] == [
        "peer-latency", "peer-send.1", "peer-send.8", "peer-receive.1", "peer-receive.8", "peer-both.8",
    ]  # fmt: skip
    assert all(c.median > 0 and c.n >= 3 for c in measured.ceilings) and not measured.skipped
    token, host = peer.rpartition(":")[2], "127.0.0.1"
    assert not any(secret in repr(measured) for secret in (token, host)), "a saved case names no other host"


@needs_fork
def test_without_the_token_there_is_nothing() -> None:
    with server() as (process, peer):
        host, port, token = pair.parse_peer(peer)
        for wrong in ("0" * len(token), token[:-1] + "\0", "x"):
            with pytest.raises(WellfedError, match="refuses"):
                pair._connect(host, port, wrong)
        pair._connect(host, port, token).close()
        assert re.fullmatch("1 3 the session ended", last_line(process))
        with pytest.raises(WellfedError, match="does not answer"):
            pair._connect(host, port, token)


@needs_fork
def test_a_server_keeps_its_bounds() -> None:
    with server(most_bytes=32 << 21) as (process, peer):
        with pair._connect(*pair.parse_peer(peer)) as end, pytest.raises(OSError):
            streams.receive_bytes(end, (2 << 20) + 1, memoryview(bytearray(1 << 20)))
        assert last_line(process) == "1 0 the session ended"
    with server(seconds=0.3) as (process, peer), pair._connect(*pair.parse_peer(peer)) as end:
        assert last_line(process) == "1 0 the time was over"
        with pytest.raises(OSError):
            streams.round_trips(end, 1)


@linux
def test_a_killed_server_takes_its_processes_along() -> None:
    with server() as (process, peer), pair._connect(*pair.parse_peer(peer)) as end:
        streams.round_trips(end, 1)
        family = psutil.Process(process.pid).children()
        assert len(family) == 1
        process.kill()
        process.wait(10)
        _, alive = psutil.wait_procs(family, timeout=5)
        assert not alive
        with pytest.raises(OSError):
            streams.round_trips(end, 1)


def test_words_for_places() -> None:
    assert pair.parse_listen("5201") == ("", 5201)
    assert pair.parse_listen("10.0.0.1:5201") == ("10.0.0.1", 5201)
    assert pair.parse_listen("[fe80::1]:0") == ("fe80::1", 0)
    assert pair.parse_peer("node7:5201:abc") == ("node7", 5201, "abc")
    assert pair.parse_peer("[fe80::1]:5201:abc") == ("fe80::1", 5201, "abc")
    for wrong in ("", "port", "1:2:x", "99999", "a:-1"):
        with pytest.raises(WellfedError, match="is no PORT"):
            pair.parse_listen(wrong)
    for wrong in (
        "",
        "host",
        "host:5201",
        "host:0:abc",
        "host:port:abc",
        ":5201:abc",
        "host:5201:",
        "host:99999:x",
    ):
        with pytest.raises(WellfedError, match="HOST:PORT:TOKEN"):
            pair.parse_peer(wrong)


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(WellfedError, match="can't listen"):
        pair.serve(f"127.0.0.1:{taken.getsockname()[1]}", say=lambda _: None)


def test_nobody_named_is_no_network() -> None:
    measured = run_benchmarks(Machine(), budget_s=0.1, only=["network.pair"])
    assert not measured.ceilings
    assert all("--serve PORT" in reason for reason in measured.skipped.values())


def test_a_nic_that_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair.psutil, "net_if_addrs", dict)
    nic = pair.Nic("192.0.2.1")
    assert nic.peak_gb_s() is None and nic.errors() == {} and nic.read("mtu") is None


def test_the_nics_speed_is_the_peak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pair.psutil, "net_if_addrs", dict)
    nic = pair.Nic("192.0.2.1")
    nic.folder = tmp_path
    (tmp_path / "speed").write_text("100000\n")
    assert nic.peak_gb_s() == 12.5
    (tmp_path / "speed").write_text("-1\n")
    assert nic.peak_gb_s() is None
