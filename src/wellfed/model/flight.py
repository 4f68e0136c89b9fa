"""What one rank's flight recorder kept of its collectives: PyTorch's ring buffer, dumped when a job hangs."""

from wellfed.model.base import Value
from wellfed.model.trace import TraceWarning


class Collective(Value, frozen=True, kw_only=True):
    """One recorded call. `seq` counts the collectives of its group, `p2p_seq` its sends and receives; `op` is the
    call without the library's name (`all_reduce`, `send 0->1`), `library` that name (`nccl`, `gloo`). `state` is
    as dumped: `scheduled` (queued on a stream), `started`, `completed`; a library without start events never says
    `started`. `retired` and not completed: it timed out. Times are ns since 1970, None when not known."""

    record: int
    pg: int
    group: str
    desc: str = ""
    seq: int
    p2p_seq: int = 0
    op_id: int = 0
    op: str
    library: str = ""
    state: str = ""
    retired: bool = False
    is_p2p: bool = False
    inputs: tuple[tuple[int, ...], ...] = ()
    outputs: tuple[tuple[int, ...], ...] = ()
    dtypes: tuple[str, ...] = ()
    created_ns: int | None = None
    started_ns: int | None = None
    completed_ns: int | None = None
    timeout_ms: int | None = None
    frames: tuple[str, ...] = ()
    """`function at file:line`, the innermost first."""


class GroupStatus(Value, frozen=True, kw_only=True):
    """The last collective of a group that this rank queued, started and completed; None when not told."""

    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None


class FlightDump(Value, frozen=True, kw_only=True):
    """One rank's dump. `rank` is None when the file's name does not end in it (the dump itself does not hold it).
    `members` maps a group's name to its ranks, `status` a group's number in this process (`Collective.pg`) to how
    far it got. `entries` are in the order recorded; older ones have fallen out of the ring."""

    source: str
    rank: int | None = None
    version: str = ""
    members: dict[str, tuple[int, ...]] = {}
    status: dict[int, GroupStatus] = {}
    entries: tuple[Collective, ...] = ()
    warnings: tuple[TraceWarning, ...] = ()


class StuckCall(Value, frozen=True, kw_only=True):
    """A call that hangs: `seq` is its number in the group. `waiting` ranks are in it, `absent` ones did not enter it,
    `unlike` ones called something else than most (`differs` says in what), `no_dump` members left none, `unknown` ones
    no longer hold it, `not_started` ones queued it behind other work. `waits_for` are other groups in which the late
    ranks wait; `root` when the hang begins here."""

    group: str
    desc: str = ""
    seq: int
    op: str
    is_p2p: bool = False
    waiting: tuple[int, ...] = ()
    absent: tuple[int, ...] = ()
    unlike: tuple[int, ...] = ()
    differs: str = ""
    no_dump: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    not_started: tuple[int, ...] = ()
    waits_for: tuple[str, ...] = ()
    root: bool = False


class HangTold(Value, frozen=True, kw_only=True):
    """What the flight records of a job say together: the saved side. `ranks` have a dump, `missing` ones are members of
    a group and have none, `unnamed` files do not tell their rank, `doubled` ranks have several."""

    ranks: tuple[int, ...] = ()
    missing: tuple[int, ...] = ()
    unnamed: tuple[str, ...] = ()
    doubled: tuple[int, ...] = ()
    calls: int = 0
    groups: int = 0
    versions: tuple[str, ...] = ()
    stuck: tuple[StuckCall, ...] = ()
