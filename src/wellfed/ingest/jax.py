"""JAX's profiler traces (`*.trace.json.gz`, made by XLA from its own records) into a Timeline.

A Chrome trace without categories: what an event is follows from the names of its process and thread, which
stand in `M` events. `/device:GPU:0` is a GPU, its threads named `Stream #...` hold what ran; its other threads
repeat the same by operation, module or step, and are left out. `/host:CPU` holds threads of the program, with
calls of CUDA and ROCm among them.
"""

import re
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from wellfed.ingest.pieces import BROKEN, salvage
from wellfed.ingest.rows import Rows, distinct, integers, join, rank_in, without_gc
from wellfed.ingest.source import Source
from wellfed.model import WellfedError
from wellfed.model.counting import counted
from wellfed.model.timeline import F64, I64, Cat, Timeline

MAX_BYTES = 1 << 30
"""The text is decoded as one. XLA writes at most a million events, about 250 MB."""
CAP = 1_000_000
"""Events that XLA's export keeps; it drops the rest without a word."""
_MARK = re.compile(rb'"highres-ticks"\s*:\s*true|"/(?:host:CPU|device:[A-Z]+:\d+)')
_EVENT = re.compile(rb'\{\s*"ph"\s*:')
_GPU = re.compile(r"^/device:GPU:(\d{1,4})")
_OTHER_DEVICE = re.compile(r"^/device:(?!GPU:|CUSTOM:)([A-Z]+):\d+")
_STREAM = re.compile(r"^Stream #?(\d+)")
_DETAIL = {key: re.compile(rf"\b{key}:(\w+)") for key in ("kind_src", "kind_dst", "size")}
_COPY = re.compile(r"^Memcpy(?P<way>[HDP]2[HDP])?", re.IGNORECASE)
_ALLOCATION = re.compile(r"^Mem(?:ory)?(?:Alloc|Free|Residency)|^UnifiedMemory", re.IGNORECASE)
_CALL = re.compile(r"^(?:cu[A-Z]|cuda[A-Z]|hip[A-Z]|hsa_)")
_WORK = re.compile(
    r"::|\(|^(?:Thunk|Execute|Shard|DevicePut|Batched|Parse|backend_compile|lower_)", re.IGNORECASE
)

_FARTHEST = 2.0**62

Loose = int | float | str | None


class Args(msgspec.Struct, gc=False):
    name: Any = None
    correlation_id: Loose = None
    kernel_details: Any = None
    memcpy_details: Any = None
    memset_details: Any = None
    memalloc_details: Any = None
    step_num: Loose = None


class Event(msgspec.Struct, gc=False):
    ph: str = ""
    name: Any = ""
    pid: Loose = None
    tid: Loose = None
    ts: int | float | None = None
    dur: int | float | None = None
    args: Args | None = None


class Trace(msgspec.Struct):
    events: list[Event] = msgspec.field(name="traceEvents", default_factory=list)


_DECODE = msgspec.json.Decoder(Trace)
_DECODE_ONE = msgspec.json.Decoder(Event)
_NO_ARGS = Args()


def matches(head: bytes, name: str) -> bool:
    """Whether a file with this beginning is a trace of JAX's (XLA's) profiler."""
    if b'"schemaVersion"' in head or b'"deviceProperties"' in head:
        return False
    return head.lstrip()[:1] == b"{" and _MARK.search(head) is not None


def read(path: Path) -> Timeline:
    """The timeline of one file. Raises WellfedError when nothing in it can be read."""
    source = Source(path)
    with without_gc():
        text = join(source.windows(), MAX_BYTES, path.name)
        rows = Rows()
        if source.damage:
            rows.warn("truncated-archive", source.damage, "everything after the damage")
        events = _events(text, rows, path.name)
        names = _Names(events)
        spans = [e for e in events if e.ph == "X" and e.ts is not None]
        on_gpu = [names.gpu.get(str(e.pid)) is not None for e in spans]
        _add_gpu(rows, [e for e, gpu in zip(spans, on_gpu, strict=True) if gpu], names)
        _add_host(rows, [e for e, gpu in zip(spans, on_gpu, strict=True) if not gpu], names)
        _missing(rows, names, len(spans))
        gpus = dict.fromkeys(names.gpu.values(), "")
        options = {"record_shapes": False}
        return rows.timeline(
            source=path.name, kind="jax", gpus=gpus, options=options, rank=rank_in(path.name)
        )


def _events(text: bytes, rows: Rows, name: str) -> list[Event]:
    try:
        return _DECODE.decode(text).events
    except BROKEN:
        pass
    begin = re.search(rb'"traceEvents"\s*:\s*\[', text)
    events, lost = salvage(text, begin.end() if begin else 0, len(text), _EVENT, _DECODE_ONE)
    if not events:
        raise WellfedError(
            f"{name} is damaged: no event in it can be read", hint="copy it again, or record it again"
        )
    rows.warn(
        "lost-events",
        f"the text is broken: {counted(len(lost), 'event')} could not be read"
        + (f", the first at byte {lost[0]}" if lost else ""),
        "all sums over events",
        max(len(lost), 1),
    )
    return events


class _Names:
    """What the `M` events say: processes and threads by number. `gpu` is the device number of each process
    that is a GPU, `foreign` the kinds of other accelerators."""

    def __init__(self, events: list[Event]) -> None:
        self.process: dict[str, str] = {}
        self.thread: dict[tuple[str, str], str] = {}
        for event in events:
            if event.ph != "M" or event.args is None:
                continue
            if event.name == "process_name":
                self.process[str(event.pid)] = str(event.args.name)
            elif event.name == "thread_name":
                self.thread[str(event.pid), str(event.tid)] = str(event.args.name)
        found = {pid: _GPU.match(name) for pid, name in self.process.items()}
        self.gpu = {pid: int(match.group(1)) for pid, match in found.items() if match}
        others = (_OTHER_DEVICE.match(name) for name in self.process.values())
        self.foreign = sorted({match.group(1) for match in others if match})

    def of_thread(self, event: Event) -> tuple[str, str]:
        """Process and thread of an event; threads of one name are told apart by number."""
        pid, tid = str(event.pid), str(event.tid)
        name = self.thread.get((pid, tid), "")
        return self.process.get(pid, pid), f"{name}/{tid}" if name else tid

    def stream(self, event: Event) -> int | None:
        """The stream that an event of a GPU ran on; None for the threads that repeat the streams' work."""
        name = self.thread.get((str(event.pid), str(event.tid)))
        if name is None:
            return int(integers([event.tid])[0])
        match = _STREAM.match(name)
        return int(match.group(1)[:18]) if match else None


def _add_gpu(rows: Rows, events: list[Event], names: _Names) -> None:
    kept: list[tuple[Event, Cat, int]] = []
    for event in events:
        number = names.stream(event)
        cat = _gpu_category(event)
        if number is not None and cat is not None:
            kept.append((event, cat, max(number, 0)))
    if not kept:
        return
    args = [event.args or _NO_ARGS for event, _, _ in kept]
    labels = [_gpu_label(event, cat) for event, cat, _ in kept]
    start, end = _times([event for event, _, _ in kept])
    device = np.array([names.gpu[str(event.pid)] for event, _, _ in kept], np.int64)
    stream = np.array([s for _, _, s in kept], np.int64)
    places, which = distinct(device, stream)
    thread = np.array([rows.thread(str(d), f"stream {s}") for d, s in places], np.int64)
    rows.add(
        cat=np.array([cat for _, cat, _ in kept], np.int64),
        ts=start,
        end=end,
        name=rows.names(label for label, _ in labels),
        thread=thread[which],
        corr=_correlations(args),
        device=device,
        stream=stream,
        size=integers([size for _, size in labels]),
    )


def _gpu_category(event: Event) -> Cat | None:
    """What a GPU row is, by its details, else by its name; None for allocations, which take no GPU time."""
    args = event.args or _NO_ARGS
    name = str(event.name)
    if args.memalloc_details is not None or _ALLOCATION.match(name):
        return None
    if args.memcpy_details is not None or _COPY.match(name):
        return Cat.MEMCPY
    if args.memset_details is not None or name.lower().startswith("memset"):
        return Cat.MEMSET
    return Cat.KERNEL


def _gpu_label(event: Event, cat: Cat) -> tuple[str, Loose]:
    """Name and bytes of a GPU row; copies by the words of PyTorch's traces (`Memcpy HtoD (Pageable -> Device)`)."""
    name = str(event.name)
    if cat is not Cat.MEMCPY:
        return name, None
    text = str((event.args or _NO_ARGS).memcpy_details or "")
    found = {key: match.group(1) for key, r in _DETAIL.items() if (match := r.search(text))}
    way = _COPY.match(name)
    label = f"Memcpy {way['way'].upper().replace('2', 'to')}" if way and way["way"] else name
    if "kind_src" in found and "kind_dst" in found:
        label += f" ({found['kind_src'].capitalize()} -> {found['kind_dst'].capitalize()})"
    return label, found.get("size")


def _add_host(rows: Rows, events: list[Event], names: _Names) -> None:
    host = [e for e in events if not names.process.get(str(e.pid), "").startswith("/device:")]
    if not host:
        return
    labels = [_host_label(event) for event in host]
    cat = np.array([c for c, _ in labels], np.int64)
    start, end = _times(host)
    is_call = (cat == Cat.RUNTIME) | (cat == Cat.DRIVER)
    rows.add(
        cat=cat,
        ts=start,
        end=end,
        name=rows.names(label for _, label in labels),
        thread=np.array([rows.thread(*names.of_thread(event)) for event in host], np.int64),
        corr=np.where(is_call, _correlations([event.args or _NO_ARGS for event in host]), -1),
    )


def _host_label(event: Event) -> tuple[Cat, str]:
    """Category and name of a host row: calls of the GPU's runtime carry a correlation, Python frames begin with
    `$`, steps have a number, XLA's own work looks like C++ or a call, and the rest are ranges of the program."""
    args, name = event.args or _NO_ARGS, str(event.name)
    if args.step_num is not None:
        return Cat.ANNOTATION, f"step {args.step_num} ({name})"
    if args.correlation_id is not None or _CALL.match(name):
        driver = name.startswith(("hsa_", "cu")) and not name.startswith("cuda")
        return (Cat.DRIVER if driver else Cat.RUNTIME), name
    if name.startswith("$"):
        return Cat.PYTHON, name
    return (Cat.OP if _WORK.search(name) else Cat.ANNOTATION), name


def _missing(rows: Rows, names: _Names, spans: int) -> None:
    cat = rows.column("cat")
    if not ((cat >= Cat.KERNEL) & (cat <= Cat.MEMSET)).any():
        where = f"; {', '.join(names.foreign)} devices are not read" if names.foreign else ""
        rows.warn(
            "no-kernels-captured",
            f"no event of a GPU in the trace{where}",
            "everything about the GPU",
        )
    elif not (np.isin(cat, (Cat.RUNTIME, Cat.DRIVER)) & (rows.column("corr") >= 0)).any():
        rows.warn("no-runtime-calls", "no call of the GPU's runtime was recorded", "every idle cause")
    if spans >= CAP - 1000:
        rows.warn(
            "capped",
            f"{spans} events: XLA's export stops at a million and drops the rest; record fewer steps",
            "all sums over events",
        )


def _times(events: list[Event]) -> tuple[I64, I64]:
    """Starts and ends in ns. Both are rounded from the picoseconds of the file, so that events that follow each
    other without a gap still do."""
    ts = np.array([e.ts for e in events], np.float64)
    dur = np.array([0.0 if e.dur is None else e.dur for e in events], np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return _ns(ts), _ns(ts + dur)


def _ns(us: F64) -> I64:
    with np.errstate(over="ignore", invalid="ignore"):
        ns = np.nan_to_num(us * 1000.0, nan=-_FARTHEST)
    return np.rint(np.clip(ns, -_FARTHEST, _FARTHEST)).astype(np.int64)


def _correlations(args: list[Args]) -> I64:
    found = integers([a.correlation_id for a in args])
    return np.where(found > 0, found, -1)
