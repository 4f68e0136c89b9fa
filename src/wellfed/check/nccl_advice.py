"""What to try with NCCL's variables on this machine, pure: only what its facts or its measured curves speak for.

Each piece of advice says what speaks for it, what it may be worth (or that nobody knows), and when it does harm. What no
fact of one machine can tell (queue pairs for a fabric's ECMP, traffic classes, timeouts, rails) is never advised.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from wellfed import catalog
from wellfed.model import Ceiling, Curve, Machine, Value
from wellfed.model.devices import RdmaPort
from wellfed.model.ranks import Limit
from wellfed.predict.collective import half_bandwidth_bytes, link_curve
from wellfed.predict.comm_limit import CONTENTION_FROM, Pairs, limit_of_curve, slow_pairs

if TYPE_CHECKING:
    from wellfed.analyze.links import Link

UNKNOWN = "worth not known: measure before and after (`wellfed measure --only collectives`, or nccl-tests over the nodes)"
SWITCHED_OFF = {
    "NCCL_P2P_DISABLE": ("", "0"), "NCCL_SHM_DISABLE": ("", "0"), "NCCL_IB_DISABLE": ("", "0"),
}  # fmt: skip
PINNED = ("NCCL_ALGO", "NCCL_PROTO")
NVLS_GAIN = 1.29
"""8 x H200, all_reduce of 8 GiB: 473.1 with NVLS, 365.6 GB/s without (stas00/ml-engineering@744d01e)."""
DDP_BUCKET_BYTES = 25 << 20
SLOWER_PORT = 0.5
"""Rate over the fastest port's from which on a port is of another kind: storage, management."""


class Advice(Value, frozen=True, kw_only=True):
    """`setting` is the variable or option, `value` what to try (None: unset it). `speaks` is the evidence, `worth` what it
    may bring with its basis, `danger` when not to."""

    setting: str
    value: str | None
    why: str
    speaks: str
    worth: str
    danger: str

    @property
    def text(self) -> str:
        """One line: what to do, and why."""
        do = f"unset {self.setting}" if self.value is None else f"{self.setting}={self.value}"
        return f"{do}: {self.why} ({self.speaks}; {self.worth})"


class BelowLink(Value, frozen=True, kw_only=True):
    """A measured collective and what it says beside its link."""

    op: str
    ranks: int
    limit: Limit
    source: str


def advise(machine: Machine, ceilings: Sequence[Ceiling] = ()) -> tuple[Advice, ...]:
    """What this machine's facts, environment and measured collectives speak for, what is surest first."""
    below = below_link(machine, ceilings)
    slow = next((one for one in below if one.limit.kind == "path"), None)
    return (
        *_switched_off(machine, slow),
        *_pinned(machine),
        *_nvls(machine),
        *_look_at_path(machine, slow),
        *_contention(ceilings),
        *_slow_ports(machine),
        *_relaxed_ordering(machine),
        *_bucket(ceilings),
    )


def below_link(machine: Machine, ceilings: Sequence[Ceiling]) -> tuple[BelowLink, ...]:
    """Measured collectives of this machine's GPUs beside the link that the catalogue knows; `()` where it knows none."""
    found = []
    for ceiling in ceilings:
        curve = ceiling.curve
        link = (
            link_of(machine, curve.ranks) if curve is not None and curve.backend in ("nccl", "rccl") else None
        )
        if curve is None or link is None:
            continue
        sound = link_curve(curve.op, curve.ranks, link.kind, link.bytes_s, link.source)
        limit = limit_of_curve(curve, sound) if sound is not None else None
        if limit is not None:
            found.append(BelowLink(op=curve.op, ranks=curve.ranks, limit=limit, source=link.source))
    return tuple(found)


def link_of(machine: Machine, n: int) -> "Link | None":
    """The link among `n` GPUs of this machine; None when they are unlike, too few, or not in the catalogue."""
    gpus = [gpu for gpu in machine.gpus if not gpu.mig]
    names = {gpu.name for gpu in gpus}
    name = next(iter(names), None)
    spec = catalog.find_gpu(name=name) if len(names) == 1 and name and len(gpus) >= n > 1 else None
    from wellfed.analyze.links import Link, link_within  # numpy: not for a machine without a known GPU

    found = link_within(spec, n) if spec is not None else None
    return found if isinstance(found, Link) else None


def pairs_of(ceilings: Sequence[Ceiling]) -> tuple[tuple[str, Pairs], ...]:
    """What measured matrices of rates between GPUs say, by ceiling."""
    found = []
    for one in ceilings:
        matrix = one.environment.get("matrix")
        if one.id.startswith("p2p") and one.higher_is_better and isinstance(matrix, list | tuple):
            found.append((one.id, slow_pairs(matrix)))
    return tuple(found)


def _told(machine: Machine, name: str) -> str:
    return machine.environment.get(name, "").strip()


def _switched_off(machine: Machine, slow: BelowLink | None) -> Iterator[Advice]:
    needs = {"NCCL_IB_DISABLE": bool(machine.rdma)}
    for name, harmless in SWITCHED_OFF.items():
        if _told(machine, name) in harmless or not needs.get(name, len(machine.gpus) > 1):
            continue
        times = slow.limit.ratio[1] if slow is not None and name != "NCCL_IB_DISABLE" else None
        worth = (
            f"up to {times:.1f} times in {slow.op} (measured beside the link)" if times and slow else UNKNOWN
        )
        yield Advice(
            setting=name, value=None, why="it is a switch for debugging and cuts a transport off",
            speaks=f"{name}={_told(machine, name)} in the environment", worth=worth,
            danger="where it was set around a hang: take it out in one test job first",
        )  # fmt: skip


def _pinned(machine: Machine) -> Iterator[Advice]:
    for name in PINNED:
        if value := _told(machine, name):
            unsafe = "LL128" in value.upper()
            yield Advice(
                setting=name, value=None, why="NCCL chooses by size and path; one choice fits one size",
                speaks=f"{name}={value} in the environment", worth=UNKNOWN,
                danger="LL128 forced on a path that does not keep 128-byte stores whole corrupts data"
                if unsafe
                else "a comparison that depends on it",
            )  # fmt: skip


def _nvls(machine: Machine) -> Iterator[Advice]:
    if _told(machine, "NCCL_NVLS_ENABLE") != "0":
        return
    link = link_of(machine, len(machine.gpus))
    if link is not None and link.kind == "nvlink" and len(machine.gpus) > 4:
        yield Advice(
            setting="NCCL_NVLS_ENABLE", value=None, why="switches add up all_reduce where they can",
            speaks=f"NCCL_NVLS_ENABLE=0 and {len(machine.gpus)} GPUs on NVLink",
            worth=f"up to {NVLS_GAIN} times in large all_reduce (literature: 8 x H200)",
            danger="it takes GPU memory for its buffers, and some shared hosts forbid multicast",
        )  # fmt: skip


def _look_at_path(machine: Machine, slow: BelowLink | None) -> Iterator[Advice]:
    if slow is None or any(_told(machine, name) not in ok for name, ok in SWITCHED_OFF.items()):
        return
    yield Advice(
        setting="NCCL_DEBUG", value="INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING NCCL_DEBUG_FILE=/tmp/nccl.%h.%p.log",
        why="one run shows which path and algorithm NCCL took",
        speaks=f"{slow.op} over {slow.ranks} takes {slow.limit.ratio[1]:.1f} times what its link needs ({slow.source})",
        worth=f"up to {slow.limit.ratio[1]:.1f} times in {slow.op}, once the cause is found (measured)",
        danger="in production: every rank writes much",
    )  # fmt: skip


def _contention(ceilings: Sequence[Ceiling]) -> Iterator[Advice]:
    for one in ceilings:
        if not one.id.startswith(("comm-overlap.nccl.", "comm-overlap.rccl.")) or not one.id.endswith(
            ".gemm"
        ):
            continue
        if one.median >= CONTENTION_FROM and one.verdict != "noisy":
            yield Advice(
                setting="NCCL_MAX_CTAS", value="16", why="fewer thread blocks for NCCL leave more of the GPU to what runs beside it",
                speaks=f"a GEMM takes {one.median:.2f} times as long beside an all_reduce (n={one.n})",
                worth=f"at most {one.median:.2f} times of the time in which both run (measured)",
                danger="it lowers the bandwidth of communication that nothing hides: measure both",
            )  # fmt: skip
            return


def _slow_ports(machine: Machine) -> Iterator[Advice]:
    active = [port for port in machine.rdma if port.state == "ACTIVE" and (port.rate_gbps or 0) > 0]
    fastest = max((port.rate_gbps or 0.0 for port in active), default=0.0)
    fast = [port for port in active if (port.rate_gbps or 0.0) > SLOWER_PORT * fastest]
    slow = [port for port in active if port not in fast]
    if not slow or not machine.gpus or _told(machine, "NCCL_IB_HCA"):
        return
    yield Advice(
        setting="NCCL_IB_HCA", value="=" + ",".join(f"{port.device}:{port.port}" for port in fast[:16]),
        why="slower ports (storage, management) stay out of collectives",
        speaks=f"{_ports(fast)} and {_ports(slow)} are active", worth=UNKNOWN,
        danger="names differ from node to node: a job that spans kinds of nodes then finds no device",
    )  # fmt: skip


def _ports(ports: Sequence[RdmaPort]) -> str:
    names = ", ".join(port.device for port in ports[:4]) + (
        f" and {len(ports) - 4} more" if len(ports) > 4 else ""
    )
    return f"{names} with {min(port.rate_gbps or 0.0 for port in ports):.0f} Gb/s"


def _relaxed_ordering(machine: Machine) -> Iterator[Advice]:
    box = machine.kernel.virtualization or machine.cpu.hypervisor
    active = [port for port in machine.rdma if port.state == "ACTIVE"]
    if (
        not box
        or box == "none"
        or not active
        or not machine.gpus
        or _told(machine, "NCCL_IB_PCI_RELAXED_ORDERING")
    ):
        return
    yield Advice(
        setting="NCCL_IB_PCI_RELAXED_ORDERING", value="1", why="in a virtual machine NCCL may not see that the path allows it",
        speaks=f"a virtual machine ({box}) with {len(active)} active RDMA port{'s' if len(active) > 1 else ''}", worth=UNKNOWN,
        danger="adapters and host bridges that reorder wrongly: check the data (`all_reduce_perf -c 1`)",
    )  # fmt: skip


def _bucket(ceilings: Sequence[Ceiling]) -> Iterator[Advice]:
    curve: Curve | None = None
    for one in ceilings:
        if one.curve is not None and one.curve.op == "all_reduce" and one.curve.backend in ("nccl", "rccl"):
            curve = one.curve if curve is None or one.curve.ranks > curve.ranks else curve
    if curve is None:
        return
    half = half_bandwidth_bytes(curve)
    if 2 * half > DDP_BUCKET_BYTES:
        cap = round(3 * half / (1 << 20))
        yield Advice(
            setting="bucket_cap_mb", value=str(cap), why="DDP's buckets of 25 MiB stay below twice the half-bandwidth size",
            speaks=f"half of the bandwidth is reached at {half / (1 << 20):.0f} MiB ({curve.op} over {curve.ranks}, {curve.source})",
            worth=UNKNOWN, danger="larger buckets start later, so that less of them is hidden, and take memory",
        )  # fmt: skip
