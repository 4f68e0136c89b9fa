"""RDMA ports against each other: what the rails of one machine can do, all of them should."""

from collections.abc import Iterable

from wellfed.check.evaluate import Outcome, no_items
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine
from wellfed.model.devices import RdmaPort


@rule("RDMA01", "rdma-port-degraded", layer="rdma", severity="error")
def judge_ports(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """An RDMA port is down, not in the fabric, or slower than its twins.

    What it looks at. State, physical state, link layer and rate of every port below `/sys/class/infiniband`.
    Why it costs. Collectives run over all rails at once and wait for the slowest: one port at half rate halves
    its share of every all-reduce.
    How it is judged. An InfiniBand link that is up but not active has no subnet manager: error. A port that is down while
    another of the same board is active is a missing rail: warning; else a note, since unused ports are common.
    An active port must have the rate of the fastest active port of the same board and link layer: warning.
    What is known of the gain. In proportion to the rate, on the share of the step that waits for this rail.
    Remedy. check cable and switch port; for a link that is up but not active check the subnet manager (`sminfo`)
    When to ignore. When the port is unused on purpose.
    Sources. leptonai/gpud: infiniband testdata@4a8de33; Azure/azurehpc-health-checks: check_hw_ib 400@0e0a1ac
    """
    nothing = no_items(machine, "rdma")
    return nothing or [_judge(machine, index, port) for index, port in enumerate(machine.rdma)]


def _judge(machine: Machine, index: int, port: RdmaPort) -> Outcome:
    item = ("rdma", index)
    paths = tuple(f"rdma[{index}].{name}" for name in ("state", "physical_state", "rate_gbps", "board"))
    if port.state is None:
        return Outcome(state="unknown", item=item, paths=paths, lacking=paths[:1])
    if port.state != "ACTIVE":
        return _judge_down(machine, port, item, paths)
    twins = [other for other in machine.rdma if other is not port and _may_be_twin(port, other)]
    known = [other for other in twins if _is_known(other) and other.state == "ACTIVE"]
    best = max((other.rate_gbps or 0.0 for other in known if other.board == port.board), default=0.0)
    if port.rate_gbps is not None and port.board is not None and port.rate_gbps < best:
        message = f"{port.rate_gbps:g} Gb/s, its twins run at {best:g}"
        return Outcome(state="finding", severity="warning", item=item, message=message, paths=paths)
    if not _is_known(port) or not all(map(_is_known, twins)):
        return Outcome(state="unknown", item=item, paths=paths, lacking=paths[2:])
    return Outcome(state="pass", item=item, paths=paths, message=f"active at {port.rate_gbps:g} Gb/s")


def _judge_down(machine: Machine, port: RdmaPort, item: tuple[str, int], paths: tuple[str, ...]) -> Outcome:
    if port.physical_state == "LinkUp" and port.link_layer != "Ethernet":  # RoCE has no subnet manager
        message = f"the link is up but {port.state}: no subnet manager has configured it"
        return Outcome(state="finding", severity="error", item=item, message=message, paths=paths)
    rail = any(
        other.state == "ACTIVE" and port.board is not None and other.board == port.board
        for other in machine.rdma
    )
    message = f"{port.state} ({port.physical_state or 'physical state unknown'})"
    return Outcome(
        state="finding", severity="warning" if rail else "info", item=item, message=message, paths=paths
    )


def _may_be_twin(port: RdmaPort, other: RdmaPort) -> bool:
    """Whether the two can be of one board and link layer, as far as is known."""
    return all(
        a is None or b is None or a == b
        for a, b in ((port.board, other.board), (port.link_layer, other.link_layer))
    )


def _is_known(port: RdmaPort) -> bool:
    if port.state is not None and port.state != "ACTIVE":
        return True  # down: its rate does not matter
    return None not in (port.state, port.board, port.link_layer, port.rate_gbps)


# -- errors ------------------------------------------------------------------------------------------------

LINK_ERRORS = ("symbol_error", "port_rcv_errors", "local_link_integrity_errors")
"""Counters of a bad cable, module or port."""
PATH_ERRORS = (
    "port_xmit_discards",
    "out_of_sequence",
    "packet_seq_err",
    "local_ack_timeout_err",
    "rnr_nak_retry_err",
)
"""Counters of loss and congestion on the way."""
ONE_IN = 1_000_000


@rule("RDMA03", "rdma-errors", layer="rdma", severity="warning", trust="read", intents=("training",))
def judge_errors(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """An RDMA port counts many errors.

    What it looks at. Of every active InfiniBand and RoCE port `symbol_error`, `port_rcv_errors`,
    `local_link_integrity_errors`, `port_xmit_discards`, `out_of_sequence`, `packet_seq_err`,
    `local_ack_timeout_err`, `rnr_nak_retry_err`, and `port_rcv_packets`.
    Why it costs. What is damaged or lost is sent again, on RoCE together with all that came after it.
    How it is judged. Each counter against the packets received since boot: bad from one in a million on, a warning for
    the first three, which are of the link itself, else a note. The share is this tool's choice: sources ask for "near
    0". A port that has received fewer than a million packets is not judged. Where routing is adaptive, packets come
    out of order by design.
    What is known of the gain. No figure is published.
    Remedy. for errors of the link clean, reseat or replace cable and module; for losses look at ECN and PFC on the way
    When to ignore. When the counters stand still: read them twice during a job.
    Sources. leptonai/gpud: infiniband testdata@4a8de33 (the counters)
    """
    nothing = no_items(machine, "rdma")
    if nothing:
        return nothing
    outcomes = [one for index, port in enumerate(machine.rdma) if (one := _errors(index, port))]
    return outcomes or [Outcome(state="not-applicable", message="no InfiniBand or RoCE port is active")]


def _errors(index: int, port: RdmaPort) -> Outcome | None:
    """None for a port that this is not about."""
    item, at = ("rdma", index), f"rdma[{index}].counters"
    if port.state not in (None, "ACTIVE") or port.link_layer not in (None, "InfiniBand", "Ethernet"):
        return None
    if port.state is None or port.link_layer is None:
        names = [name for name in ("state", "link_layer") if getattr(port, name) is None]
        return Outcome(state="unknown", item=item, lacking=tuple(f"rdma[{index}].{name}" for name in names))
    packets = port.counters.get("port_rcv_packets")
    counted = {name: port.counters[name] for name in (*LINK_ERRORS, *PATH_ERRORS) if name in port.counters}
    if packets is None or not counted:
        return Outcome(state="unknown", item=item, lacking=(f"{at}[port_rcv_packets]" if counted else at,))
    if packets < ONE_IN:
        message = f"only {packets} packets have come in, too few to judge by"
        return Outcome(state="unknown", reason="idle", item=item, message=message, paths=(at,))
    many = {name: count for name, count in counted.items() if count * ONE_IN > packets}
    if not many:
        message = f"fewer than one error in a million of {packets} packets"
        paths = tuple(f"{at}[{name}]" for name in (*counted, "port_rcv_packets"))
        return Outcome(state="pass", item=item, message=message, paths=paths)
    return Outcome(
        state="finding",
        severity="warning" if any(name in LINK_ERRORS for name in many) else "info",
        item=item,
        message=f"{', '.join(f'{name} {count}' for name, count in many.items())} in {packets} packets",
        paths=tuple(f"{at}[{name}]" for name in (*many, "port_rcv_packets")),
    )
