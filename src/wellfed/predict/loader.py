"""How fast a data loader is: W servers in a ring, batches delivered in order or as they come, C cores for all of them.

The same law as `min(W/w, C/c, R)` where times do not vary (w: wall of a batch in a worker, c: CPU of a batch everywhere,
R: batches a second that the main process can receive); a simulation of the ring gives what variation costs.
"""

import itertools
import math
import random
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

BATCHES = 2000
NEAR = 0.95
"""A setting within 5 % of the best is as good; the one with fewer workers is taken."""
ENOUGH = 1.15
"""Times the demand: what hides the spread of batch times."""
PER_CORE = 4
"""Workers a core at most, as waits are hidden; more only add memory and switches."""


class LoaderCosts(NamedTuple):
    """Seconds a batch: `walls` are samples of the time in a worker (all of it but the wait for a core), `cpu_s` the CPU time
    in the worker, `alone_s` the wall without workers, `main_s` the main process's to receive it. `cores` are those measured."""

    walls: tuple[float, ...]
    cpu_s: float
    alone_s: float
    main_s: float
    cores: float

    @property
    def wall_s(self) -> float:
        return sum(self.walls) / len(self.walls)


def ring_rate(
    walls: Sequence[float],
    workers: int,
    prefetch: int,
    main_s: float,
    *,
    in_order: bool = True,
    batches: int = BATCHES,
    seed: int = 0,
) -> float:
    """Batches a second of `workers` that take times drawn from `walls`, with `workers * prefetch` batches out at most and a
    consumer that spends `main_s` on each. PyTorch deals batches to workers in turn, whatever they hold; without order, to
    the next in turn that holds fewer than `prefetch`."""
    draw = random.Random(seed)
    free = [0.0] * workers
    times = [draw.choice(walls) for _ in range(batches)]
    ends = _ordered(times, free, prefetch, main_s) if in_order else _unordered(times, free, prefetch, main_s)
    skip = min(workers * prefetch + workers, batches // 4)
    return (batches - 1 - skip) / max(ends[-1] - ends[skip], 1e-12)


def _ordered(times: Sequence[float], free: list[float], prefetch: int, main_s: float) -> list[float]:
    """When each batch has been consumed."""
    workers, out = len(free), len(free) * prefetch
    done: list[float] = []
    last = 0.0
    for number, time in enumerate(times):
        worker = number % workers
        asked = done[number - out] if number >= out else 0.0
        free[worker] = max(free[worker], asked) + time
        last = max(free[worker], last) + main_s
        done.append(last)
    return done


def _unordered(times: Sequence[float], free: list[float], prefetch: int, main_s: float) -> list[float]:
    """The same where the consumer takes whatever is finished."""
    import heapq

    workers = len(free)
    held = [0] * workers
    finished: list[tuple[float, int]] = []
    waiting = deque(times)
    turn = 0

    def give(now: float) -> None:
        nonlocal turn
        for _ in range(workers):
            worker, turn = turn, (turn + 1) % workers
            if held[worker] < prefetch and waiting:
                free[worker] = max(free[worker], now) + waiting.popleft()
                held[worker] += 1
                heapq.heappush(finished, (free[worker], worker))
                return

    for _ in range(workers * prefetch):
        give(0.0)
    done: list[float] = []
    last = 0.0
    while finished:
        end, worker = heapq.heappop(finished)
        last = max(end, last) + main_s
        held[worker] -= 1
        done.append(last)
        give(last)
    return done


def predict_rate(
    costs: LoaderCosts, workers: int, prefetch: int = 2, *, step_s: float = 0.0, in_order: bool = True
) -> float:
    """Batches a second. `step_s` is the consumer's own time for each batch."""
    if workers == 0:
        return 1.0 / max(costs.alone_s + step_s, 1e-12)
    ring = ring_rate(costs.walls, workers, prefetch, costs.main_s + step_s, in_order=in_order)
    return min(ring, core_bound(costs))


def core_bound(costs: LoaderCosts) -> float:
    """Batches a second that the cores allow, whatever the number of workers."""
    return costs.cores / max(costs.cpu_s + costs.main_s, 1e-12)


def thread_rate(costs: LoaderCosts, threads: int, gil: float) -> float:
    """Batches a second of threads instead of processes: nothing is sent, and the share `gil` of the CPU time takes turns."""
    alone = sum(costs.walls) / len(costs.walls)
    held = gil * costs.cpu_s
    return min(threads / alone, costs.cores / max(costs.cpu_s, 1e-12), 1.0 / max(held, 1e-12))


def limit_of(costs: LoaderCosts, workers: int) -> str:
    """What bounds a setting: cores, receiving (the main process), or workers (more of them would help)."""
    if workers == 0:
        return "one process"
    bounds = {
        "workers": workers / costs.wall_s,
        "cores": core_bound(costs),
        "receiving": 1.0 / max(costs.main_s, 1e-12),
    }
    return min(bounds, key=lambda name: bounds[name])


def ladder(cores: float, most: int | None = None) -> tuple[int, ...]:
    """Numbers of workers worth a thought: 0, 1, 2, 3, 4, 6, 8, 12, 16... up to PER_CORE a core."""
    top = max(int(PER_CORE * max(cores, 1)), 2)
    top = min(top, most) if most is not None else top
    return tuple(itertools.takewhile(lambda number: number <= top, _steps()))


def _steps() -> Iterator[int]:
    yield from (0, 1, 2, 3)
    size = 4
    while True:
        yield from (size, size + size // 2)
        size *= 2


def gil_share(speedup: float | None) -> float | None:
    """Share of the CPU time that holds the GIL, from how much faster two threads were than one (2: none, 1 or less: all)."""
    return None if speedup is None or speedup <= 0 else min(max(2.0 / speedup - 1.0, 0.0), 1.0)


def with_ipc(costs: LoaderCosts, turn_s: float, main_s: float) -> LoaderCosts:
    """The costs corrected by what a batch was measured to take one worker (`turn_s`, a median): what that is longer than
    fetching and collating it is the way through the pipe, and CPU time. `main_s` is the main process's CPU time a batch."""
    extra = max(turn_s - median(costs.walls), 0.0)
    return costs._replace(
        walls=tuple(wall + extra for wall in costs.walls), cpu_s=costs.cpu_s + extra, main_s=main_s
    )


def candidates(rates: Mapping[int, float], cores: float, *, demand: float | None = None) -> tuple[int, ...]:
    """Numbers of workers to measure, of those predicted (batches a second), best guess first: the smallest that is predicted
    to do, twice and half of it, one for each core, and none when that is not far behind. The largest of these that
    wins by much is followed by larger ones, so what the model missed upwards is found there."""
    best = max(rates.values())
    goal = NEAR * best if demand is None else min(ENOUGH * demand, NEAR * best)
    steps = sorted(rates)
    star = next(number for number in steps if rates[number] >= goal)
    wanted = [star, max(2 * star, 2), round(cores), star // 2]
    near = [_nearest(steps, number) for number in wanted]
    return tuple(dict.fromkeys(near))


def _nearest(steps: Sequence[int], wanted: int) -> int:
    return min(steps, key=lambda step: (abs(step - wanted), step))


def memory_bytes(base: int, workers: int, private: int, prefetch: int, batch_bytes: int, pinned: bool) -> int:
    """Bytes of a loader: `workers` of `private` bytes each, and the batches that wait."""
    waiting = workers * prefetch * batch_bytes
    return base + workers * private + waiting * (2 if pinned else 1)


def most_workers(
    limit: int | None, private: int, prefetch: int, batch_bytes: int, pinned: bool = False
) -> int | None:
    """The largest number of workers within `limit` bytes; None when nothing limits."""
    if limit is None:
        return None
    each = private + prefetch * batch_bytes * (2 if pinned else 1)
    return None if each <= 0 else limit // each


def sharded_gain(wall_s: float, read_s: float, size: float, sequential: float | None) -> float | None:
    """How much shorter a batch of `wall_s` gets when its `size` bytes, read in `read_s` now, come at `sequential` bytes a
    second. None where that is not known; never below 1."""
    if not sequential or size <= 0:
        return None
    return max(wall_s / max(wall_s - read_s + size / sequential, 1e-12), 1.0)


class Choice(NamedTuple):
    """`place` of the setting that was chosen, `ratio` of its rate to the best."""

    place: int
    ratio: float


def choose(
    blocks: Sequence[Mapping[int, float]], sizes: Sequence[int], *, enough: float | None = None
) -> Choice:
    """Which setting to take of rates measured in blocks, by round: the smallest (`sizes`) whose rate is within 5 % of the best,
    both by its middle and by the median over rounds that both have; or that is `enough` by itself."""
    middles = [median([*one.values()]) if one else 0.0 for one in blocks]
    best = max(range(len(blocks)), key=lambda i: middles[i])
    fine = []
    for i, one in enumerate(blocks):
        ratio = ratio_of(one, blocks[best]) if one else 0.0
        if ratio >= NEAR or (enough is not None and middles[i] >= enough):
            fine.append((sizes[i], i, ratio))
    _, index, ratio = min(fine)
    return Choice(index, ratio)


def ratio_of(one: Mapping[int, float], other: Mapping[int, float]) -> float:
    """The rate of one by the other: the lower of the ratio of the medians and the median of the ratios within rounds."""
    pairs = [rate / other[number] for number, rate in one.items() if other.get(number, 0.0) > 0]
    whole = median([*one.values()]) / max(median([*other.values()]), 1e-12)
    return min(whole, median(pairs)) if pairs else whole


def interval(values: Sequence[float]) -> tuple[float, float] | None:
    """95 % interval of the mean of blocks (Student's t); None below two."""
    n = len(values)
    if n < 2:
        return None
    mean = sum(values) / n
    spread = math.sqrt(sum((one - mean) ** 2 for one in values) / (n - 1) / n)
    t = _T95[min(n - 1, len(_T95)) - 1]
    return mean - t * spread, mean + t * spread


_T95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23)
"""Two-sided 95 % points of Student's t by degrees of freedom (1 to 10)."""
