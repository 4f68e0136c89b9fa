"""Where the time of a sample goes, in one process without a loader: read, decode, transform, collate; wall and CPU; and what a
batch costs on its way out of a worker."""

import contextlib
import itertools
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from wellfed.live.loader.build import Cycle, Spec
from wellfed.live.loader.shape import as_tensors, shape_of

MAX_SAMPLES = 2000
KEPT_SAMPLES = 400
_PLAIN_SHARE, _SPLIT_SHARE = 0.75, 0.25

_READ = frozenset(
    [
        "open",
        "read",
        "readinto",
        "readinto1",
        "read1",
        "readline",
        "readlines",
        "readall",
        "pread",
        "preadv",
        "readv",
        "fromfile",
        "recv",
        "recv_into",
        "recvfrom",
        "stat",
        "lstat",
        "scandir",
        "listdir",
        "get",
        "getitem",
        "seek",
        "close",
        "mmap",
        "memmap",
        "sendfile",
        "read_direct",
    ]
)
_READ_HOMES = (
    "_io",
    "io",
    "posix",
    "nt",
    "_socket",
    "_ssl",
    "mmap",
    "numpy",
    "h5py",
    "lmdb",
    "pyarrow",
    "sqlite3",
)
_DECODE_HOMES = (
    "zlib", "bz2", "_bz2", "lzma", "_lzma", "_compression", "zstandard", "_zstd", "lz4", "snappy", "blosc", "cv2", "PIL",
    "_pickle", "_json", "orjson", "msgspec", "simplejpeg", "turbojpeg", "soundfile", "av", "decord", "ImagingDecoder",
    "ImagingCore", "_imaging", "imageio", "tifffile", "blosc2", "_tokenizers", "tokenizers",
)  # fmt: skip
DECODE = frozenset(
    [
        "decode",
        "loads",
        "decompress",
        "imdecode",
        "imread",
        "unpack",
        "unpackbits",
        "imagingdecoder",
        "load",
        "scan_once",
    ]
)


def warm(spec: Spec) -> dict[str, Any]:
    """A source, and its first batch, which may have to build what makes the others."""
    import torch

    torch.set_num_threads(1)  # as a worker does
    source = Source(spec)
    began = time.perf_counter()
    batch = source.batch()
    return {"source": source, "batch": batch, "first_s": time.perf_counter() - began}


def profile(source: "Source", batch: Any, seconds: float) -> dict[str, Any]:
    """Seconds are wall unless their name says CPU; `_s` of a batch unless it says sample."""
    import torch

    plain = _timed(source, seconds * _PLAIN_SHARE, time.perf_counter() + 20 * seconds)
    split = _split(source.spec, source, seconds * _SPLIT_SHARE)
    return {
        "shape": list(shape_of(batch)),
        "batch_samples": source.mean_size(),
        **plain,
        **split,
        "threads": len(list(Path("/proc/self/task").iterdir())) if Path("/proc/self/task").exists() else 1,
        "paths": source.paths,
        "cuda": bool(torch.cuda.is_initialized()),
    }


class Source:
    """Fetches and collates batches the way a worker would."""

    def __init__(self, spec: Spec) -> None:
        self.spec, self.collate = spec, spec.kept["collate_fn"]
        self.sizes: list[int] = []
        self.paths: list[str] = []
        if spec.kind == "iterable":
            self.items: Iterator[Any] = iter(spec.dataset)
        else:
            sampler = spec.batch_sampler if spec.batch_sampler is not None else spec.sampler
            self.indices = iter(Cycle(sampler))

    def batch(self, fetch: Callable[[Any], Any] | None = None) -> Any:
        samples = self.samples(fetch)
        return self.collate(samples)

    def samples(self, fetch: Callable[[Any], Any] | None = None) -> Any:
        """What goes into `collate_fn`: a list of samples, or one item where nothing is batched."""
        spec = self.spec
        if spec.kind == "iterable":
            found = [self._item(fetch) for _ in range(spec.batch_size or 1)]
            self._note(len(found))
            return found if spec.batch_size is not None else found[0]
        index = next(self.indices)
        one = fetch or spec.dataset.__getitem__
        if spec.batch_sampler is None:
            self._note(1)
            return one(index)
        self._note(len(index))
        many = getattr(spec.dataset, "__getitems__", None)
        return many(index) if many and fetch is None else [one(number) for number in index]

    def _item(self, fetch: Callable[[Any], Any] | None) -> Any:
        for _ in range(2):
            try:
                return fetch(None) if fetch else next(self.items)
            except StopIteration:
                self.items = iter(self.spec.dataset)
        raise RuntimeError("the dataset gives no sample")

    def one(self, index: Any) -> Any:
        """A single sample, for timers around it."""
        return next(self.items) if self.spec.kind == "iterable" else self.spec.dataset[index]

    def _note(self, count: int) -> None:
        if len(self.sizes) < 10_000:
            self.sizes.append(count)

    def mean_size(self) -> float:
        return sum(self.sizes) / max(len(self.sizes), 1)


def _timed(source: Source, seconds: float, limit: float) -> dict[str, Any]:
    """Totals by batch without timers inside; every other batch with one around each sample, for the spread."""
    walls: list[float] = []
    cpus: list[float] = []
    collates: list[float] = []
    samples: list[float] = []
    fast = hasattr(source.spec.dataset, "__getitems__")

    def timed(index: Any) -> Any:
        began = time.perf_counter()
        found = source.one(index)
        samples.append(time.perf_counter() - began)
        return found

    process, thread, io = time.process_time(), time.thread_time(), _io()
    end = time.perf_counter() + seconds
    for number in itertools.count():
        wall, cpu = time.perf_counter(), time.thread_time()
        data = source.samples(timed if number % 2 and len(samples) < MAX_SAMPLES and not fast else None)
        fetched, fetched_cpu = time.perf_counter(), time.thread_time()
        source.collate(data)
        done = time.perf_counter()
        walls.append(fetched - wall)
        cpus.append(fetched_cpu - cpu)
        collates.append(done - fetched)
        if (done > end and number >= 4) or done > limit:
            break
    process, thread = time.process_time() - process, time.thread_time() - thread
    return {
        "batches": len(walls),
        "fetch_s": sum(walls) / len(walls),
        "fetch_cpu_s": sum(cpus) / len(walls),
        "collate_s": sum(collates) / len(walls),
        "batch_walls": [a + b for a, b in zip(walls, collates, strict=True)][-KEPT_SAMPLES:],
        "sample_walls": samples[:: max(len(samples) // KEPT_SAMPLES, 1)],
        "hidden_cpu": max(process / thread - 1.0, 0.0) if thread > 0.01 else 0.0,
        "io": {key: (value - io.get(key, 0)) / len(walls) for key, value in _io().items()},
    }


def _io() -> dict[str, int]:
    """rchar, syscr (reads asked for) and read_bytes (from the device) of this process."""
    try:
        text = Path("/proc/self/io").read_text()
    except OSError:
        return {}
    pairs = (line.split(": ") for line in text.splitlines())
    return {key: int(value) for key, value in pairs if key in ("rchar", "syscr", "read_bytes")}


# -- the split --------------------------------------------------------------------------------------------


def _split(spec: Spec, source: Source, seconds: float) -> dict[str, Any]:
    """Seconds a batch in C calls that read and that decode, and in each transform; empty when the user's code does not stand
    it. The interpreter's own profiling hook tells of every C call, so nothing need be patched."""
    clock = CallClock()
    named = _wrap_transforms(spec.dataset)
    count, end = 0, time.perf_counter() + seconds
    source.paths = _opened()
    try:
        while count < 2 or time.perf_counter() < end:
            sys.setprofile(clock.event)
            try:
                data = source.samples()
            finally:
                sys.setprofile(None)
            count += 1
            del data
    except Exception as error:  # noqa: BLE001 - a wrapped transform may not please the user's code
        return {"split_error": f"{type(error).__name__}: {error}"[:200]}
    return {
        "read_s": clock.spent["read"] / count,
        "decode_s": clock.spent["decode"] / count,
        "sleep_s": clock.spent["sleep"] / count,
        "reads": clock.calls["read"] / count,
        "transforms": {name: spent / count for name, spent in named.items()},
    }


class CallClock:
    """Time spent in C calls by kind; a call inside another is the outer one's."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self.calls: dict[str, int] = defaultdict(int)
        self._kind: str | None = None
        self._call: Any = None
        self._began = 0.0
        self._known: dict[Any, str | None] = {}

    def event(self, frame: Any, what: str, call: Any) -> None:
        if what == "c_call":
            if self._kind is None:
                kind = self._kind_of(call)
                if kind is not None:
                    self._kind, self._call, self._began = kind, call, time.perf_counter()
        elif what[0] == "c" and call is self._call and self._kind is not None:
            self.spent[self._kind] += time.perf_counter() - self._began
            self.calls[self._kind] += 1
            self._kind = self._call = None

    def _kind_of(self, call: Any) -> str | None:
        owner = getattr(call, "__self__", None)
        home = getattr(call, "__module__", None) or type(owner).__module__ or ""
        key = (home, getattr(call, "__name__", ""), type(owner).__name__)
        if key not in self._known:
            self._known[key] = kind_of(*key)
        return self._known[key]


def kind_of(home: str, name: str, owner: str) -> str | None:
    """read, decode or sleep for a C function by its module, name and the type it belongs to; None for all others."""
    top, low = home.partition(".")[0], name.lower()
    if top == "time" and low == "sleep":
        return "sleep"
    if owner in _DECODE_HOMES or (
        top in _DECODE_HOMES and (low in DECODE or top in ("cv2", "_imaging", "zlib", "_pickle"))
    ):
        return "decode"
    if low in DECODE and top in ("torchvision", "torchcodec", "torchaudio"):
        return "decode"
    if low in _READ and (
        top in _READ_HOMES or owner in ("FileIO", "BufferedReader", "TextIOWrapper", "socket")
    ):
        return "read"
    return None


def _wrap_transforms(dataset: Any) -> dict[str, float]:
    """Puts a clock around `transform`, `transforms` and the members of a Compose of the dataset and of those it wraps. This
    process ends after the profile, so nothing is put back."""
    spent: dict[str, float] = {}
    for _ in range(4):
        for name in ("transform", "transforms", "target_transform", "augment", "preprocess"):
            with contextlib.suppress(AttributeError, TypeError):
                _wrap_one(dataset, name, spent)
        dataset = getattr(dataset, "dataset", None)
        if dataset is None:
            break
    return spent


def _wrap_one(holder: Any, name: str, spent: dict[str, float]) -> None:
    found = vars(holder).get(name)
    members = getattr(found, "transforms", None)
    if isinstance(members, list):
        found.transforms = [_Clocked(one, type(one).__name__, spent) for one in members]
    elif callable(found):
        setattr(holder, name, _Clocked(found, getattr(found, "__name__", type(found).__name__), spent))


class _Clocked:
    """Calls what it holds and adds the time to its name."""

    def __init__(self, inner: Any, name: str, spent: dict[str, float]) -> None:
        self._inner, self._name, self._spent = inner, name, spent

    def __call__(self, *args: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return self._inner(*args, **named)
        finally:
            self._spent[self._name] = self._spent.get(self._name, 0.0) + time.perf_counter() - began

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _opened() -> list[str]:
    """A list that fills with the first files that are opened to be read; audit hooks stay for the life of the process."""
    paths: list[str] = []

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if (
            event == "open"
            and len(paths) < 50
            and isinstance(args[0], str)
            and not args[0].startswith("/proc")
        ):
            paths.append(os.path.realpath(args[0]))

    sys.addaudithook(hook)
    return paths


# -- threads and pipes ------------------------------------------------------------------------------------


def gil(spec: Spec, seconds: float) -> dict[str, Any]:
    """The rate of two threads by that of one, for datasets that are read by index. `g` of a sample's CPU that holds the GIL
    follows from it: two threads need 1/2 of the time where none is held, all of it where all is."""
    if spec.kind == "iterable":
        return {"speedup": None}
    indices = iter(Cycle(spec.sampler if spec.batch_sampler is None else spec.batch_sampler))
    flat = itertools.chain.from_iterable(one if isinstance(one, list | tuple) else [one] for one in indices)
    work = list(itertools.islice(flat, 4096))
    one = _threads(spec.dataset, work, 1, seconds / 3)
    two = _threads(spec.dataset, work, 2, seconds / 3)
    again = _threads(spec.dataset, work, 1, seconds / 3)
    return {"speedup": two / ((one + again) / 2)}


def _threads(dataset: Any, work: list[Any], count: int, seconds: float) -> float:
    """Samples a second of so many threads."""
    done = [0] * count
    end = time.perf_counter() + seconds
    errors: list[BaseException] = []

    def read(number: int) -> None:
        try:
            for index in itertools.cycle(work[number::count]):
                dataset[index]
                done[number] += 1
                if time.perf_counter() >= end:
                    return
        except Exception as error:  # noqa: BLE001 - handed on below
            errors.append(error)

    began = time.perf_counter()
    members = [threading.Thread(target=read, args=(number,)) for number in range(count)]
    for member in members:
        member.start()
    for member in members:
        member.join()
    if errors:
        raise errors[0]
    return sum(done) / (time.perf_counter() - began)


def replay(batch: Any, seconds: float) -> dict[str, Any]:
    """One batch over and over through one worker: what receiving costs the main process whatever makes the batches, and for
    numpy arrays what it would cost as tensors."""
    shape = shape_of(batch)
    found = {"same": _through(batch, seconds, fresh=False)}
    if shape.arrays and shape.pipe_bytes > 64 << 10:
        found["fresh"] = _through(batch, seconds, fresh=True)
        found["tensors"] = _through(as_tensors(batch), seconds, fresh=True)
    return found


def _through(batch: Any, seconds: float, *, fresh: bool) -> dict[str, float]:
    import torch
    from torch.utils.data import DataLoader, IterableDataset

    class Replay(IterableDataset):  # type: ignore[misc]
        def __iter__(self) -> Iterator[Any]:
            while True:
                yield _fresh(batch) if fresh else batch

    context = "fork" if sys.platform == "linux" else None
    loader = DataLoader(
        Replay(), batch_size=None, num_workers=1, collate_fn=_same, multiprocessing_context=context
    )
    batches = iter(loader)
    for _ in range(4):
        next(batches)
    count, wall, cpu = 0, time.perf_counter(), time.process_time()
    end = wall + seconds
    while count < 4 or time.perf_counter() < end:
        next(batches)
        count += 1
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    del batches
    torch.set_num_threads(1)
    return {"batch_s": wall / count, "main_cpu_s": cpu / count, "batches": count}


def _same(batch: Any) -> Any:
    return batch


def _fresh(batch: Any) -> Any:
    """Copies of the tensors: one that has been sent lies in shared memory already, and would be sent for nothing."""
    import torch

    if isinstance(batch, torch.Tensor):
        return batch.clone()
    if isinstance(batch, dict):
        return {key: _fresh(value) for key, value in batch.items()}
    if isinstance(batch, list | tuple) and not hasattr(batch, "_fields"):
        return type(batch)(_fresh(value) for value in batch)
    return batch
