"""One rank of the collectives' measurement: a process that does what a plan says and writes down its own times.

Run as `main(rank, folder)`. `plan.json` in the folder is a `Plan`; what comes out is `rank-N.jsonl`, a `Times` a line, written as
soon as it is known. Ranks meet through a file in the folder, and leave when their standard input ends: so none outlives
the process that started them, however that ended.

On the CPU each call starts after a barrier and is timed by the clock. On a GPU calls are enqueued behind a kernel that
sleeps, so that launching is not in the time, and timed by events; the first of each batch is dropped, since it holds the
ranks' waiting for each other.
"""

import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from wellfed.model import Value

Call = Callable[[], Any]

BATCH = 16
"""Calls between two refills: a sum over 8 ranks grows eightfold each time, and 8^16 still fits every type."""
MOST = 64
LEAST = 3
WARM = 2
SLEEP_CYCLES = 2_000_000
_TIMEOUT_S = 120.0
_PATTERN = 13


class GroupPlan(Value, frozen=True, kw_only=True):
    """What ranks 0 to n - 1 do together: operations, each at all sizes that the time allows."""

    n: int
    ops: tuple[str, ...]
    sizes: tuple[int, ...]


class Plan(Value, frozen=True, kw_only=True):
    """`late_s`: rank 0 comes so much later to each call, which plants a straggler for tests."""

    backend: str
    device: str
    world: int
    groups: tuple[GroupPlan, ...]
    budget_s: float
    dtype: str = "float32"
    overlap: bool = False
    passes: int = 2
    late_s: float = 0.0
    started: float = 0.0


class Times(Value, frozen=True, kw_only=True):
    """One rank's times of one operation and size, seconds. `said` is why it was not measured, `wrong` that the data
    were not what they should be. Of the overlap: `alone` and `beside` are of the communication (`times`) and the GEMM."""

    n: int
    op: str
    size: int = 0
    times: tuple[float, ...] = ()
    said: str | None = None
    wrong: bool = False
    version: str = ""
    facts: dict[str, float] = {}


def main(rank: int, folder: str) -> None:
    """Everything of one rank, to the end or until standard input ends."""
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    place = Path(folder)
    plan = msgspec.json.decode((place / "plan.json").read_bytes(), type=Plan)
    warnings.simplefilter("ignore")  # names that PyTorch renames from version to version
    if sys.platform == "linux":
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with (place / f"rank-{rank}.jsonl").open("wb", buffering=0) as out:
        _Rank(rank, plan, place, out).run()


def _leave_with_parent() -> None:
    while os.read(0, 64):  # not by sys.stdin, whose lock is in the way when the interpreter ends
        pass
    os._exit(3)


class _Rank:
    """The state of one rank: its groups, its buffers, and the file it writes to."""

    def __init__(self, rank: int, plan: Plan, folder: Path, out: Any) -> None:
        import torch
        import torch.distributed as dist

        self.torch, self.dist = torch, dist
        self.rank, self.plan, self.out = rank, plan, out
        self.cuda = plan.device == "cuda"
        if self.cuda:
            torch.cuda.set_device(rank)
        else:
            torch.set_num_threads(max((os.cpu_count() or 1) // plan.world, 1))
        where = f"file://{folder / 'store'}"
        backend = f"cpu:gloo,cuda:{plan.backend}" if self.cuda else plan.backend
        dist.init_process_group(
            backend, init_method=where, rank=rank, world_size=plan.world, timeout=timedelta(seconds=_TIMEOUT_S)
        )  # fmt: skip
        self.device = torch.device("cuda", rank) if self.cuda else torch.device("cpu")
        self.dtype = getattr(torch, plan.dtype)
        self.item = torch.empty((), dtype=self.dtype).element_size()
        self.groups = {g.n: dist.new_group(list(range(g.n))) for g in plan.groups}
        most = max((max(g.sizes, default=0) for g in plan.groups), default=0) // self.item
        self.seed = torch.rand(max(most, 1 << 16), device=self.device).to(self.dtype)
        self.a, self.b = torch.empty_like(self.seed), torch.empty_like(self.seed)

    def run(self) -> None:
        left_s = max(
            self.plan.budget_s - (time.time() - self.plan.started), 0.4 * self.plan.budget_s
        )  # importing torch came out of the budget, and leaves something to measure with
        end = time.monotonic() + left_s * (0.85 if self.plan.overlap else 1.0)
        good = {g.n: self._able(g) if self.rank < g.n else [] for g in self.plan.groups}
        for turn in range(self.plan.passes):
            self._pass(good, turn, end)
        if self.plan.overlap:
            self._overlap(left_s * 0.15)
        self._meet(self.plan.world)
        self.dist.destroy_process_group()

    def _pass(self, good: dict[int, list[str]], turn: int, end: float) -> None:
        """All groups one after the other; who is in none waits for the others without spinning."""
        groups = self.plan.groups
        for k, group in enumerate(groups):
            left_s = max(end - time.monotonic(), 0.05)
            share_s = left_s / ((self.plan.passes - turn) * len(groups) - k)
            if self.rank < group.n:
                for op in good[group.n]:
                    self._sweep(group, op, share_s / len(good[group.n]))
            self._meet(self.plan.world)

    def _meet(self, n: int) -> None:
        """All of the first n ranks, by way of the CPU."""
        group = None if n == self.plan.world else self.groups[n]
        self.dist.all_reduce(self.torch.zeros(1), group=group)

    def _agree(self, n: int, value: float) -> float:
        """The largest of the ranks' values, on all of them."""
        told = self.torch.tensor([value], dtype=self.torch.float64)
        self.dist.all_reduce(told, op=self.dist.ReduceOp.MAX, group=self.groups[n])
        return float(told[0])

    def _write(self, **fields: Any) -> None:
        self.out.write(msgspec.json.encode(Times(version=self._version(), **fields)) + b"\n")

    def _version(self) -> str:
        version = f"torch {self.torch.__version__}"
        if self.cuda:
            version += f", {self.plan.backend} " + ".".join(map(str, self.torch.cuda.nccl.version()))
        return version

    # --- which operations there are, and whether they move the right bytes ---

    def _able(self, group: GroupPlan) -> list[str]:
        able = []
        for op in group.ops:
            said, wrong = None, False
            try:
                wrong = not self._is_right(op, group.n)
            except (RuntimeError, NotImplementedError, ValueError) as error:
                said = str(error).strip().split("\n")[0][:200]
            refused = self._agree(group.n, float(said is not None)) > 0
            wrong = self._agree(group.n, float(wrong)) > 0
            if refused or wrong:
                self._write(n=group.n, op=op, said=said or "it is refused on another rank", wrong=wrong)
            else:
                able.append(op)
        return able

    def _is_right(self, op: str, n: int) -> bool:
        """One call with data that tell rank and place."""
        if op == "barrier":
            return True
        count = n * 1024
        index = self.torch.arange(count, device=self.device) % _PATTERN
        self.a[:count] = (index + self.rank).to(self.dtype)
        self.b[:count] = -1
        self._call(op, n, count)()
        whole, part = self.b[:count], self.b[: count // n]
        here = slice(self.rank * 1024, (self.rank + 1) * 1024)
        numbers = self.torch.arange(n, device=self.device).repeat_interleave(1024)
        first = index[:1024].repeat(n) + numbers
        total = n * index + n * (n - 1) // 2
        got, due = {
            "all_reduce": (self.a[:count], total),
            "reduce": (self.a[:count] if self.rank == 0 else total, total),
            "broadcast": (self.a[:count], index),
            "all_gather": (whole, first),
            "gather": (whole if self.rank == 0 else first, first),
            "reduce_scatter": (part, total[here]),
            "all_to_all": (whole, index[here].repeat(n) + numbers),
            "scatter": (part, index[here]),
            "send_recv": (self.a[:count] if self.rank == 1 else index, index),
        }[op]
        return bool((got.to(self.torch.int64) == due).all())

    def _call(self, op: str, n: int, count: int) -> Call:
        """One call of an operation over `count` elements, as measure.md 2.1 counts them."""
        dist, group = self.dist, self.groups[n]
        a, b, each = self.a[:count], self.b[:count], count // n
        gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
        scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
        first = self.rank == 0
        calls: dict[str, Call] = {
            "all_reduce": lambda: dist.all_reduce(a, group=group),
            "all_gather": lambda: gather(b, a[:each], group=group),
            "reduce_scatter": lambda: scatter(b[:each], a, group=group),
            "all_to_all": lambda: dist.all_to_all_single(b, a, group=group),
            "broadcast": lambda: dist.broadcast(a, 0, group=group),
            "reduce": lambda: dist.reduce(a, 0, group=group),
            "gather": lambda: dist.gather(a[:each], list(b.split(each)) if first else None, dst=0, group=group),
            "scatter": lambda: dist.scatter(b[:each], list(a.split(each)) if first else None, src=0, group=group),
            "send_recv": lambda: dist.send(a, 1, group=group) if first else dist.recv(a, 0, group=group),
            "barrier": lambda: dist.barrier(group=group, **({"device_ids": [self.rank]} if self.cuda else {})),
        }  # fmt: skip
        return calls[op]

    # --- timing ---

    def _sweep(self, group: GroupPlan, op: str, share_s: float) -> None:
        """Sizes upwards until the share is spent; rank 0 decides for all. Small sizes get half of what is left together,
        so that there is time for a large one."""
        sizes = (0,) if op == "barrier" else group.sizes
        end = time.monotonic() + share_s
        before_s = 0.0
        for k, size in enumerate(sizes):
            count = max(size // self.item // group.n, 1) * group.n
            call = self._call(op, group.n, count)
            self._refill(count)
            once_s = self._agree(group.n, self._timed(call, group.n, WARM)[-1])
            later = len(sizes) - k - 1
            room = (end - time.monotonic()) * (0.5 / later if later else 1.0) / max(once_s, 1e-6)
            n = int(self._agree(group.n, min(max(room, LEAST), MOST) if self.rank == 0 else 0.0))
            times: list[float] = []
            for done in range(0, n, BATCH):
                self._refill(count)
                times += self._timed(call, group.n, min(BATCH, n - done))
            moved = 0 if op == "barrier" else count * self.item
            self._write(n=group.n, op=op, size=moved, times=tuple(times))
            growth = min(max(once_s / before_s, 1.0), 5.0) if before_s else 1.0
            before_s = once_s
            late = end - time.monotonic() < growth * once_s * (WARM + LEAST)
            if later and self._agree(group.n, float(late) if self.rank == 0 else 0.0):
                return

    def _refill(self, count: int) -> None:
        self.a[:count].copy_(self.seed[:count])

    def _timed(self, call: Call, n: int, repeat: int) -> list[float]:
        return self._by_events(call, n, repeat) if self.cuda else self._by_clock(call, n, repeat)

    def _by_clock(self, call: Call, n: int, repeat: int) -> list[float]:
        times = []
        for _ in range(repeat):
            self.dist.barrier(group=self.groups[n])
            start = time.perf_counter()
            if self.plan.late_s and self.rank == 0:
                time.sleep(self.plan.late_s)
                start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        return times

    def _by_events(self, call: Call, n: int, repeat: int) -> list[float]:
        cuda = self.torch.cuda
        self._meet(n)
        marks = [cuda.Event(enable_timing=True) for _ in range(repeat + 1)]
        cuda._sleep(SLEEP_CYCLES)
        call()
        for mark in marks[:-1]:
            mark.record()
            call()
        marks[-1].record()
        cuda.synchronize()
        return [a.elapsed_time(b) * 1e-3 for a, b in pairwise(marks)]

    # --- communication beside computing ---

    def _overlap(self, budget_s: float) -> None:
        """All ranks together: an all_reduce alone, a GEMM alone, and both, in turn."""
        n = self.plan.world
        if n not in self.groups:
            return
        size = (64 << 20) if self.cuda else (8 << 20)
        count = min(size // self.item, len(self.seed)) // n * n
        call, gemm = self._call("all_reduce", n, count), self._gemm()
        rounds: dict[str, list[float]] = {k: [] for k in ("comm", "gemm", "comm_beside", "gemm_beside")}
        end = time.monotonic() + budget_s
        self._refill(count)
        measure = self._together_gpu if self.cuda else self._together_cpu
        for turn in range(40):
            self._refill(count)
            self._meet(n)
            for key, value in measure(call, gemm, n).items():
                if turn:
                    rounds[key].append(value)
            stop = self._agree(n, float(turn >= 3 and time.monotonic() > end) if self.rank == 0 else 0.0)
            if stop:
                break
        for key, times in rounds.items():
            self._write(n=n, op=f"overlap-{key}", size=count * self.item, times=tuple(times))

    def _gemm(self) -> Call:
        torch = self.torch
        side = 4096 if self.cuda else 384
        left = torch.rand(side, side, device=self.device).to(self.dtype)
        out = torch.empty_like(left)
        return lambda: torch.mm(left, left, out=out)

    def _together_cpu(self, call: Call, gemm: Call, n: int) -> dict[str, float]:
        clock = time.perf_counter
        self.dist.barrier(group=self.groups[n])
        start = clock()
        call()
        alone = clock() - start
        self.dist.barrier(group=self.groups[n])
        done = 0
        start = clock()
        while clock() - start < max(alone, 0.005):
            gemm()
            done += 1
        each = (clock() - start) / done
        self._meet(n)
        took = [0.0]

        def communicate() -> None:
            begin = clock()
            call()
            took[0] = clock() - begin

        thread = threading.Thread(target=communicate)
        done = 0
        start = clock()
        thread.start()
        while thread.is_alive() or done == 0:
            gemm()
            done += 1
        beside = (clock() - start) / done
        thread.join()
        return {"comm": alone, "gemm": each, "comm_beside": took[0], "gemm_beside": beside}

    def _together_gpu(self, call: Call, gemm: Call, n: int) -> dict[str, float]:
        cuda = self.torch.cuda
        alone = self._by_events(call, n, 2)[1]
        each = min(self._gemm_events(gemm, 8)[1:])
        side = cuda.Stream()
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        self._meet(n)
        side.wait_stream(cuda.current_stream())
        repeat = max(int(2.5 * alone / each), 4)
        with cuda.stream(side):
            cuda._sleep(SLEEP_CYCLES)
            call()  # aligns the ranks
            begin.record()
            call()
            end.record()
        marks = [cuda.Event(enable_timing=True) for _ in range(repeat + 1)]
        cuda._sleep(SLEEP_CYCLES)
        for mark in marks[:-1]:
            mark.record()
            gemm()
        marks[-1].record()
        cuda.synchronize()
        inside = [
            a.elapsed_time(b) * 1e-3
            for a, b in pairwise(marks)
            if begin.elapsed_time(a) >= 0 and b.elapsed_time(end) >= 0
        ]
        beside = sorted(inside)[len(inside) // 2] if inside else each
        took = begin.elapsed_time(end) * 1e-3
        return {"comm": alone, "gemm": each, "comm_beside": took, "gemm_beside": beside}

    def _gemm_events(self, gemm: Call, repeat: int) -> list[float]:
        cuda = self.torch.cuda
        marks = [cuda.Event(enable_timing=True) for _ in range(repeat + 1)]
        cuda._sleep(SLEEP_CYCLES)
        for mark in marks[:-1]:
            mark.record()
            gemm()
        marks[-1].record()
        cuda.synchronize()
        return [a.elapsed_time(b) * 1e-3 for a, b in pairwise(marks)]
