"""The planner: a place for each rank of a job.

All physical GPUs claim their share, also those that this job does not see: another job's ranks, placed by the same rules, then
stay out of the way. A claim's home are the nodes near its GPU; GPUs with a node in common divide the cores of all of them."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from wellfed.model.counting import counted
from wellfed.model.devices import Gpu
from wellfed.model.errors import WellfedError
from wellfed.model.machine import Machine
from wellfed.model.placement import (
    DISJOINT,
    MODES,
    POLICIES,
    Placement,
    PlaceRequest,
    RankPlace,
    cpu_ranges,
)
from wellfed.place.locality import Local, local_cpus, visible_gpus
from wellfed.place.memory import memory_place
from wellfed.place.nics import nearest_nics, variables
from wellfed.place.share import divide, divide_l3
from wellfed.place.usable import Core, Usable, reserve, usable_cores

MAX_RANKS = 4096


class Claim(NamedTuple):
    """One share: the place of a rank, or what a GPU without a rank of ours is owed (`rank` None). Sorts by GPU."""

    gpu: int
    turn: int
    rank: int | None


class Home(NamedTuple):
    """Usable CPUs near a claim's GPU, and why these."""

    cpus: frozenset[int]
    reason: str
    warning: str | None = None
    known: bool = True


def plan_placement(machine: Machine, request: PlaceRequest | None = None) -> Placement:
    """A place for each rank. Raises WellfedError for an unknown mode or policy, a number of ranks that is none, or a
    machine of which no usable CPU is known."""
    request = request or PlaceRequest()
    _check(request)
    usable = usable_cores(machine, request)
    if not usable.cores:
        raise WellfedError(
            "no CPU is left to place a process on", hint="wellfed inspect cpu.allowed container.cpuset numa"
        )
    seen = visible_gpus(machine.gpus, request.visible)
    warnings = [*usable.warnings, *seen.warnings, *_order_doubt(machine, request)]
    number = request.ranks if request.ranks is not None else max(len(seen.gpus), 1)
    if seen.gpus and number > len(seen.gpus):
        warnings.append(
            f"{number} ranks share {counted(len(seen.gpus), 'GPU')}: "
            + (f"rank r takes GPU r mod {len(seen.gpus)}" if len(seen.gpus) > 1 else "all take that one")
        )
    of_rank = {rank: seen.gpus[rank % len(seen.gpus)] if seen.gpus else None for rank in range(number)}
    claims = _claims(machine, of_rank, alone=request.alone)
    homes = _homes(machine, usable, claims)
    warnings += dict.fromkeys(home.warning for home in homes.values() if home.warning)
    mode, shares, reserved, why = _shares(request, usable, claims, homes)
    warnings += why
    places = []
    for claim in sorted((c for c in claims if c.rank is not None), key=lambda c: c.rank or 0):
        assert claim.rank is not None
        home, gpu = homes[claim], of_rank[claim.rank]
        cpus, others, reason = shares[claim]
        memory = memory_place(machine, request, mode, usable, cpus, near=home.cpus if home.known else None)
        warnings += [memory.warning] if memory.warning else []
        nics, nic_reason = nearest_nics(machine, gpu)
        places.append(
            RankPlace(
                rank=claim.rank,
                gpu=None if gpu is None else gpu.index,
                uuid=gpu.uuid if gpu else None,
                address=gpu.address if gpu else None,
                cpus=tuple(sorted(cpus)),
                other_cpus=tuple(sorted(others)),
                nodes=_nodes_of(usable, cpus),
                memory_policy=memory.policy,
                memory_nodes=memory.nodes,
                nics=nics,
                environment=variables(machine, request, gpu, nics, _own_cores(usable, shares, cpus)),
                reasons={
                    "gpu": _gpu_reason(request, gpu),
                    "cpus": f"{home.reason}; {reason}",
                    "memory": memory.reason,
                    "nics": nic_reason,
                },
            )
        )
    return Placement(
        asked=request.mode,
        mode=mode,
        gpus=len(machine.gpus),
        allowed=tuple(sorted(usable.cpus)),
        reserved=tuple(sorted(cpu for core in reserved for cpu in core.cpus)),
        ranks=tuple(places),
        warnings=tuple(dict.fromkeys(warnings)),
    )


def _check(request: PlaceRequest) -> None:
    if request.mode not in MODES:
        raise WellfedError(f"no mode `{request.mode}`; there are {', '.join(MODES)}", hint="--mode exclusive")
    if request.memory is not None and request.memory not in POLICIES:
        raise WellfedError(
            f"no memory policy `{request.memory}`; there are {', '.join(POLICIES)}", hint="--memory preferred"
        )
    if request.ranks is not None and not 1 <= request.ranks <= MAX_RANKS:
        raise WellfedError(f"{request.ranks} ranks are none: 1 to {MAX_RANKS}", hint="--ranks 8")
    if not 0 <= request.workers <= MAX_RANKS:
        raise WellfedError(f"{request.workers} workers are none: 0 to {MAX_RANKS}", hint="--workers 4")


def _order_doubt(machine: Machine, request: PlaceRequest) -> list[str]:
    """CUDA numbers the fastest GPU first unless told otherwise; of equal ones the order is that of the bus."""
    mixed = len({gpu.name for gpu in machine.gpus}) > 1
    by_index = request.visible is None or any(name.strip().isdigit() for name in request.visible)
    if mixed and by_index and machine.environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return [
            "the GPUs differ, and CUDA_DEVICE_ORDER is not PCI_BUS_ID: it is set, so that indexes mean what is planned"
        ]
    return []


def _claims(machine: Machine, of_rank: dict[int, Gpu | None], *, alone: bool) -> tuple[Claim, ...]:
    turns: Counter[int] = Counter()
    claims = []
    for rank, gpu in of_rank.items():
        index = -1 if gpu is None else gpu.index
        claims.append(Claim(index, turns[index], rank))
        turns[index] += 1
    if not alone:
        claims += [Claim(gpu.index, 0, None) for gpu in machine.gpus if gpu.index not in turns]
    return tuple(sorted(claims, key=lambda claim: (claim.gpu, claim.turn)))


# -- where claims are at home ------------------------------------------------------------------------------


def _homes(machine: Machine, usable: Usable, claims: Sequence[Claim]) -> dict[Claim, Home]:
    gpus = {gpu.index: gpu for gpu in machine.gpus}
    local = {
        index: local_cpus(machine, gpus[index], usable.nodes) if index in gpus else Local(None, "no GPU")
        for index in {claim.gpu for claim in claims}
    }
    homes: dict[Claim, Home] = {}
    lost = []
    for claim in claims:
        cpus, reason = local[claim.gpu]
        if cpus is None:
            lost.append(claim)
        elif cpus & usable.cpus:
            homes[claim] = Home(cpus & usable.cpus, reason)
        else:
            homes[claim] = _far(machine, usable, claim, cpus)
    if not homes:  # nothing tells anything: all cores are everybody's
        return {claim: Home(usable.cpus, local[claim.gpu].reason, known=False) for claim in lost}
    load: Counter[int] = Counter()
    for home in homes.values():
        for node in _nodes_of(usable, home.cpus):
            load[node] += 1
    room = Counter(core.node for core in usable.cores)
    for claim in lost:
        node = min(room, key=lambda name: (load[name] / room[name], name))
        load[node] += 1
        cpus = usable.nodes[node] & usable.cpus
        homes[claim] = Home(
            cpus, f"{local[claim.gpu].reason}; node {node} has most room", _no_locality(claim), known=False
        )
    return homes


def _no_locality(claim: Claim) -> str | None:
    return f"GPU {claim.gpu}: no locality is known" if claim.gpu >= 0 else None


def _far(machine: Machine, usable: Usable, claim: Claim, cpus: frozenset[int]) -> Home:
    """The allowed node that is nearest to the GPU's own, none of whose CPUs is allowed."""
    own = (
        next(name for name, members in usable.nodes.items() if members & cpus)
        if any(members & cpus for members in usable.nodes.values())
        else None
    )
    order = [node.id for node in machine.numa]
    row = next((node.distances for node in machine.numa if node.id == own), None) or ()
    distance = dict(zip(order, row, strict=False))
    names = sorted({core.node for core in usable.cores}, key=lambda name: (distance.get(name, 255), name))
    near = usable.nodes[names[0]] & usable.cpus
    text = f"none of the CPUs near GPU {claim.gpu} (node {own}) is allowed here"
    return Home(near, f"{text}: node {names[0]} is the nearest that is", text, known=False)


def _pools(usable: Usable, homes: dict[Claim, Home]) -> list[tuple[list[Claim], frozenset[int]]]:
    """Claims whose homes have a node in common, and the CPUs of all their homes: disjoint from all other pools."""
    pools: list[tuple[set[int], list[Claim], frozenset[int]]] = []
    for claim, home in homes.items():
        nodes = set(_nodes_of(usable, home.cpus))
        members, cpus = [claim], home.cpus
        kept = []
        for other_nodes, other_members, other_cpus in pools:
            if other_nodes & nodes:
                nodes, members, cpus = nodes | other_nodes, other_members + members, cpus | other_cpus
            else:
                kept.append((other_nodes, other_members, other_cpus))
        pools = [*kept, (nodes, members, cpus)]
    ordered = sorted(pools, key=lambda pool: min(pool[0]))
    return [
        (sorted(members, key=lambda c: (min(_nodes_of(usable, homes[c].cpus)), c.gpu, c.turn)), cpus)
        for _, members, cpus in ordered
    ]


# -- dividing ----------------------------------------------------------------------------------------------

Share = tuple[frozenset[int], frozenset[int], str]
"""CPUs, the CPUs of helpers, and why."""


def _shares(
    request: PlaceRequest, usable: Usable, claims: Sequence[Claim], homes: dict[Claim, Home]
) -> tuple[str, dict[Claim, Share], tuple[Core, ...], list[str]]:
    """The mode used, what each claim gets, the cores left to the system, and warnings."""
    mode = request.mode
    none: frozenset[int] = frozenset()
    if mode in DISJOINT:
        shares, reserved, why = _disjoint(request, usable, homes)
        if shares is not None:
            return mode, shares, reserved, why
        return "node", {c: (homes[c].cpus, none, _shared(homes, c)) for c in claims}, (), why
    if mode == "spread":
        return mode, dict.fromkeys(claims, (usable.cpus, none, "all allowed CPUs")), (), []
    if mode == "socket":
        return mode, {c: (*_socket(usable, homes[c].cpus), "the whole socket") for c in claims}, (), []
    return mode, {c: (homes[c].cpus, none, _shared(homes, c)) for c in claims}, (), []


def _shared(homes: dict[Claim, Home], claim: Claim) -> str:
    others = sum(1 for home in homes.values() if home.cpus & homes[claim].cpus) - 1
    return f"shared with {others} more" if others else "shared with no other GPU"


def _socket(usable: Usable, cpus: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
    nodes = set(_nodes_of(usable, cpus))
    packages = {package for node in nodes for package in usable.packages.get(node, ())}
    near = {node for node, found in usable.packages.items() if node in nodes or found & packages}
    return frozenset(cpu for node in near for cpu in usable.nodes[node]) & usable.cpus, frozenset()


def _disjoint(
    request: PlaceRequest, usable: Usable, homes: dict[Claim, Home]
) -> tuple[dict[Claim, Share] | None, tuple[Core, ...], list[str]]:
    shares: dict[Claim, Share] = {}
    kept: tuple[Core, ...] = ()
    warnings: list[str] = []
    for members, cpus in _pools(usable, homes):
        cores = [core for core in usable.cores if set(core.cpus) & cpus]
        spare = reserve(cores, len(members)) if request.reserve else ()
        cores = [core for core in cores if core not in spare]
        kept += spare
        how = "an even share"
        parts = None
        if request.mode == "l3":
            parts = divide_l3(cores, len(members))
            how = "whole L3 groups"
            if parts is None:
                how = "an even share, for there are fewer L3 groups than GPUs"
                groups = len({(core.node, core.l3) for core in cores})
                warnings.append(
                    f"{groups} L3 groups for {len(members)} GPUs on these nodes: cores are divided instead"
                )
        parts = parts or divide(cores, len(members))
        if parts is None:
            text = f"{len(cores)} cores for {len(members)} GPUs on nodes {_names(usable, cpus)}: "
            return None, (), [f"{text}no core for each, so mode node is used"]
        rest = frozenset(cpu for part in parts for core in part[(len(part) + 1) // 2 :] for cpu in core.cpus)
        for claim, part in zip(members, parts, strict=True):
            text = f"{how}: {len(part)} of {len(cores)} cores among {len(members)}"
            if request.mode == "split":
                half = part[: (len(part) + 1) // 2]
                own = frozenset(cpu for core in half for cpu in core.cpus)
                shares[claim] = (own, rest or own, f"{len(half)} of {text}, helpers on the rest")
            else:
                shares[claim] = (frozenset(cpu for core in part for cpu in core.cpus), frozenset(), text)
    return shares, kept, warnings


def _names(usable: Usable, cpus: Iterable[int]) -> str:
    return cpu_ranges(_nodes_of(usable, cpus))


def _nodes_of(usable: Usable, cpus: Iterable[int]) -> tuple[int, ...]:
    wanted = set(cpus)
    return tuple(sorted({core.node for core in usable.cores if wanted & set(core.cpus)}))


def _own_cores(usable: Usable, shares: dict[Claim, Share], cpus: frozenset[int]) -> int:
    """Cores of a place, its fair part of them where others have the same."""
    cores = sum(1 for core in usable.cores if cpus & set(core.cpus))
    return max(1, cores // sum(1 for share in shares.values() if share[0] & cpus))


def _gpu_reason(request: PlaceRequest, gpu: Gpu | None) -> str:
    if gpu is None:
        return "no GPU is visible"
    if request.visible is None:
        return "each rank takes the GPU of its number, in PCI order"
    return "each rank takes the visible GPU of its number"
