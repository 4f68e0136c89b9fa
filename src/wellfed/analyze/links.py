"""Which link a group's collectives cross, and how long they should take on it.

A trace tells the device of each rank and no host. Ranks of one node have different devices, and are numbered one
after the other (as torchrun and Slurm do): a group is taken to lie within a node only where both hold. Where all
ranks show device 0 (one visible device each) it is not known. Between nodes the network is not in a trace either:
the user may name it.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from wellfed import catalog
from wellfed.analyze.matching import Matched
from wellfed.catalog.spec import GpuSpec
from wellfed.model.curve import Curve
from wellfed.predict.collective import link_curve


class LinkCurves(NamedTuple):
    """Curves by operation and size of the group, and why others have none."""

    curves: tuple[Curve, ...]
    unknown: tuple[str, ...]


class Link(NamedTuple):
    """`kind` is one of `RING_HOP_S`; `bytes_s` goes one way."""

    kind: str
    bytes_s: float
    source: str


def link_curves(
    matched: Sequence[Matched],
    devices: Mapping[int, int],
    gpus: Mapping[int, str | None],
    *,
    network: str | None = None,
) -> LinkCurves:
    """A curve for each operation and group size whose groups all cross a known link. `devices` and `gpus` are by
    rank; `network` is a link of the catalogue (`ib-ndr`), one of which each GPU is taken to have."""
    curves: list[Curve] = []
    unknown: dict[str, None] = {}
    by_size: dict[int, list[Matched]] = {}
    for m in matched:
        if m.group.kind == "group":
            by_size.setdefault(max(m.group.size, len(m.group.ranks), len(m.ranks)), []).append(m)
    for n, groups in sorted(by_size.items()):
        found = {_link(m, n, devices, gpus, network) for m in groups}
        links = [link for link in found if isinstance(link, Link)]
        unknown.update({why: None for why in found if isinstance(why, str)})
        if len(found) != 1 or not links:
            continue
        link = links[0]
        for op in sorted({op for m in groups for op in m.op}):
            curve = link_curve(op, n, link.kind, link.bytes_s, link.source)
            if curve is not None:
                curves.append(curve)
    return LinkCurves(tuple(curves), tuple(unknown))


def _link(
    m: Matched, n: int, devices: Mapping[int, int], gpus: Mapping[int, str | None], network: str | None
) -> Link | str:
    """The link of one group, or why it is not known."""
    members = m.group.ranks or m.ranks
    names = {gpus.get(r) for r in m.ranks}
    spec = catalog.find_gpu(name=next(iter(names)) or None) if len(names) == 1 else None
    if spec is None:
        return "the GPUs are unlike or not in the catalogue"
    per_node = max(devices.values(), default=0) + 1
    if min(len(members), len(m.ranks)) < n or per_node < 2:
        return "the traces do not tell which ranks share a node"
    nodes = {r // per_node for r in members}
    own = [devices[r] for r in members if r in devices]
    if len(nodes) == 1 and len(set(own)) == len(own):
        return link_within(spec, n)
    named = catalog.link(network) if network else None
    if named is None:
        return "the network between nodes is not in the traces: name it with --network (such as ib-ndr)"
    if len(nodes) < 2:
        return "the traces do not tell which ranks share a node"
    nic = named.numbers.direction_gbs.value * 1e9
    # each GPU's share of the network carries busbw x (nodes - 1) / (ranks - 1) (predict.collective.nic_bandwidth)
    rate = nic * max((n - 1) / (len(nodes) - 1), 1.0)
    inner = link_within(spec, n) if len(nodes) < n else None
    if isinstance(inner, Link) and inner.bytes_s < rate:
        rate = inner.bytes_s
    return Link("network", rate, f"catalogue: {named.title}, one a GPU, {len(nodes)} nodes")


def link_within(spec: GpuSpec, n: int) -> Link | str:
    """The link among `n` GPUs of one node, or why it is not known."""
    both, reach = spec.value("link_bidir_gbs"), spec.value("link_domain_gpus")
    if both is not None and reach is not None and reach >= n:
        return Link("nvlink", both / 2 * 1e9, f"catalogue: {spec.title}, {spec.link or 'its links'}")
    generation, lanes = spec.value("pcie_gen"), spec.value("pcie_lanes")
    rate = catalog.pcie_gbs(int(generation), int(lanes)) if generation and lanes else None
    if rate is None:
        return f"the catalogue knows no link of {spec.title}"
    return Link("pcie", rate * 1e9, f"catalogue: {spec.title}, PCIe Gen{int(generation or 0)}")
