"""Memory snapshots of PyTorch's caching allocator: `torch.cuda.memory._dump_snapshot` (pickle), the same
dictionary as JSON, and the bare list of `torch.cuda.memory_snapshot()`.

Keys as torch/csrc/cuda/memory_snapshot.cpp and Module.cpp write them, from the `history` of PyTorch 1.x blocks to
`segment_pool_id` and `is_expandable` of today. Stacks are read once each. A row that cannot be read is left out
and counted.
"""

from typing import Any

import numpy as np

from wellfed.ingest import trees
from wellfed.model import TraceWarning
from wellfed.model.memory import Action, Blocks, BlockState, DeviceMemory, Events, MemorySnapshot, Segments

MAX_DEVICES = 1024
MAX_ADDRESS = 1 << 62
MAX_SIZE = 1 << 45
"""32 TiB: beyond any device, and far enough below 64 bits for sums of columns."""
_ACTIONS = {action.name.lower(): action for action in Action}
_STATES = {
    "active_allocated": BlockState.ALLOCATED,
    "active_pending_free": BlockState.PENDING,
    "active_awaiting_free": BlockState.PENDING,
    "inactive": BlockState.INACTIVE,
}


def is_memory(tree: Any) -> bool:
    """Whether a decoded file is a snapshot of an allocator."""
    if isinstance(tree, list):
        first = trees.mapping(tree[0]) if tree else {}
        return "blocks" in first and "total_size" in first
    root = trees.mapping(tree)
    return isinstance(root.get("segments"), list | tuple) or isinstance(
        root.get("device_traces"), list | tuple
    )


def read_memory(tree: Any, name: str) -> MemorySnapshot:
    """The snapshot in `tree`, of the file `name`."""
    root = {"segments": tree} if isinstance(tree, list) else trees.mapping(tree)
    reader = _Reader()
    for segment in trees.items(root.get("segments")):
        reader.segment(trees.mapping(segment))
    for device, trace in enumerate(trees.items(root.get("device_traces"))[:MAX_DEVICES]):
        reader.trace(device, trace)
    lost = (
        (TraceWarning(code="bad-row", count=reader.lost, sample=name, weakens="sums of memory"),)
        if reader.lost
        else ()
    )
    return MemorySnapshot(
        source=name,
        rank=trees.rank_of(name),
        devices=reader.devices(),
        stacks=tuple(reader.stacks),
        settings={
            str(key)[:80]: value
            for key, value in list(trees.mapping(root.get("allocator_settings")).items())[:100]
            if isinstance(value, bool | int | float | str)
        },
        warnings=lost,
    )


class _Rows:
    """Rows of one device while they are read."""

    def __init__(self) -> None:
        self.segments: list[tuple[int, ...]] = []
        self.blocks: list[tuple[int, ...]] = []
        self.events: list[tuple[int, ...]] = []


class _Reader:
    def __init__(self) -> None:
        self.lost = 0
        self.stacks: list[tuple[str, ...]] = []
        self._numbers: dict[tuple[str, ...], int] = {}
        self._stack = trees.Shared(self._number)
        self._rows: dict[int, _Rows] = {}
        self._lists: set[int] = set()

    def _number(self, value: Any) -> int:
        stack = trees.frames(value)
        if not stack:
            return -1
        if stack not in self._numbers:
            self._numbers[stack] = len(self.stacks)
            self.stacks.append(stack)
        return self._numbers[stack]

    def _fresh(self, rows: Any) -> Any:
        """The rows, unless the same list was read before: no writer shares one, a hostile file might a million
        times."""
        listed = trees.items(rows)
        if listed and id(listed) in self._lists:
            self.lost += 1
            return ()
        self._lists.add(id(listed))
        return listed

    def segment(self, row: Any) -> None:
        address = trees.within(row.get("address"), MAX_ADDRESS)
        size = trees.within(row.get("total_size"), MAX_SIZE)
        if address is None or size is None:
            self.lost += 1
            return
        device = trees.integer(row.get("device")) or 0
        into = self._rows.setdefault(device if 0 <= device < MAX_DEVICES else 0, _Rows())
        index = len(into.segments)
        private = any(trees.integer(n) for n in trees.items(row.get("segment_pool_id"))[:2])
        allocated, active = trees.integer(row.get("allocated_size")), trees.integer(row.get("active_size"))
        stack, stream = self._stack(row.get("frames")), trees.integer(row.get("stream")) or 0
        large, expandable = row.get("segment_type") == "large", row.get("is_expandable") is True
        sums = (-1 if allocated is None else allocated, -1 if active is None else active)
        into.segments.append((address, size, *sums, stream, int(large), int(private), int(expandable), stack))
        at = address
        for value in self._fresh(row.get("blocks")):
            block = trees.mapping(value)
            length = trees.within(block.get("size"), MAX_SIZE)
            if length is None:
                self.lost += 1
                continue
            given = trees.within(block.get("address"), MAX_ADDRESS)
            at = at if given is None else given
            asked, frames = trees.within(block.get("requested_size"), MAX_SIZE), block.get("frames")
            history = trees.items(block.get("history"))
            if history:  # PyTorch 1.x
                latest = trees.mapping(history[0])
                frames = latest.get("frames") if frames is None else frames
                asked = trees.within(latest.get("real_size"), MAX_SIZE) if asked is None else asked
            state = _STATES.get(trees.text(block.get("state")), BlockState.OTHER)
            stack = self._stack(frames) if frames is not None else -1
            into.blocks.append((at, length, -1 if asked is None else asked, int(state), index, stack))
            at += length

    def trace(self, device: int, rows: Any) -> None:
        into = self._rows.setdefault(device, _Rows())
        append, stack_of, integer, within = into.events.append, self._stack, trees.integer, trees.within
        for value in self._fresh(rows):
            row = trees.mapping(value)
            action = _ACTIONS.get(trees.text(row.get("action")), Action.OTHER)
            where = row.get("device_free") if action is Action.OOM else row.get("addr")
            address, size = within(where, MAX_ADDRESS), within(row.get("size"), MAX_SIZE)
            if action is Action.OTHER or size is None or (address is None and action is not Action.SNAPSHOT):
                self.lost += 1
                continue
            time, frames = integer(row.get("time_us")), row.get("frames")
            stack = -1 if frames is None else stack_of(frames)
            when = -1 if time is None else time
            append((int(action), address or 0, size, integer(row.get("stream")) or 0, when, stack))

    def devices(self) -> tuple[DeviceMemory, ...]:
        """The devices that hold anything or did anything."""
        return tuple(
            DeviceMemory(
                device=device,
                segments=_columns(Segments, rows.segments),
                blocks=_columns(Blocks, rows.blocks),
                events=_columns(Events, rows.events),
            )
            for device, rows in sorted(self._rows.items())
            if rows.segments or rows.events
        )


_NARROW = {
    "large": np.uint8,
    "private": np.uint8,
    "expandable": np.uint8,
    "state": np.uint8,
    "action": np.uint8,
}
_INDEX = {"stack": np.int32, "segment": np.int32}


def _columns(kind: Any, rows: list[tuple[int, ...]]) -> Any:
    """Rows as columns of `kind`, in the order of its fields."""
    names = kind.__struct_fields__
    table = np.array(rows, dtype=np.int64).reshape(-1, len(names))
    return kind(
        **{
            name: np.ascontiguousarray(table[:, at]).astype(
                {**_NARROW, **_INDEX}.get(name, np.int64), copy=False
            )
            for at, name in enumerate(names)
        }
    )
