"""Flight-recorder dumps of PyTorch's process groups (NCCL, Gloo, RCCL): pickle or JSON, one file a rank.

Keys as torch/csrc/distributed/c10d/FlightRecorder.hpp names them, versions 1.x to 2.10. JSON writes 0 for a time
that is not known, numbers of `pg_status` as text, and leaves `entries` out when there are none; Gloo's `pg_config`
names no ranks. An entry that cannot be read is left out and counted.
"""

import re
from collections.abc import Iterator
from typing import Any

from wellfed.ingest import trees
from wellfed.model import TraceWarning
from wellfed.model.flight import Collective, FlightDump, GroupStatus

KEYS = frozenset({"version", "pg_config", "pg_status", "entries", "nccl_comm_state"})
_NUMBERS = re.compile(r"\d+")
MAX_ENTRIES = 1_000_000
MAX_RANKS = 1_000_000


def is_flight(tree: Any) -> bool:
    """Whether a decoded file is a flight-recorder dump."""
    keys = KEYS & trees.mapping(tree).keys()
    return "version" in keys and bool(keys & {"pg_config", "pg_status", "entries"})


def read_flight(tree: Any, name: str) -> FlightDump:
    """The dump in `tree`, of the file `name`."""
    root = trees.mapping(tree)
    rows = trees.items(root.get("entries"))[:MAX_ENTRIES]
    read = trees.Shared(_Entries().read)
    entries = tuple(entry for row in rows if (entry := read(row)) is not None)
    lost = len(rows) - len(entries)
    warnings = (
        (TraceWarning(code="bad-entry", count=lost, sample=name, weakens="which rank hangs"),) if lost else ()
    )
    return FlightDump(
        source=name,
        rank=trees.rank_of(name, bare=True),
        version=trees.text(root.get("version")),
        members=dict(_members(root.get("pg_config"))),
        status=dict(_status(root.get("pg_status"))),
        entries=entries,
        warnings=warnings,
    )


def _members(config: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    for key, value in trees.mapping(config).items():
        row = trees.mapping(value)
        ranks = row.get("ranks")
        named = _NUMBERS.findall(ranks[: 8 * MAX_RANKS]) if isinstance(ranks, str) else trees.items(ranks)
        found = {rank for one in named[:MAX_RANKS] if (rank := trees.integer(one)) is not None and rank >= 0}
        if found:
            yield trees.text(row.get("name")) or str(key), tuple(sorted(found))


def _status(status: Any) -> Iterator[tuple[int, GroupStatus]]:
    def told(row: Any, what: str) -> int | None:
        seq = trees.integer(row.get(f"last_{what}_collective"))
        return None if seq is None else max(seq, 0)  # -1: none yet

    for key, value in trees.mapping(status).items():
        number, row = trees.integer(key), trees.mapping(value)
        if number is not None and row:
            yield (
                number,
                GroupStatus(
                    enqueued=told(row, "enqueued"),
                    started=told(row, "started"),
                    completed=told(row, "completed"),
                ),
            )


class _Entries:
    """Reads entries; what several of them share is read once."""

    def __init__(self) -> None:
        self._frames = trees.Shared(trees.frames)
        self._sizes = trees.Shared(_sizes)
        self._texts = trees.Shared(_texts)

    def read(self, value: Any) -> Collective | None:
        row = trees.mapping(value)
        record, seq = trees.integer(row.get("record_id")), trees.integer(row.get("collective_seq_id"))
        if seq is None:  # before version 2.0 there was one number for both kinds
            seq = trees.integer(row.get("seq_id"))
        library, _, op = trees.text(row.get("profiling_name")).rpartition(":")
        if record is None or seq is None or not op:
            return None
        group = [*self._texts(row.get("process_group")), "", ""]
        pg = trees.integer(row.get("pg_id")) or 0
        return Collective(
            record=record,
            pg=pg,
            group=group[0] or str(pg),
            desc=group[1],
            seq=seq,
            p2p_seq=trees.integer(row.get("p2p_seq_id")) or 0,
            op_id=trees.integer(row.get("op_id")) or 0,
            op=op,
            library=library,
            state=trees.text(row.get("state")),
            retired=row.get("retired") is True,
            is_p2p=row.get("is_p2p") is True or op.startswith(("send ", "recv ")),
            inputs=self._sizes(row.get("input_sizes")),
            outputs=self._sizes(row.get("output_sizes")),
            dtypes=self._texts(row.get("input_dtypes")) + self._texts(row.get("output_dtypes")),
            created_ns=trees.integer(row.get("time_created_ns")) or None,
            started_ns=trees.integer(row.get("time_discovered_started_ns")) or None,
            completed_ns=trees.integer(row.get("time_discovered_completed_ns")) or None,
            timeout_ms=trees.integer(row.get("timeout_ms")) or None,
            frames=self._frames(row.get("frames")),
        )


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(trees.text(one) for one in trees.items(value)[:1000])


def _sizes(value: Any) -> tuple[tuple[int, ...], ...]:
    one = trees.Shared(_whole)
    return tuple(one(sizes) for sizes in trees.items(value)[:10_000])


def _whole(value: Any) -> tuple[int, ...]:
    return tuple(n for n in map(trees.integer, trees.items(value)[:64]) if n is not None)
