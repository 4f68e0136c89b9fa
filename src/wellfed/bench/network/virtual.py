"""What a container's network costs against the host's own: veth, a bridge, a router, NAT and a VXLAN overlay, each over loopback in turn.

All of it on this machine and in namespaces that vanish with the process (see `nest`), so what is measured is the price in CPU time of each packet's
way through the kernel, not that of a wire. Between hosts a NIC may take some of it (tunnel offload) or add to it (no segmentation in
hardware). Rates are of one connection between two CPUs; round trips are on one CPU, so that only the way differs.

`routed` is a container behind a router; `nat` is the same with masquerading, so the price of NAT alone is the quotient of the two. `overlay` is two
containers on the bridges of two machines, with VXLAN between them.
"""

from typing import Any

from wellfed.bench import noise
from wellfed.bench.find import Effort
from wellfed.bench.network import nest
from wellfed.bench.setup import Scale, Setup, allowed_cpus, build_ceiling
from wellfed.model import Ceiling, Machine, WellfedError
from wellfed.predict.statistics import percentile

IDS = tuple(f"virtual-{what}.{name}" for what in ("bandwidth", "latency") for name in nest.NETWORKS)
WEIGHT = 2.5
EFFORT: Effort = "full"
TITLES = {
    "veth": "a veth cable between two namespaces",
    "bridge": "two containers on one bridge",
    "routed": "a container behind a router",
    "nat": "a container behind NAT (nftables masquerade)",
    "overlay": "two containers on two bridges, VXLAN between",
}


def needs(machine: Machine) -> str | None:
    """A Linux kernel, and an interpreter to start; whether namespaces are allowed shows when they are made."""
    return nest.needs()


def measure(setup: Setup, budget_s: float) -> list[Ceiling]:
    """Ratios to loopback, by rounds. Raises WellfedError when namespaces, or all of the networks, are refused."""
    before = noise.read_counters()
    found = nest.measure_networks(list(nest.NETWORKS), budget_s, list(allowed_cpus()))
    names = [name for name in nest.NETWORKS if name in found]
    if not names:
        raise WellfedError("; ".join(f"{name}: {why}" for name, why in found["refused"].items()))
    ceilings = [_bandwidth(setup, before, found, name) for name in names]
    return ceilings + [_latency(setup, before, found, name) for name in names]


def _bandwidth(setup: Setup, before: noise.Counters, found: dict[str, Any], name: str) -> Ceiling:
    base, one = found["loopback"]["gb_s"], found[name]["gb_s"]
    return build_ceiling(
        setup,
        before,
        [rate / host for rate, host in zip(one, base, strict=True)],
        Scale(
            unit="of loopback",
            band=(0.02, 2.0),
            band_source="no segmentation offload at all to a path as short as loopback's",
        ),
        id=f"virtual-bandwidth.{name}",
        title=f"TCP bandwidth of {TITLES[name]}",
        method="one connection between two CPUs, in turn with loopback of the host; each sample is the ratio of one round",
        size="40 ms of bytes",
        threads=1,
        environment={
            "gb_s": round(percentile(one, 50), 3),
            "loopback_gb_s": round(percentile(base, 50), 3),
            "best_over_best": round(max(one) / max(base), 3),
            "tcp": found["tcp"].get(name),
            "refused": found["refused"] or None,
        },
    )


def _latency(setup: Setup, before: noise.Counters, found: dict[str, Any], name: str) -> Ceiling:
    base, one = found["loopback"]["batch_us"], found[name]["batch_us"]
    added = [us - host for us, host in zip(one, base, strict=True)]
    return build_ceiling(
        setup,
        before,
        [us / host for us, host in zip(one, base, strict=True)],
        Scale(
            unit="x loopback",
            higher_is_better=False,
            band=(0.5, 20.0),
            band_source="a path as short as loopback's to dozens of rules and hops",
        ),
        id=f"virtual-latency.{name}",
        title=f"TCP round trip of {TITLES[name]}",
        method="one byte to and fro on one CPU, in turn with loopback of the host; each sample is the ratio of two medians of 100",
        size="1 B",
        threads=1,
        environment={
            "us": round(percentile(one, 50), 2),
            "loopback_us": round(percentile(base, 50), 2),
            "added_us": [round(percentile(added, p), 2) for p in (10, 50, 90)],
        },
    )
