"""The network between two hosts that the user names: `wellfed measure --serve PORT` on one, `--with HOST:PORT:TOKEN` on the other.

The server listens on the port that it was told and nowhere else, for one session, so many seconds and so many bytes. Who can't say the one-time
token first is hung up on. All that crosses the network is random bytes and counts. Streams are TCP, so a fabric that RDMA would fill is measured by
what sockets reach; for InfiniBand and RoCE read in perftest's own results.
"""

import contextlib
import functools
import hmac
import os
import secrets
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.network import streams
from wellfed.bench.setup import Scale, Setup, allowed_cpus, build_ceiling
from wellfed.model import Ceiling, Machine, WellfedError
from wellfed.predict.statistics import p99

IDS = ("peer-send.*", "peer-receive.*", "peer-both.*", "peer-latency.*", "peer-latency")
WEIGHT = 3.0
EFFORT: Effort = "full"
MOST_SECONDS = 600.0
MOST_BYTES = 1 << 40
MOST_STREAMS = 32
_STREAMS = 8
_TOKEN_BYTES = 12
_WRONG_TOKENS = 20
_IDLE_S = 30.0
_SAMPLE_S = 0.2
_MOST_SAMPLE = 16 << 30
_CHUNK = 512 << 10
_THREADED_GB_S = 5.0
"""From here on the threads of one Python process may be the limit; below, they were within a few per cent of processes."""
_ERRORS = ("rx_errors", "tx_errors", "rx_dropped", "tx_dropped", "rx_missed_errors", "rx_crc_errors")

Say = Callable[[str], None]


# -- the server ------------------------------------------------------------------------------------------------


class Served(NamedTuple):
    """How a server's life went."""

    connections: int
    refused: int
    why: str


def serve(
    where: str,
    *,
    say: Say,
    seconds: float = MOST_SECONDS,
    most_bytes: int = MOST_BYTES,
    token: str | None = None,
) -> Served:
    """Serve one session at `PORT` or `ADDRESS:PORT`, then return. `say` gets what to type on the other host. Raises WellfedError when
    nothing can listen there."""
    address, port = parse_listen(where)
    secret = token or secrets.token_hex(_TOKEN_BYTES)
    with _listen(address, port) as listener:
        bound = listener.getsockname()[1]
        say(
            f"listening on {address or 'all addresses'}, port {bound}, for {seconds:.0f} s and one session; on the other host:"
        )
        say(f"wellfed measure --with {address or 'THIS-HOST'}:{bound}:{secret}")
        return _accept(listener, secret.encode(), time.monotonic() + seconds, most_bytes)


def parse_listen(where: str) -> tuple[str, int]:
    """`PORT`, `ADDRESS:PORT` or `[ADDRESS]:PORT`. Raises WellfedError."""
    address, _, port = where.rpartition(":")
    if not port.isdigit() or int(port) > 65535:
        raise WellfedError(f"{where!r} is no PORT or ADDRESS:PORT", hint="wellfed measure --serve 5201")
    return address.strip("[]"), int(port)


def parse_peer(peer: str) -> tuple[str, int, str]:
    """`HOST:PORT:TOKEN`. Raises WellfedError."""
    rest, _, token = peer.rpartition(":")
    host, _, port = rest.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or not token:
        raise WellfedError(
            "a peer is HOST:PORT:TOKEN, as its server prints it", hint="wellfed measure --serve 5201"
        )
    return host.strip("[]"), int(port), token


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=MOST_STREAMS)
    except OSError as error:
        raise WellfedError(
            f"can't listen on port {port}: {error.strerror or error}", hint="wellfed measure --serve 0"
        ) from error


def _accept(listener: socket.socket, secret: bytes, deadline: float, most_bytes: int) -> Served:
    """Until the session has ended: all of its connections are closed."""
    children: set[int] = set()
    served = refused = 0
    listener.settimeout(0.1)
    try:
        while True:
            children -= {pid for pid in children if os.waitpid(pid, os.WNOHANG)[0]}
            if served and not children:
                return Served(served, refused, "the session ended")
            if time.monotonic() >= deadline:
                return Served(served, refused, "the time was over")
            if refused >= _WRONG_TOKENS:
                return Served(served, refused, f"{refused} connections without the token")
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                continue
            with connection:
                if not _knows(connection, secret) or served >= MOST_STREAMS:
                    refused += 1
                    continue
                children.add(_fork(connection, listener, most_bytes // MOST_STREAMS))
                served += 1
    finally:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _knows(connection: socket.socket, secret: bytes) -> bool:
    """Whether the other end says the token within two seconds."""
    connection.settimeout(2.0)
    try:
        said = streams.take(connection, len(secret))
        if said is None or not hmac.compare_digest(said, secret):
            return False
        connection.sendall(b"+")
    except OSError:
        return False
    return True


def _fork(connection: socket.socket, listener: socket.socket, most_bytes: int) -> int:
    """A process for one connection: threads would share one interpreter."""
    from wellfed.bench.network.nest import die_with_parent

    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        die_with_parent(parent)
        listener.close()
        connection.settimeout(_IDLE_S)
        with contextlib.suppress(OSError):
            streams.serve_orders(connection, most_bytes)
    finally:
        os._exit(0)


# -- the client ------------------------------------------------------------------------------------------------


def needs(machine: Machine) -> str | None:
    """A system with sockets; which hosts is the user's to say."""
    return None


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """All peers that the user named, one after the other. Raises WellfedError when none was, or one does not answer."""
    peers = setup.options.peers
    if not peers:
        raise WellfedError(
            "no other host was named (`measure --serve PORT` there, `--with HOST:PORT:TOKEN` here)"
        )
    for number, peer in enumerate(peers, start=1):
        yield from measure_pair(setup, budget_s / len(peers), peer, "" if number == 1 else f".{number}")


def measure_pair(setup: Setup, budget_s: float, peer: str, suffix: str = "") -> Iterator[Ceiling]:
    """Latency, both directions with one stream and several, and both at once. Raises WellfedError when the peer can't be
    reached or refuses, OSError when it goes away."""
    host, port, token = parse_peer(peer)
    with contextlib.ExitStack() as stack:
        ends = [stack.enter_context(_connect(host, port, token)) for _ in range(_STREAMS)]
        nic = Nic(ends[0].getsockname()[0])
        share_s = budget_s / 6
        yield _latency(setup, ends[0], nic, share_s, suffix)
        for id, some, send, receive in (
            ("peer-send.1", ends[:1], True, False),
            (f"peer-send.{_STREAMS}", ends, True, False),
            ("peer-receive.1", ends[:1], False, True),
            (f"peer-receive.{_STREAMS}", ends, False, True),
            (f"peer-both.{_STREAMS}", ends, True, True),
        ):
            yield _bandwidth(setup, some, nic, share_s, id + suffix, send, receive)


def _connect(host: str, port: int, token: str) -> socket.socket:
    hint = "wellfed measure --serve 5201"
    try:
        end = socket.create_connection((host, port), timeout=5.0)
    except OSError as error:
        raise WellfedError(
            f"the other host does not answer on port {port}: {error.strerror or error}", hint=hint
        ) from error
    try:
        end.sendall(token.encode())
        welcome = streams.take(end, 1)
    except OSError:
        welcome = None
    if welcome != b"+":
        end.close()
        raise WellfedError("the other host refuses: wrong token, or its session has ended", hint=hint)
    end.settimeout(_IDLE_S)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return end


class Nic:
    """The interface that has a local address: its speed, MTU and error counters. Nothing where the system does not tell."""

    def __init__(self, address: str) -> None:
        plain = address.partition("%")[0]
        names = [
            name
            for name, found in psutil.net_if_addrs().items()
            if any(one.address.partition("%")[0] == plain for one in found)
        ]
        self.folder = Path("/sys/class/net", names[0]) if names else None

    def read(self, name: str) -> int | None:
        if self.folder is None:
            return None
        try:
            return int((self.folder / name).read_text(encoding="ascii"))
        except (OSError, ValueError):  # `speed` of a link that is down, or has none, can't be read
            return None

    def peak_gb_s(self) -> float | None:
        megabits = self.read("speed")
        return megabits / 8000 if megabits is not None and megabits > 0 else None

    def errors(self) -> dict[str, int]:
        found = {name: self.read(f"statistics/{name}") for name in _ERRORS}
        return {name: value for name, value in found.items() if value is not None}


def _latency(setup: Setup, end: socket.socket, nic: Nic, budget_s: float, suffix: str) -> Ceiling:
    before = noise.read_counters()
    streams.round_trips(end, 50)
    samples: list[float] = []
    deadline = time.monotonic() + budget_s
    while not samples or (time.monotonic() < deadline and len(samples) < 100_000):
        samples += streams.round_trips(end, 100)
    tail = p99(samples)
    info = streams.tcp_info(end)
    return build_ceiling(
        setup,
        before,
        samples,
        Scale(
            unit="us",
            higher_is_better=False,
            band=(3.0, 300_000.0),
            band_source="loopback to the other side of the Earth",
            max_cv=None,
        ),
        id=f"peer-latency{suffix}",
        title="TCP round trip of one byte to the named host",
        method="TCP_NODELAY, one connection",
        size="1 B",
        threads=1,
        environment={
            "p99_us": None if tail is None else round(tail, 1),
            "path_mtu": info and info.path_mtu,
            "mss": info and info.mss,
            "nic_mtu": nic.read("mtu"),
        },
    )


def _bandwidth(
    setup: Setup, ends: list[socket.socket], nic: Nic, budget_s: float, id: str, send: bool, receive: bool
) -> Ceiling:
    """With both directions the first half of the streams sends; the rate is of all bytes."""
    before, errors, resent = noise.read_counters(), nic.errors(), _retransmits(ends)
    rates = transfer_rates(ends, budget_s, send, receive)
    peak = nic.peak_gb_s()
    limit = None if peak is None else peak * (2 if send and receive else 1)
    now = nic.errors()
    reservation = None
    if len(ends) > 1 and max(rates) > _THREADED_GB_S:
        reservation = (
            "above 5 GB/s the threads of one Python process may be the limit; compare with iperf3 -P"
        )
    way = "both ways at once" if send and receive else "to it" if send else "from it"
    return build_ceiling(
        setup,
        before,
        rates,
        Scale(
            unit="GB/s",
            band=(0.5 * limit, 1.02 * limit) if limit else (0.001, 200.0),
            band_source="half of the interface's own speed, to that speed"
            if limit
            else "a home line to eight 200 Gb/s rails",
        ),
        id=id,
        title=f"TCP with the named host, {way}, {len(ends)} connection{'s' if len(ends) > 1 else ''}",
        method="a fifth of a second of random bytes until all of them were there; bytes of the payload",
        size="0.2 s of bytes",
        threads=len(ends),
        peak=limit,
        peak_source="speed of the interface" if limit else None,
        ratio=max(rates) / limit if limit else None,
        why=reservation,
        environment={
            "segments_resent_here": _retransmits(ends) - resent,
            "nic_errors": {name: now[name] - errors[name] for name in now if now[name] != errors.get(name)},
            "cpus": len(allowed_cpus()),
        },
    )


def transfer_rates(ends: list[socket.socket], budget_s: float, send: bool, receive: bool) -> list[float]:
    """GB/s of each sample; the first, which opens the windows, is thrown away, and the size follows the rate."""
    buffers = [memoryview(bytearray(os.urandom(_CHUNK))) for _ in ends]
    count, rates = 1 << 20, list[float]()
    deadline = time.monotonic() + budget_s
    warm = 3
    while warm or len(rates) < 3 or time.monotonic() < deadline:
        work = []
        for number, (end, buffer) in enumerate(zip(ends, buffers, strict=True)):
            sends = send and (not receive or number < len(ends) // 2)
            order = streams.send_bytes if sends else streams.receive_bytes
            work.append(functools.partial(order, end, count, buffer))
        seconds = streams.together(work)
        if warm:
            warm -= 1
            count = max(1 << 16, min(int(count / seconds * _SAMPLE_S), _MOST_SAMPLE // len(ends)))
        else:
            rates.append(count * len(ends) / seconds / 1e9)
    return rates


def _retransmits(ends: list[socket.socket]) -> int:
    infos: list[Any] = [streams.tcp_info(end) for end in ends]
    return sum(info.retransmits for info in infos if info is not None)
