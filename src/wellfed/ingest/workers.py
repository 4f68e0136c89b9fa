"""Many files at once: each in a process of its own, results in the order of the files, one file a process in memory.

The processes are fresh interpreters that run this module, and nothing of the caller's program: neither is it forked
(it may hold a GPU or threads) nor imported again (a script need not guard its main part). Parent and child talk in
pickles over the child's own pipes; nothing else can write there.

Where a cluster should do the work instead, `map_files` takes anything that has `submit(function, *arguments)` and gives
back something with `result()`, as the executors of the standard library do (`ray_executor` makes one of Ray).
"""

import contextlib
import importlib
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Protocol, TypeVar

from wellfed.model import WellfedError

T = TypeVar("T")
ENVIRONMENT = "WELLFED_WORKER"
"""Set in a worker: what it does should not be spread over processes once more."""
AHEAD = 4
"""Tasks given to a cluster for each result that is waited for: enough to keep it busy, few enough to hold."""
CLUSTER_TASKS = 256


class Future(Protocol):
    def result(self) -> Any: ...


class Executor(Protocol):
    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future: ...


def in_worker() -> bool:
    """Whether this process is one of several that share the files: then a single file gets one core."""
    return os.environ.get(ENVIRONMENT) == "1"


def how_many(files: int, *, cores: int | None = None) -> int:
    """Processes for so many files: as many as cores this process may use. 1: read them here."""
    if in_worker() or files < 2 or not sys.executable:
        return 1
    if cores is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(min(cores, files), 1)


def map_files(
    task: Callable[..., T],
    items: Sequence[Any],
    *arguments: Any,
    processes: int = 1,
    executor: Executor | None = None,
) -> Iterator[T]:
    """`task(item, *arguments)` for each item, in order. `task` must be a function of a module; what it takes and gives
    must pickle. Raises what the task raises; WellfedError when a process dies (out of memory, say)."""
    if executor is not None:
        yield from _submitted(task, items, arguments, executor)
    elif processes < 2:
        for item in items:
            yield task(item, *arguments)
    else:
        yield from _spread(task, items, arguments, processes)


def ray_executor(address: str) -> Executor:
    """Tasks on a Ray cluster, one a file. The files must lie where every node sees them. Raises WellfedError without
    Ray or without the cluster."""
    try:
        ray = importlib.import_module("ray")
    except ImportError as error:
        raise WellfedError("a Ray cluster needs the package `ray`", hint="pip install ray") from error
    try:
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise WellfedError(f"no Ray cluster at {address}: {error}", hint="ray status") from error
    return _Ray(ray)


class _Ray:
    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._run = ray.remote(max_retries=1)(_called)

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Future:
        return _RayFuture(self._ray, self._run.remote(function, *arguments))


class _RayFuture:
    def __init__(self, ray: Any, reference: Any) -> None:
        self._ray, self._reference = ray, reference

    def result(self) -> Any:
        return self._ray.get(self._reference)


def _called(function: Callable[..., T], *arguments: Any) -> T:
    return function(*arguments)


def _submitted(
    task: Callable[..., T], items: Sequence[Any], arguments: tuple[Any, ...], executor: Executor
) -> Iterator[T]:
    waiting: list[Future] = []
    for item in items:
        waiting.append(executor.submit(task, item, *arguments))
        if len(waiting) >= CLUSTER_TASKS:
            yield waiting.pop(0).result()
    for future in waiting:
        yield future.result()


def _spread(
    task: Callable[..., T], items: Sequence[Any], arguments: tuple[Any, ...], processes: int
) -> Iterator[T]:
    todo: queue.SimpleQueue[tuple[int, Any]] = queue.SimpleQueue()
    for numbered in enumerate(items):
        todo.put(numbered)
    done: queue.SimpleQueue[tuple[int, bool, Any]] = queue.SimpleQueue()
    room = threading.Semaphore(processes * AHEAD)  # results that nobody took yet
    children = [_start() for _ in range(processes)]
    threads = [
        threading.Thread(target=_feed, args=(child, task, arguments, todo, done, room), daemon=True)
        for child in children
    ]
    try:
        for thread in threads:
            thread.start()
        early: dict[int, tuple[bool, Any]] = {}
        for number in range(len(items)):
            while number not in early:
                at, good, found = done.get()
                early[at] = (good, found)
                room.release()
            good, found = early.pop(number)
            if not good:
                raise found
            yield found
    finally:
        for child in children:
            child.kill()
        for child in children:
            child.wait()
            for pipe in (child.stdin, child.stdout):
                if pipe is not None:
                    with contextlib.suppress(OSError):
                        pipe.close()


def _start() -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, "-c", "from wellfed.ingest.workers import serve; serve()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, ENVIRONMENT: "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def _feed(
    child: "subprocess.Popen[bytes]",
    task: Callable[..., Any],
    arguments: tuple[Any, ...],
    todo: "queue.SimpleQueue[tuple[int, Any]]",
    done: "queue.SimpleQueue[tuple[int, bool, Any]]",
    room: threading.Semaphore,
) -> None:
    """One child's tasks, until there are none left."""
    assert child.stdin is not None
    assert child.stdout is not None
    while True:
        room.acquire()
        try:
            number, item = todo.get_nowait()
        except queue.Empty:
            room.release()
            return
        try:
            _put(child.stdin, (task, (item, *arguments)))
            good, found = _get(child.stdout)
        except (OSError, EOFError, pickle.UnpicklingError):
            code = child.wait()
            told = f"the process that read {item} ended ({'signal' if code < 0 else 'code'} {abs(code)})"
            done.put(
                (number, False, WellfedError(told, hint="if memory is short, cut the traces with --rank"))
            )
            return
        done.put((number, good, found))


def serve() -> None:
    """The child: tasks from standard input, results to standard output, until it closes."""
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever prints must not stand between results
    with contextlib.suppress(EOFError, BrokenPipeError, KeyboardInterrupt):
        while True:
            task, arguments = _get(source)
            try:
                answer: tuple[bool, Any] = (True, task(*arguments))
            except Exception as error:  # noqa: BLE001 - it is raised again in the parent
                answer = (False, error)
            _put(sink, answer)


def _put(pipe: IO[bytes], value: Any) -> None:
    data = pickle.dumps(value, protocol=5)
    pipe.write(len(data).to_bytes(8, "little"))
    pipe.write(data)
    pipe.flush()


def _get(pipe: IO[bytes]) -> Any:
    size = pipe.read(8)
    if len(size) < 8:
        raise EOFError
    data = pipe.read(int.from_bytes(size, "little"))
    return pickle.loads(data)
