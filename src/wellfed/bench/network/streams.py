"""Bytes through TCP connections, and the time they take: the same few orders for loopback, namespaces and other hosts.

Each order is a letter and a count: `U` the server takes so many bytes and answers with one, `D` it sends so many, `E` it sends so many single
bytes back, each as it comes. Rates are counted until the answer is there, so what still lies in a buffer is not counted as sent.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

ORDER = struct.Struct("!cQ")
CHUNK = 128 << 10
"""As most programs read. One that reads much more at once holds the socket so long that the kernel drops what comes meanwhile."""
_TCP_INFO = 11
_INFO = struct.Struct("=8x24I")


class Info(NamedTuple):
    """What the kernel says of a connection: bytes a segment, MTU of the path, its round trip, segments sent again."""

    mss: int
    path_mtu: int
    rtt_us: int
    retransmits: int


def tcp_info(connection: socket.socket) -> Info | None:
    """None where the system does not tell."""
    try:
        raw = connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, "TCP_INFO", _TCP_INFO), _INFO.size)
    except OSError:
        return None
    if len(raw) < _INFO.size:
        return None
    words = _INFO.unpack(raw)
    return Info(mss=words[2], path_mtu=words[13], rtt_us=words[15], retransmits=words[23])


def serve_orders(
    connection: socket.socket,
    most_bytes: int = 1 << 62,
    before: Callable[[bytes], None] | None = None,
) -> int:
    """Do what comes over a connection until it ends; the bytes that were moved. An order that would take it over `most_bytes`
    ends it. `before` is called with the letter of each order."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    buffer = memoryview(bytearray(CHUNK))
    moved = 0
    while True:
        raw = take(connection, ORDER.size)
        if raw is None:
            return moved
        kind: bytes
        count: int
        kind, count = ORDER.unpack(raw)
        moved += count
        if moved > most_bytes or kind not in (b"U", b"D", b"E"):
            return moved - count
        if before is not None:
            before(kind)
        if kind == b"U":
            swallow(connection, count, buffer)
            connection.sendall(b".")
        elif kind == b"D":
            pour(connection, count, buffer)
        else:
            _echo(connection, count)


def send_bytes(connection: socket.socket, count: int, buffer: memoryview) -> float:
    """Seconds until the other end had all of them."""
    start = time.perf_counter()
    connection.sendall(ORDER.pack(b"U", count))
    pour(connection, count, buffer)
    if take(connection, 1) is None:
        raise ConnectionResetError("the other end closed the connection")
    return time.perf_counter() - start


def receive_bytes(connection: socket.socket, count: int, buffer: memoryview) -> float:
    """Seconds until all of them were here."""
    start = time.perf_counter()
    connection.sendall(ORDER.pack(b"D", count))
    swallow(connection, count, buffer)
    return time.perf_counter() - start


def round_trips(connection: socket.socket, count: int) -> list[float]:
    """Microseconds of each of so many round trips of one byte."""
    clock = time.perf_counter_ns
    send, receive = connection.send, connection.recv
    connection.sendall(ORDER.pack(b"E", count))
    samples = []
    for _ in range(count):
        start = clock()
        send(b"x")
        if not receive(1):
            raise ConnectionResetError("the other end closed the connection")
        samples.append((clock() - start) / 1000)
    return samples


def together(work: Sequence[Callable[[], float]]) -> float:
    """Seconds from the common start to the last end. The first OSError of any is raised."""
    gate = threading.Barrier(len(work) + 1)
    errors: list[OSError] = []

    def run(one: Callable[[], float]) -> None:
        gate.wait()
        try:
            one()
        except OSError as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    start = time.perf_counter()
    gate.wait()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return time.perf_counter() - start


def pour(connection: socket.socket, count: int, buffer: memoryview) -> None:
    while count:
        count -= connection.send(buffer[: min(count, len(buffer))])


def swallow(connection: socket.socket, count: int, buffer: memoryview) -> None:
    while count:
        got = connection.recv_into(buffer, min(count, len(buffer)))
        if not got:
            raise ConnectionResetError("the other end closed the connection")
        count -= got


def take(connection: socket.socket, count: int) -> bytes | None:
    """Exactly so many bytes; None when the connection ended first."""
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        if not more:
            return None
        data += more
    return data


def _echo(connection: socket.socket, count: int) -> None:
    for _ in range(count):
        if not connection.recv(1):
            raise ConnectionResetError("the other end closed the connection")
        connection.send(b"x")
