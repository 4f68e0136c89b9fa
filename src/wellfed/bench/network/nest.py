"""A process of its own that builds small networks and measures through them: what veth, a bridge, NAT and an overlay cost.

All networks lie in anonymous network namespaces that this process alone holds, by descriptors and sockets. They have no names and are tied to no file,
so they are gone when it is, by whatever signal; it asks the kernel to be killed when its parent dies. The host's own links, routes and tables are
never touched: the only thing done in the host's namespace is a TCP connection over loopback. Without root it makes a user namespace first,
where the system allows that.

It speaks JSON: what to do on stdin, what was found on stdout.
"""

import contextlib
import ctypes
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from wellfed.bench.network import netlink, streams
from wellfed.model import WellfedError

PROGRAM = "from wellfed.bench.network.nest import main; main()"
NETWORKS = ("veth", "bridge", "routed", "nat", "overlay")
_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_PR_SET_PDEATHSIG = 1
_PORT = 5201
_SAMPLE_S = 0.04
_PINGS = 100
_MOST_SAMPLE = 1 << 30
_PATIENCE_S = 30.0

Pair = tuple[socket.socket, socket.socket]
"""Both ends of a connection: of the client, of the server."""


# -- in wellfed ------------------------------------------------------------------------------------------------


def needs() -> str | None:
    """Why there is nothing to measure with; None when there is."""
    if sys.platform != "linux":
        return "this needs a Linux kernel"
    return None if sys.executable else "this Python does not know its own program, so it can't start another"


def measure_networks(
    names: list[str], budget_s: float, cpus: list[int], streams_at_once: int = 1, one_cpu: bool = True
) -> dict[str, Any]:
    """`{"loopback": {"gb_s": [...], "rtt_us": [...], "batch_us": [...]}, "veth": ..., "refused": {name: why}}`. Rates and batches
    of all networks were taken in turn: item i of each is of the same round. Bytes go from one CPU to another; single bytes go to and
    fro on one (`one_cpu`): then only the way differs, and not how long another core takes to wake up. With `streams_at_once`
    above 1 also `"many": {"gb_s"}`, of so many connections over loopback. Raises WellfedError with the reason when nothing could
    be measured."""
    order = {"names": names, "budget_s": budget_s, "cpus": cpus, "many": streams_at_once, "one_cpu": one_cpu}
    one = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(os.getpid())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **one, "PYTHONPATH": path},
    ) as process:
        try:
            out, _ = process.communicate(json.dumps(order).encode(), timeout=3 * budget_s + _PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise WellfedError("measuring through network namespaces did not end and was stopped") from None
        finally:
            process.kill()
    return read_answer(out, process.returncode)


def read_answer(out: bytes, code: int) -> dict[str, Any]:
    """What the process said; WellfedError when it failed, or died."""
    try:
        found = json.loads(out)
    except ValueError:
        raise WellfedError(
            f"the process that measures through network namespaces ended early ({code})"
        ) from None
    assert isinstance(found, dict)
    if "error" in found:
        raise WellfedError(found["error"])
    return found


# -- in the process ----------------------------------------------------------------------------------------------


def main() -> None:
    die_with_parent(int(sys.argv[1]))
    order = json.load(sys.stdin)
    try:
        answer = run(order)
    except OSError as error:
        answer = {"error": f"{error.strerror or error}"}
    json.dump(answer, sys.stdout)
    sys.stdout.flush()


def die_with_parent(parent: int) -> None:
    """SIGKILL for this process when its parent ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def run(order: dict[str, Any]) -> dict[str, Any]:
    """Loopback and the networks, in turn."""
    cpus: list[int] = order["cpus"]
    pairs: dict[str, Pair] = {"loopback": connect_pair("127.0.0.1", 0, None, None)}
    more = (
        [connect_pair("127.0.0.1", 0, None, None) for _ in range(order["many"])] if order["many"] > 1 else []
    )
    refused: dict[str, str] = {}
    if order["names"]:
        reason = enter()
        if reason is not None:
            return {"error": reason}
    for name in order["names"]:
        try:
            pairs[name] = BUILD[name]()
        except OSError as error:
            refused[name] = f"the kernel refuses it here: {error.strerror or error}"
    for _, server in pairs.values():
        fork_server(server, cpus, order["one_cpu"])
    for _, server in more:
        fork_server(server, [], False)
    ends = {name: pair[0] for name, pair in pairs.items()}
    return {**measure_pairs(ends, [pair[0] for pair in more], order["budget_s"], cpus), "refused": refused}


def enter() -> str | None:
    """Leave the host's network for a namespace of our own; why not, when that is refused."""
    error = unshare(_NEW_NET)
    if error is None:
        return None
    uid, gid = os.getuid(), os.getgid()
    refusal = unshare(_NEW_USER | _NEW_NET)
    if refusal is not None:
        return (
            f"no network namespace: {error.strerror} without root, {refusal.strerror} with a user namespace "
            "(CAP_SYS_ADMIN, or unprivileged user namespaces, are needed)"
        )
    for path, line in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        Path(f"/proc/self/{path}").write_text(line, encoding="ascii")
    return None


def unshare(flags: int) -> OSError | None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(flags) == 0:
        return None
    code = ctypes.get_errno()
    return OSError(code, os.strerror(code))


def new_namespace() -> int:
    """A descriptor of a fresh network namespace, which is entered, its loopback up."""
    error = unshare(_NEW_NET)
    if error is not None:
        raise error
    netlink.set_up("lo")
    return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def go(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _NEW_NET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def connect_pair(address: str, port: int, client: int | None, server: int | None) -> Pair:
    """A TCP connection from one namespace to another (None: where we are)."""
    if server is not None:
        go(server)
    with socket.create_server((address, port)) as listener:
        if client is not None:
            go(client)
        near = socket.create_connection(listener.getsockname(), timeout=5.0)
        listener.settimeout(5.0)
        far, _ = listener.accept()
    for end in (near, far):
        end.settimeout(None)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return near, far


def cable(near: int, near_name: str, far: int, far_name: str) -> None:
    go(near)
    netlink.add_veth(near_name, far_name, far)
    netlink.set_up(near_name)
    go(far)
    netlink.set_up(far_name)


def address(namespace: int, name: str, own: str, gateway: str | None = None) -> None:
    go(namespace)
    netlink.add_address(name, own, 24)
    if gateway is not None:
        netlink.add_default_route(gateway)


def build_veth() -> Pair:
    """Two namespaces and a cable."""
    a, b = new_namespace(), new_namespace()
    cable(a, "eth0", b, "eth0")
    address(a, "eth0", "10.200.0.1")
    address(b, "eth0", "10.200.0.2")
    return connect_pair("10.200.0.2", _PORT, a, b)


def build_bridge() -> Pair:
    """Two containers on one bridge."""
    a, middle, b = new_namespace(), new_namespace(), new_namespace()
    go(middle)
    netlink.add_bridge("br0")
    netlink.set_up("br0")
    for end, port in ((a, "porta"), (b, "portb")):
        cable(middle, port, end, "eth0")
        go(middle)
        netlink.set_up(port, "br0")
    address(a, "eth0", "10.200.0.1")
    address(b, "eth0", "10.200.0.2")
    return connect_pair("10.200.0.2", _PORT, a, b)


def build_router(masquerade: bool) -> Pair:
    """A container behind a router, with NAT or without."""
    a, middle, b = new_namespace(), new_namespace(), new_namespace()
    cable(middle, "inner", a, "eth0")
    cable(middle, "outer", b, "eth0")
    address(middle, "inner", "10.201.0.254")
    address(middle, "outer", "10.202.0.254")
    for name in ("inner", "outer"):
        netlink.set_forwarding(name)
    if masquerade:
        netlink.add_masquerade()
    address(a, "eth0", "10.201.0.1", "10.201.0.254")
    # Behind NAT the other side knows no way to us: when the rule does nothing, no connection comes about.
    address(b, "eth0", "10.202.0.1", None if masquerade else "10.202.0.254")
    return connect_pair("10.202.0.1", _PORT, a, b)


def build_overlay() -> Pair:
    """Two containers on two machines: each on the bridge of its machine, and a VXLAN tunnel between the bridges."""
    a, left, right, b = (new_namespace() for _ in range(4))
    cable(left, "wire", right, "wire")
    for machine, own, other, container in (
        (left, "10.203.0.1", "10.203.0.2", a),
        (right, "10.203.0.2", "10.203.0.1", b),
    ):
        address(machine, "wire", own)
        netlink.add_bridge("br0")
        netlink.set_up("br0")
        netlink.add_vxlan("vx0", 42, "wire", own, other)
        netlink.set_up("vx0", "br0")
        cable(machine, "port", container, "eth0")
        go(machine)
        netlink.set_up("port", "br0")
    address(a, "eth0", "10.200.0.1")
    set_mtu_of_tunnel(a)
    address(b, "eth0", "10.200.0.2")
    set_mtu_of_tunnel(b)
    return connect_pair("10.200.0.2", _PORT, a, b)


def set_mtu_of_tunnel(namespace: int) -> None:
    """50 bytes less than Ethernet's: what VXLAN adds to each packet. Overlays set it so."""
    go(namespace)
    body = netlink.link_header(socket.if_nametoindex("eth0")) + netlink.number(4, 1450)
    netlink.route(16, body, create=False)


BUILD: dict[str, Callable[[], Pair]] = {
    "veth": build_veth,
    "bridge": build_bridge,
    "routed": lambda: build_router(False),
    "nat": lambda: build_router(True),
    "overlay": build_overlay,
}


def fork_server(end: socket.socket, cpus: list[int], one_cpu: bool) -> None:
    """A process at the other end of a connection, until that closes: on the CPU before the last for bytes, on the last, where the client is, for
    single ones (`one_cpu`)."""
    parent = os.getpid()
    if os.fork():
        end.close()
        return
    try:
        die_with_parent(parent)

        def move(kind: bytes) -> None:
            if len(cpus) > 1:
                pin([cpus[-1] if kind == b"E" and one_cpu else cpus[-2]])

        with contextlib.suppress(OSError):
            streams.serve_orders(end, before=move)
    finally:
        os._exit(0)


def pin(cpus: list[int]) -> None:
    if cpus:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, set(cpus))


def measure_pairs(
    ends: dict[str, socket.socket], more: list[socket.socket], budget_s: float, cpus: list[int]
) -> dict[str, Any]:
    """Rounds over all connections, forwards and backwards in turn; the first is thrown away."""
    watchdog = threading.Timer(3 * budget_s + _PATIENCE_S, os._exit, (1,))
    watchdog.daemon = True
    watchdog.start()
    buffer = memoryview(bytearray(os.urandom(streams.CHUNK)))
    pin(cpus[-1:])
    counts = {name: _calibrate(end, buffer) for name, end in ends.items()}
    found: dict[str, dict[str, list[float]]] = {
        name: {"gb_s": [], "batch_us": [], "rtt_us": []} for name in ends
    }
    many: list[float] = []
    deadline = time.monotonic() + budget_s
    names, rounds = list(ends), 0
    while rounds < 5 or time.monotonic() < deadline:
        for name in names:
            one = found[name]
            one["gb_s"].append(counts[name] / streams.send_bytes(ends[name], counts[name], buffer) / 1e9)
            trips = streams.round_trips(ends[name], _PINGS)
            one["batch_us"].append(sorted(trips)[len(trips) // 2])
            one["rtt_us"] += trips
        if more:
            pin(cpus)
            many.append(_at_once(more, counts["loopback"], buffer))
            pin(cpus[-1:])
        names.reverse()
        rounds += 1
    for one in found.values():
        one["gb_s"], one["batch_us"], one["rtt_us"] = (
            one["gb_s"][1:],
            one["batch_us"][1:],
            one["rtt_us"][_PINGS:],
        )
    infos = {name: streams.tcp_info(end) for name, end in ends.items()}
    tcp = {name: info._asdict() for name, info in infos.items() if info is not None}
    return {**found, "many": {"gb_s": many[1:]}, "tcp": tcp}


def _at_once(ends: list[socket.socket], count: int, buffer: memoryview) -> float:
    """GB/s over all connections together."""
    work = [functools.partial(streams.send_bytes, end, count, buffer) for end in ends]
    return count * len(ends) / streams.together(work) / 1e9


def _calibrate(end: socket.socket, buffer: memoryview) -> int:
    """Bytes that take about a sample's time, after a first lot that opens the window."""
    count = 8 << 20
    streams.send_bytes(end, count, buffer)
    seconds = streams.send_bytes(end, count, buffer)
    return max(1 << 20, min(int(count / seconds * _SAMPLE_S), _MOST_SAMPLE))
