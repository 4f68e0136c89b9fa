"""Threads that start together, each on its own CPU, and the time until the last has finished."""

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from wellfed.bench.setup import pin

Job = Callable[[int], None]
"""Given the number of the thread. It should spend its time in calls that release the GIL."""


class Team:
    """A context manager; `run` lets all members do one job and returns the seconds from the first start to
    the last end. An exception in a member ends the run and is raised here."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self.size = len(cpus)
        self._job: Job | None = None
        self._barrier = threading.Barrier(self.size + 1)
        self._spans = [(0.0, 0.0)] * self.size
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._work, args=(number, cpu), daemon=True)
            for number, cpu in enumerate(cpus)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._job = None
        if kind is not None:
            self._barrier.abort()  # members may be in the middle of a run; they leave at the next barrier
        else:
            self._barrier.wait()
        for thread in self._threads:
            thread.join()

    def run(self, job: Job) -> float:
        """One job by all members; seconds."""
        self._job = job
        self._barrier.wait()
        self._barrier.wait()
        if self._errors:
            raise self._errors[0]
        return max(end for _, end in self._spans) - min(start for start, _ in self._spans)

    def _work(self, number: int, cpu: int) -> None:
        pin(cpu)
        try:
            while True:
                self._barrier.wait()
                job = self._job
                if job is None:
                    return
                self._do(job, number)
                self._barrier.wait()
        except threading.BrokenBarrierError:
            return

    def _do(self, job: Job, number: int) -> None:
        done = False
        start = time.perf_counter()
        try:
            job(number)
            done = True
        except (MemoryError, OSError) as error:
            self._errors.append(error)
            done = True
        finally:
            self._spans[number] = (start, time.perf_counter())
            if not done:  # a mistake of ours: let nobody wait for this member
                self._barrier.abort()
