"""Links, addresses, routes and one masquerading rule by netlink, in the network namespace of the calling thread.

The kernel's own protocol, because a container has no `ip`, `iptables` or `nft`, and because each refusal comes with its reason. Only what
`nest` needs, which calls it inside of namespaces that it has made: nothing here says on which side of a door it is.
"""

import errno
import itertools
import os
import socket
import struct
from collections.abc import Sequence

_REQUEST, _ACK, _EXCL, _CREATE, _APPEND = 0x1, 0x4, 0x200, 0x400, 0x800
_NEW_LINK, _NEW_ADDRESS, _NEW_ROUTE, _ERROR = 16, 20, 24, 2
_ROUTE, _NETFILTER = 0, 12
_UP = 1
_HEADER = struct.Struct("=IHHII")
_numbers = itertools.count(1)


def attribute(kind: int, data: bytes) -> bytes:
    """A netlink attribute, padded to four bytes."""
    return struct.pack("=HH", len(data) + 4, kind) + data + b"\0" * (-len(data) % 4)


def text(kind: int, value: str) -> bytes:
    return attribute(kind, value.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    """32 bits in the order of this machine."""
    return attribute(kind, struct.pack("=I", value))


def message(kind: int, flags: int, body: bytes) -> bytes:
    return _HEADER.pack(len(body) + 16, kind, flags, next(_numbers), 0) + body


def exchange(protocol: int, messages: Sequence[bytes], answers: int) -> None:
    """Send messages as one datagram and wait for so many acknowledgements. Raises OSError with the first refusal."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol) as door:
        door.settimeout(5.0)
        door.send(b"".join(messages))
        while answers > 0:
            data = door.recv(1 << 16)
            while len(data) >= 20:
                length, kind = struct.unpack_from("=IH", data)
                if kind == _ERROR:
                    code = -struct.unpack_from("=i", data, 16)[0]
                    if code:
                        raise OSError(code, os.strerror(code))
                    answers -= 1
                data = data[(length + 3) // 4 * 4 :]


def route(kind: int, body: bytes, *, create: bool = True) -> None:
    flags = _REQUEST | _ACK | (_CREATE | _EXCL if create else 0)
    exchange(_ROUTE, [message(kind, flags, body)], 1)


def link_header(index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BxHiII", 0, 0, index, flags, change)


def link_info(kind: str, data: bytes = b"") -> bytes:
    return attribute(18, text(1, kind) + (attribute(2, data) if data else b""))


def add_veth(name: str, peer: str, peer_namespace: int) -> None:
    """A cable: one end here, the other in the namespace of that descriptor."""
    other = link_header() + text(3, peer) + number(28, peer_namespace)
    route(_NEW_LINK, link_header() + text(3, name) + link_info("veth", attribute(1, other)))


def add_bridge(name: str) -> None:
    route(_NEW_LINK, link_header() + text(3, name) + link_info("bridge"))


def add_vxlan(name: str, number_: int, under: str, local: str, remote: str, port: int = 4789) -> None:
    """A tunnel over the link `under` to one other end."""
    data = b"".join(
        (
            number(1, number_),
            attribute(2, socket.inet_aton(remote)),
            number(3, socket.if_nametoindex(under)),
            attribute(4, socket.inet_aton(local)),
            attribute(15, struct.pack("!H", port)),
        )
    )
    route(_NEW_LINK, link_header() + text(3, name) + link_info("vxlan", data))


def set_up(name: str, master: str | None = None) -> None:
    body = link_header(socket.if_nametoindex(name), _UP, _UP)
    if master is not None:
        body += number(10, socket.if_nametoindex(master))
    route(_NEW_LINK, body, create=False)


def set_forwarding(name: str) -> None:
    """Let IPv4 packets that come in by this link go on. By netlink, because containers mount /proc/sys read-only."""
    configuration = attribute(1, number(1, 1))  # IFLA_INET_CONF: IPV4_DEVCONF_FORWARDING
    body = link_header(socket.if_nametoindex(name)) + attribute(26, attribute(socket.AF_INET, configuration))
    route(_NEW_LINK, body, create=False)


def add_address(name: str, address: str, prefix: int) -> None:
    body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, 0, socket.if_nametoindex(name))
    packed = socket.inet_aton(address)
    route(_NEW_ADDRESS, body + attribute(2, packed) + attribute(1, packed))


def add_default_route(gateway: str) -> None:
    body = struct.pack("=BBBBBBBBI", socket.AF_INET, 0, 0, 0, 254, 4, 0, 1, 0)
    route(_NEW_ROUTE, body + attribute(5, socket.inet_aton(gateway)))


def add_masquerade() -> None:
    """An nftables rule by which all that leaves this namespace bears the address of the link that it leaves by."""
    table, chain = "wellfed", "post"
    hook = attribute(1, struct.pack("!I", 4)) + attribute(2, struct.pack("!i", 100))
    masquerade = attribute(1, text(1, "masq") + attribute(2, b""))
    family = struct.pack("!BBH", socket.AF_INET, 0, 0)
    subsystem = struct.pack("!BBH", 0, 0, 10)
    make = _REQUEST | _ACK | _CREATE
    batch = [
        message(0x10, _REQUEST, subsystem),
        message(10 << 8, make, family + text(1, table)),
        message(
            10 << 8 | 3, make, family + text(1, table) + text(3, chain) + attribute(4, hook) + text(7, "nat")
        ),
        message(
            10 << 8 | 6, make | _APPEND, family + text(1, table) + text(2, chain) + attribute(4, masquerade)
        ),
        message(0x11, _REQUEST, subsystem),
    ]
    exchange(_NETFILTER, batch, 3)


def is_refusal(error: OSError) -> bool:
    """Whether a kernel or a sandbox does not have, or does not allow, what was asked."""
    known = (
        errno.EPERM,
        errno.EACCES,
        errno.EOPNOTSUPP,
        errno.ENOENT,
        errno.EAFNOSUPPORT,
        errno.EPROTONOSUPPORT,
        errno.EINVAL,
        errno.ENOSYS,
    )
    return error.errno in known
