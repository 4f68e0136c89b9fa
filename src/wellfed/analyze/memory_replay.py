"""The allocator's history played back: what was allocated and reserved after each event, by whom.

The snapshot is the end of the history, and the ring holds only its last part; so memory that was there before is
what the snapshot or a later free shows without an allocation. Sizes are those that the program asked for, since
the events hold no others; rounding comes on top.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from wellfed.model.memory import Action, BlockState, DeviceMemory
from wellfed.model.timeline import I32, I64

_TAKES = (Action.SEGMENT_ALLOC, Action.SEGMENT_MAP)
_GIVES = (Action.SEGMENT_FREE, Action.SEGMENT_UNMAP)


@dataclass(frozen=True, kw_only=True)
class History:
    """Allocations of one device: in use from after event `start` (-1: before the history) until event `requested`
    (their number: until the snapshot), their memory free again after `completed`. `allocated` and `reserved` are
    bytes after each event, the first entry before all of them.

    `wrong_bytes` and `wrong` count where the end of the history is not what the snapshot says; `reserved_known`
    is False when the segments of the snapshot don't account for the segments of the history."""

    address: I64
    size: I64
    start: I64
    requested: I64
    completed: I64
    stack: I32
    allocated: I64
    reserved: I64
    wrong: int
    wrong_bytes: int
    reserved_known: bool

    def held(self, event: int) -> npt.NDArray[np.bool_]:
        """Which allocations were in use after `event` (-1: before all)."""
        return np.asarray((self.start <= event) & (self.requested > event))

    def occupied(self, event: int) -> npt.NDArray[np.bool_]:
        """Which were in use, or freed while a stream still used them."""
        return np.asarray((self.start <= event) & (self.completed > event))


def replay(memory: DeviceMemory) -> History:
    """Play the events of one device back. O(events)."""
    events, count = memory.events, len(memory.events.action)
    rows: list[list[int]] = []  # address, size, start, requested, completed, stack
    live: dict[int, int] = {}
    pending: dict[int, int] = {}
    touched: set[int] = set()
    wrong = wrong_bytes = 0
    columns = (events.action, events.address, events.size, events.stack)
    for index, (action, address, size, stack) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        if action == Action.ALLOC:
            if address in live:  # its free is not in the history: cannot happen in a whole one
                wrong, wrong_bytes = wrong + 1, wrong_bytes + rows[live[address]][1]
                rows[live[address]][3:5] = [index, index]
            live[address] = len(rows)
            rows.append([address, size, index, count, count, stack])
            touched.add(address)
        elif action == Action.FREE_REQUESTED:
            at = live.pop(address, None)
            if at is None:
                at = len(rows)
                rows.append([address, size, -1, index, count, -1])
            rows[at][3] = index
            pending[address] = at
            touched.add(address)
        elif action == Action.FREE_COMPLETED:
            at = pending.pop(address, None)
            if at is None:
                at = live.pop(address, None)
                if at is not None:
                    rows[at][3] = index
                else:
                    at = len(rows)
                    rows.append([address, size, -1, -1, count, -1])
            rows[at][4] = index
            touched.add(address)
    if len(memory.segments.size):
        more, more_bytes = _meet_snapshot(memory, rows, live, pending, touched, count)
        wrong, wrong_bytes = wrong + more, wrong_bytes + more_bytes
    table = np.array(rows, np.int64).reshape(-1, 6)
    address, size, start, requested, completed, stack = (table[:, i] for i in range(6))
    change = np.zeros(count + 2, np.int64)
    used = requested > -1
    np.add.at(change, start[used] + 1, size[used])
    np.add.at(change, np.minimum(requested[used], count) + 1, -size[used])
    reserved, known = _reserved(memory)
    return History(
        address=address,
        size=size,
        start=start,
        requested=requested,
        completed=completed,
        stack=stack.astype(np.int32),
        allocated=np.cumsum(change)[: count + 1],
        reserved=reserved,
        wrong=wrong,
        wrong_bytes=wrong_bytes,
        reserved_known=known,
    )


def _meet_snapshot(
    memory: DeviceMemory,
    rows: list[list[int]],
    live: dict[int, int],
    pending: dict[int, int],
    touched: set[int],
    count: int,
) -> tuple[int, int]:
    """Add what was there all along, and count (number, bytes) where history and snapshot do not meet."""
    wrong = wrong_bytes = 0
    blocks = memory.blocks
    columns = (blocks.address, blocks.size, blocks.requested, blocks.state, blocks.stack)
    for address, size, requested, state, stack in zip(*(c.tolist() for c in columns), strict=True):
        asked = requested if requested >= 0 else size
        if state == BlockState.ALLOCATED:
            at = live.pop(address, None)
            if at is None:
                rows.append([address, asked, -1, count, count, stack])
                if address in touched:  # freed, says the history
                    wrong, wrong_bytes = wrong + 1, wrong_bytes + asked
            elif rows[at][1] not in (asked, size):
                wrong, wrong_bytes = wrong + 1, wrong_bytes + abs(rows[at][1] - asked)
        elif state == BlockState.PENDING:
            at = pending.pop(address, None)
            if at is None:
                rows.append([address, asked, -1, -1, count, stack])
    for at in (*live.values(), *pending.values()):
        wrong, wrong_bytes = wrong + 1, wrong_bytes + rows[at][1]
    return wrong, wrong_bytes


def _reserved(memory: DeviceMemory) -> tuple[I64, bool]:
    events = memory.events
    change = np.where(np.isin(events.action, _TAKES), events.size, 0)
    change = change - np.where(np.isin(events.action, _GIVES), events.size, 0)
    after = np.concatenate([[0], np.cumsum(change)]).astype(np.int64)
    reserved = after + (int(memory.segments.size.sum()) - int(after[-1]))
    return reserved, bool(len(reserved) and reserved.min() >= 0)
