"""Whether somebody uses the network adapters now."""

from collections.abc import Iterable, Mapping

from wellfed.check.evaluate import Outcome, is_absent, no_items
from wellfed.check.manual import rule
from wellfed.model import Ceiling, Machine

BUSY = 0.05
"""Part of its rate from which an adapter is in use: below it a job hardly notices."""


@rule("NET22", "adapter-busy-now", layer="network", severity="info")
def judge_traffic(machine: Machine, ceilings: tuple[Ceiling, ...], intent: str) -> Iterable[Outcome]:
    """A network adapter carries traffic now.

    What it looks at. Bytes of every physical interface that is up, and of every active RDMA port, twice within a tenth of
    a second. What RDMA carries is counted at the port, not at the interface.
    Why it costs. Whatever is measured or started now shares the link with it.
    How it is judged. A note from 5 % of the link's rate, in the busier direction. Whose traffic it is, no counter tells:
    this machine's own job counts too. An adapter that does not tell its rate is not judged.
    What is known of the gain. It is at most what the traffic takes of the link.
    Remedy. look who it is (`ss -tnp`, `rdma resource show`), wait for it to end, or take another adapter
    Restore. nothing to undo
    When to ignore. When it is your own job.
    Sources. kernel: Documentation/ABI/testing/sysfs-class-net-statistics; kernel: Documentation/infiniband/sysfs.rst;
    NVIDIA UFM: InfiniBand port counters (data in units of four octets)
    """
    nothing = {name: no_items(machine, name) for name in ("nics", "rdma")}
    # Of a collection that nobody could look at, another adapter may be busy; where there is none, none is.
    outcomes = [
        one
        for name, found in nothing.items()
        for one in found
        if one.state == "unknown" and not is_absent(machine, name)
    ]
    for index, nic in enumerate(machine.nics):
        rate = None if nic.speed_mbps is None else nic.speed_mbps / 1000
        now = None if nic.busy_mbps is None else nic.busy_mbps / 1000
        fields = {"is_physical": (nic.is_physical, True), "state": (nic.state, "up")}
        judged = _judge(("nics", index), "busy_mbps", "speed_mbps", now, rate)
        outcomes += _where(("nics", index), fields, judged)
    for index, port in enumerate(machine.rdma):
        judged = _judge(("rdma", index), "busy_gbps", "rate_gbps", port.busy_gbps, port.rate_gbps)
        outcomes += _where(("rdma", index), {"state": (port.state, "ACTIVE")}, judged)
    return outcomes or nothing["nics"] or [Outcome(state="not-applicable", message="no adapter is up")]


def _where(
    item: tuple[str, int], fields: Mapping[str, tuple[object, object]], judged: Outcome
) -> list[Outcome]:
    """The outcome where all fields are as they must be for the item to be judged, unknown where one is not known."""
    if any(value is not None and value != wanted for value, wanted in fields.values()):
        return []
    lacking = tuple(f"{item[0]}[{item[1]}].{name}" for name, (value, _) in fields.items() if value is None)
    return [Outcome(state="unknown", item=item, lacking=lacking)] if lacking else [judged]


def _judge(
    item: tuple[str, int], field: str, limit: str, now_gbps: float | None, rate_gbps: float | None
) -> Outcome:
    key = f"{item[0]}[{item[1]}]"
    paths = (f"{key}.{field}", f"{key}.{limit}")
    if now_gbps is None or not rate_gbps:
        lacking = paths[:1] if now_gbps is None else paths[1:]
        return Outcome(state="unknown", item=item, lacking=lacking)
    message = f"{now_gbps:.2g} of {rate_gbps:g} Gbit/s are in use now"
    if now_gbps < BUSY * rate_gbps:
        return Outcome(state="pass", item=item, message=message, paths=paths)
    return Outcome(state="finding", severity="info", item=item, message=message, paths=paths)
