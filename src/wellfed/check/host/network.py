"""Network checks that need more than one comparison."""

from collections.abc import Iterable

from wellfed.check.evaluate import Outcome, no_items
from wellfed.check.expression import whole
from wellfed.check.manual import ChangeRow, rule
from wellfed.model import Ceiling, Machine
from wellfed.model.devices import Nic

FAST_MBPS = 25_000
RTT_S = 1e-3
"""The round trip that one stream should fill: generous within a data centre, short between two."""

_RECEIVE, _SEND = "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"

_BELOW_64_MIB = "([0-9]{1,7}|[1-5][0-9]{7}|6[0-6][0-9]{6})"
_ROWS = tuple(
    ChangeRow(
        kind="sysctl",
        target=key,
        new=f"{own} 67108864",
        # Only where the first two numbers are the kernel's own and stay so, and 64 MiB are more than now and enough.
        when=f"it.speed_mbps <= 500000 and match('^{own} {_BELOW_64_MIB}$', kernel.sysctls['{key}'])",
    )
    for key, own in ((_RECEIVE, "4096 131072"), (_SEND, "4096 16384"))
)


@rule(
    "NET02",
    "socket-buffers-small",
    layer="network",
    severity="info",
    trust="read",
    intents=("training", "throughput"),
    reversible="live",
    change=_ROWS,
)
def judge_buffers(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """One TCP stream cannot fill the network interface.

    What it looks at. The third value of `net.ipv4.tcp_rmem` and `net.ipv4.tcp_wmem`, and the speed of physical
    interfaces that are up.
    Why it costs. A stream moves at most one window per round trip. The window ends at the third value.
    How it is judged. A note when one of the two is smaller than what a physical interface of 25 Gb/s or more sends in
    1 ms, so 12.5 MB for 100 Gb/s. Published values go from 16 MiB (tuned, network-throughput) over 256 and 512 MiB
    (NVIDIA's profiles) to 1 and 2 GiB (Azure's images for whole racks). Only the limit is judged: the kernel grows
    buffers up to it as needed. Interfaces whose speed is not known are not judged.
    What is known of the gain. Bandwidth of one stream is window over round trip; streams side by side add up.
    Remedy. `sudo sysctl net.ipv4.tcp_rmem="4096 131072 67108864" net.ipv4.tcp_wmem="4096 16384 67108864"`
    Restore. set the old three numbers again
    When to ignore. When all traffic is RDMA, when streams are many, or when round trips are far below 1 ms.
    Sources. tuned: network-throughput@2bfa442; NVIDIA/skyhook-packages: nvidia-tuned@3f9169b; Azure/azhpc-images:
    hpc-tuning.sh@8e9d055
    """
    nothing = no_items(machine, "nics")
    if nothing:
        return nothing
    outcomes = [one for index, nic in enumerate(machine.nics) if (one := _judge(machine, index, nic))]
    text = "no physical interface of 25 Gb/s or more is up"
    return outcomes or [Outcome(state="not-applicable", message=text)]


def _judge(machine: Machine, index: int, nic: Nic) -> Outcome | None:
    """None for an interface that this is not about."""
    item = ("nics", index)
    speed = f"nics[{index}].speed_mbps"
    if nic.is_physical is False or (nic.state is not None and nic.state != "up"):
        return None
    if nic.speed_mbps is not None and nic.speed_mbps < FAST_MBPS:
        return None
    unknown = [
        f"nics[{index}].{name}"
        for name in ("is_physical", "state", "speed_mbps")
        if getattr(nic, name) is None
    ]
    limits = {key: _third(machine.kernel.sysctls.get(key)) for key in (_RECEIVE, _SEND)}
    paths = (speed, *(f"kernel.sysctls[{key}]" for key in limits))
    lacking = [*unknown, *(f"kernel.sysctls[{key}]" for key, limit in limits.items() if limit is None)]
    needed = (nic.speed_mbps or 0) * 1e6 / 8 * RTT_S
    small = {key: limit for key, limit in limits.items() if limit is not None and limit < needed}
    if small and not unknown:
        said = " and ".join(f"{key} ends at {_mib(limit)} MiB" for key, limit in small.items())
        message = f"{said}; {nic.speed_mbps} Mb/s need {_mib(needed)} MiB for a round trip of 1 ms"
        return Outcome(state="finding", severity="info", item=item, message=message, paths=paths)
    if lacking:
        return Outcome(state="unknown", item=item, paths=paths, lacking=tuple(lacking))
    message = f"buffers may grow to {_mib(min(limit for limit in limits.values() if limit is not None))} MiB"
    return Outcome(state="pass", item=item, message=message, paths=paths)


def _third(text: str | None) -> int | None:
    words = (text or "").split()
    return whole(words[2]) if len(words) == 3 else None


def _mib(size: float) -> str:
    return f"{size / (1 << 20):.3g}"
