"""A small caching allocator after PyTorch's, that writes snapshots as PyTorch does: the ground truth for what is
read out of them.

Blocks are multiples of 512 bytes; requests up to 1 MiB come from segments of 2 MiB, up to 10 MiB from 20 MiB, larger
ones from their size rounded up to 2 MiB. A free block is split when the rest is worth keeping, neighbours merge, a
request that finds nothing takes a segment from the device, after giving back those that are wholly free.
"""

from collections.abc import Iterator
from typing import Any

MIB = 1 << 20


def frames(*places: str) -> list[dict[str, Any]]:
    """`function file:line` each, the innermost first."""
    out = []
    for place in places:
        function, where = place.split(" ")
        file, line = where.rsplit(":", 1)
        out.append({"name": function, "filename": file, "line": int(line)})
    return out


class OutOfMemory(Exception):
    pass


class Allocator:
    def __init__(self, *, limit: int = 1 << 40, device_free_lies: int = 0) -> None:
        self.limit, self.lies = limit, device_free_lies
        self.segments: dict[int, dict[str, Any]] = {}
        self.trace: list[dict[str, Any]] = []
        self.time_us, self.next_address = 1_700_000_000_000_000, 0x7F00_0000_0000
        self.requested = self.peak = self.peak_reserved = 0

    # -- what a program does

    def alloc(self, size: int, *places: str, stream: int = 0, private: bool = False) -> int:
        rounded, large = max(-(-size // 512) * 512, 512), size > MIB
        stack = frames(*places)
        found = self._find(rounded, large, stream, private)
        if found is None and not self._grow(rounded, large, stream, private, stack):
            self.empty_cache()
            if not self._grow(rounded, large, stream, private, stack):
                self._record(
                    "oom", None, rounded, stream, stack, device_free=self.limit - self.reserved + self.lies
                )
                raise OutOfMemory
        segment, index = found or self._find(rounded, large, stream, private)  # type: ignore[misc]
        block = segment["blocks"][index]
        rest = block["size"] - rounded
        if rest >= (512 if not large else MIB):
            block["size"] = rounded
            segment["blocks"].insert(
                index + 1, self._block(block["address"] + rounded, rest, 0, "inactive", [])
            )
        block |= {"state": "active_allocated", "requested_size": size, "frames": stack}
        self._record("alloc", block["address"], size, stream, stack)
        self.requested += size
        self.peak = max(self.peak, self.requested)
        return int(block["address"])

    def free(self, address: int, *, complete: bool = True) -> None:
        segment, block = self._block_at(address)
        block["state"] = "active_pending_free"
        self.requested -= block["requested_size"]
        self._record("free_requested", address, block["requested_size"], segment["stream"], [])
        if complete:
            self.complete(address)

    def complete(self, address: int) -> None:
        segment, block = self._block_at(address)
        self._record("free_completed", address, block["requested_size"], segment["stream"], [])
        block |= {"state": "inactive", "requested_size": 0, "frames": []}
        merged: list[dict[str, Any]] = []
        for one in segment["blocks"]:
            if merged and merged[-1]["state"] == one["state"] == "inactive":
                merged[-1]["size"] += one["size"]
            else:
                merged.append(one)
        segment["blocks"] = merged

    def empty_cache(self) -> None:
        for address, segment in list(self.segments.items()):
            if all(b["state"] == "inactive" for b in segment["blocks"]):
                self._record("segment_free", address, segment["total_size"], segment["stream"], [])
                del self.segments[address]

    # -- what it knows

    @property
    def reserved(self) -> int:
        return sum(s["total_size"] for s in self.segments.values())

    def snapshot(self, *, ring: int | None = None) -> dict[str, Any]:
        """As `_dump_snapshot` would pickle it; `ring` keeps the last events only."""
        for segment in self.segments.values():
            blocks = segment["blocks"]
            segment |= {
                "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
                "active_size": sum(b["size"] for b in blocks if b["state"] != "inactive"),
                "requested_size": sum(b["requested_size"] for b in blocks),
            }
        trace = self.trace if ring is None else self.trace[len(self.trace) - min(ring, len(self.trace)) :]
        return {
            "segments": list(self.segments.values()),
            "device_traces": [trace],
            "allocator_settings": {"expandable_segments": False, "PYTORCH_CUDA_ALLOC_CONF": ""},
        }

    # -- inside

    def _find(
        self, rounded: int, large: bool, stream: int, private: bool
    ) -> tuple[dict[str, Any], int] | None:
        fits = [
            (block["size"], segment["address"], segment, index)
            for segment in self.segments.values()
            if (segment["segment_type"] == "large", segment["stream"], segment["segment_pool_id"] != (0, 0))
            == (large, stream, private)
            for index, block in enumerate(segment["blocks"])
            if block["state"] == "inactive" and block["size"] >= rounded
        ]
        if not fits:
            return None
        *_, segment, index = min(fits, key=lambda fit: fit[:2])
        return segment, index

    def _grow(self, rounded: int, large: bool, stream: int, private: bool, stack: Any) -> bool:
        size = (
            2 * MIB if not large else 20 * MIB if rounded < 10 * MIB else -(-rounded // (2 * MIB)) * 2 * MIB
        )
        if self.reserved + size > self.limit:
            return False
        address = self.next_address
        self.next_address += size + 2 * MIB
        self.segments[address] = {
            "device": 0, "address": address, "total_size": size, "stream": stream, "is_expandable": False,
            "segment_type": "large" if large else "small", "segment_pool_id": (0, int(private)), "frames": stack,
            "blocks": [self._block(address, size, 0, "inactive", [])],
        }  # fmt: skip
        self._record("segment_alloc", address, size, stream, stack)
        self.peak_reserved = max(self.peak_reserved, self.reserved)
        return True

    def _block(self, address: int, size: int, requested: int, state: str, stack: Any) -> dict[str, Any]:
        return {
            "address": address,
            "size": size,
            "requested_size": requested,
            "state": state,
            "frames": stack,
        }

    def _block_at(self, address: int) -> tuple[dict[str, Any], dict[str, Any]]:
        return next((s, b) for s in self.segments.values() for b in s["blocks"] if b["address"] == address)

    def _record(
        self, action: str, address: int | None, size: int, stream: int, stack: Any, **more: int
    ) -> None:
        self.time_us += 1000
        where = {} if address is None else {"addr": address}
        self.trace.append(
            {"action": action, **where, **more, "size": size, "stream": stream, "time_us": self.time_us, "frames": stack}
        )  # fmt: skip

    def blocks(self) -> Iterator[dict[str, Any]]:
        for segment in self.segments.values():
            yield from segment["blocks"]
