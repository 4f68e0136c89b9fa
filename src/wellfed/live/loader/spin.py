"""`python -m wellfed.live.loader.spin N SECONDS`: how many cores' worth of work N processes get done at once.

Work is counted, not time: two threads of one core, a throttled clock or a neighbour all make a second of CPU do less.
Standard library only; prints one number."""

import os
import sys
import time
from typing import NamedTuple

_CHUNK = 2000
_SOLO_SHARE = 0.4


class Spun(NamedTuple):
    """Chunks done, and the wall and CPU seconds it took."""

    chunks: int
    wall_s: float
    cpu_s: float


def spin(seconds: float) -> Spun:
    """Arithmetic in this process until the time is over."""
    chunks, wall, cpu = 0, time.perf_counter(), time.process_time()
    end = wall + seconds
    while time.perf_counter() < end:
        total = 0
        for number in range(_CHUNK):
            total += number & 7
        chunks += 1
    return Spun(chunks, time.perf_counter() - wall, time.process_time() - cpu)


def spin_together(count: int, seconds: float) -> list[Spun]:
    """`count` forked processes at once."""
    pipes = []
    for _ in range(count):
        reader, writer = os.pipe()
        if os.fork() == 0:
            done = spin(seconds)
            os.write(writer, f"{done.chunks} {done.wall_s} {done.cpu_s}".encode())
            os._exit(0)
        os.close(writer)
        pipes.append(reader)
    found = []
    for reader in pipes:
        words = os.read(reader, 200).split()
        os.close(reader)
        os.wait()
        if len(words) == 3:
            found.append(Spun(int(words[0]), float(words[1]), float(words[2])))
    return found


def effective_cores(solo: Spun, together: list[Spun]) -> float:
    """Work a second of all, by the work of one second of CPU of one alone."""
    rate = solo.chunks / max(solo.cpu_s, 1e-9)
    # alone it may have been disturbed more than together: there are never more cores than processes
    done = sum(one.chunks / max(one.wall_s, 1e-9) for one in together) / max(rate, 1e-9)
    return min(done, float(len(together)))


def main() -> None:
    count, seconds = int(sys.argv[1]), float(sys.argv[2])
    solo = spin(seconds * _SOLO_SHARE)
    sys.stdout.write(f"{effective_cores(solo, spin_together(count, seconds * (1 - _SOLO_SHARE)))}\n")


if __name__ == "__main__":
    main()
