"""rocprofv3's JSON (`rocprofiler-sdk-tool`) into Timelines: one for each process in the file.

Kernel dispatches name their kernel by a number into `kernel_symbols`, GPUs are agents, calls and copies are
records of buffers of their own. Times are ns of the machine's clock since boot, not of the calendar.
"""

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from wellfed.ingest.pieces import BROKEN, object_end, salvage
from wellfed.ingest.rows import Rows, distinct, integers, join, rank_in, without_gc
from wellfed.ingest.source import Source
from wellfed.model import WellfedError
from wellfed.model.counting import counted
from wellfed.model.timeline import I64, Cat, Timeline

KEY = b'"rocprofiler-sdk-tool"'
MAX_BYTES = 2 << 30
"""The text is decoded as one; rocprofv3 writes about 850 bytes for a kernel, so this is 2.5 million kernels."""
GPU_AGENT = 2
COPIES_STREAM = 1_000_000
"""Stream of copies that the file puts on none: the copy engines."""
_COPY = {
    "HOST_TO_DEVICE": "Memcpy HtoD",
    "DEVICE_TO_HOST": "Memcpy DtoH",
    "DEVICE_TO_DEVICE": "Memcpy DtoD",
    "HOST_TO_HOST": "Memcpy HtoH",
}
_RANGE = re.compile(r"^roctx(?:RangePush|RangeStart|ThreadRange|ProcessRange)")
_HEADS = ("metadata", "agents", "strings", "kernel_symbols")
_STARTS: dict[str, re.Pattern[bytes]] = defaultdict(
    lambda: re.compile(rb'\{\s*"size"\s*:\s*\d+\s*,\s*"kind"\s*:'),
    agents=re.compile(rb'\{\s*"size"\s*:\s*\d+\s*,\s*"id"\s*:'),
    kernel_symbols=re.compile(rb'\{\s*"size"\s*:\s*\d+\s*,\s*"kernel_id"\s*:'),
)
"""How the objects of each list begin; records have parts that begin with a size too."""
_BUFFERS = ("kernel_dispatch", "memory_copy", "hip_api", "hsa_api", "marker_api", "rccl_api")

Loose = int | float | str | None


class Handle(msgspec.Struct, gc=False):
    handle: Loose = None


class Correlation(msgspec.Struct, gc=False):
    internal: Loose = None


class Dispatch(msgspec.Struct, gc=False):
    agent_id: Handle | None = None
    queue_id: Handle | None = None
    kernel_id: Loose = None


class Record(msgspec.Struct, gc=False):
    """A record of any buffer: the parts that the columns hold."""

    kind: Loose = None
    operation: Loose = None
    thread_id: Loose = None
    correlation_id: Correlation | None = None
    start_timestamp: Loose = None
    end_timestamp: Loose = None
    dispatch_info: Dispatch | None = None
    stream_id: Handle | None = None
    src_agent_id: Handle | None = None
    dst_agent_id: Handle | None = None
    size: Loose = msgspec.field(name="bytes", default=None)


class Agent(msgspec.Struct):
    id: Handle | None = None
    type: Loose = None
    name: str = ""
    product_name: str = ""
    node_id: Loose = None
    logical_node_type_id: Loose = None


class Symbol(msgspec.Struct, gc=False):
    kernel_id: Loose = None
    formatted_kernel_name: str = ""
    kernel_name: str = ""


class Kind(msgspec.Struct):
    kind: str = ""
    operations: list[str] = []


class Marker(msgspec.Struct):
    key: Loose = None
    value: Any = None


class Strings(msgspec.Struct):
    buffer_records: list[Kind] = []
    marker_api: list[Marker] = []


class Metadata(msgspec.Struct):
    pid: Loose = None


class Process(msgspec.Struct):
    """One process as the file tells it. `buffer_records` by buffer."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)
    agents: list[Agent] = []
    strings: Strings = msgspec.field(default_factory=Strings)
    kernel_symbols: list[Symbol] = []
    buffer_records: dict[str, list[Record]] = {}


class Results(msgspec.Struct):
    tool: list[Process] | Process = msgspec.field(name="rocprofiler-sdk-tool", default_factory=list)


_DECODE = msgspec.json.Decoder(Results)
_DECODE_RECORD = msgspec.json.Decoder(Record)
_DECODE_HEAD: dict[str, Any] = {
    "metadata": msgspec.json.Decoder(Metadata),
    "strings": msgspec.json.Decoder(Strings),
    "agents": msgspec.json.Decoder(Agent),
    "kernel_symbols": msgspec.json.Decoder(Symbol),
}


def matches(head: bytes, name: str) -> bool:
    """Whether a file with this beginning is rocprofv3's JSON."""
    return KEY in head[:4096]


def read(path: Path) -> list[Timeline]:
    """The timelines of one file. Raises WellfedError when nothing in it can be read."""
    source = Source(path)
    with without_gc():
        text = join(source.windows(), MAX_BYTES, path.name)
        rows = Rows()
        if source.damage:
            rows.warn("truncated-archive", source.damage, "everything after the damage")
        try:
            tool = _DECODE.decode(text).tool
            processes = tool if isinstance(tool, list) else [tool]
        except BROKEN:
            processes = [_salvaged(text, rows, path.name)]
        return _timelines(path, processes, rows)


def _timelines(path: Path, processes: list[Process], rows: Rows) -> list[Timeline]:
    gpus: list[dict[int, str]] = []
    for owner, process in enumerate(processes):
        gpus.append(_add_process(rows, process, owner))
    owners = rows.column("owner")
    with_events = [k for k in range(len(processes)) if (owners == k).any()]
    if not with_events and not processes:
        raise WellfedError(
            f"no process in {path.name}", hint="rocprofv3 --sys-trace --output-format json -- COMMAND"
        )
    _missing(rows)
    common: dict[str, Any] = {"source": path.name, "kind": "rocprof", "options": {"record_shapes": False}}
    if len(with_events) < 2:
        return [
            rows.timeline(**common, gpus=gpus[with_events[0] if with_events else 0], rank=rank_in(path.name))
        ]
    rows.warn(
        "ranks-by-order",
        f"{len(with_events)} processes in one file; ranks are numbered in its order",
        "which rank is which",
        len(with_events),
    )
    return [
        rows.timeline(**common, owners=[owner], gpus=gpus[owner], rank=k)
        for k, owner in enumerate(with_events)
    ]


def _add_process(rows: Rows, process: Process, owner: int) -> dict[int, str]:
    """Adds the rows of one process; returns the names of its GPUs."""
    device, gpus = _agents(process.agents)
    pid = str(process.metadata.pid if process.metadata.pid is not None else owner)
    records = process.buffer_records
    _add_kernels(rows, records.get("kernel_dispatch", []), process.kernel_symbols, device, owner)
    _add_copies(rows, records.get("memory_copy", []), process.strings, device, owner)
    _add_calls(rows, records.get("hip_api", []), process.strings, Cat.RUNTIME, pid, owner)
    _add_calls(rows, records.get("hsa_api", []), process.strings, Cat.DRIVER, pid, owner)
    _add_calls(rows, records.get("rccl_api", []), process.strings, Cat.OP, pid, owner)
    _add_ranges(rows, records.get("marker_api", []), process.strings, pid, owner)
    return gpus


def _agents(agents: list[Agent]) -> tuple[dict[int, int], dict[int, str]]:
    """Device number of each GPU by its handle (as HIP counts them), and the devices' names."""
    device: dict[int, int] = {}
    gpus: dict[int, str] = {}
    kinds, handles, ordinals = (
        integers([a.type for a in agents]).tolist(),
        _handles([a.id for a in agents]).tolist(),
        integers([a.logical_node_type_id for a in agents]).tolist(),
    )
    for agent, kind, handle, ordinal in zip(agents, kinds, handles, ordinals, strict=True):
        if kind == GPU_AGENT:
            number = ordinal if ordinal >= 0 else len(device)
            device[handle] = number
            gpus[number] = agent.product_name or agent.name
    return device, gpus


def _add_kernels(
    rows: Rows, records: list[Record], symbols: list[Symbol], device: dict[int, int], owner: int
) -> None:
    if not records:
        return
    info = [r.dispatch_info or Dispatch() for r in records]
    known = dict(zip(integers([s.kernel_id for s in symbols]).tolist(), symbols, strict=True))
    kernels, which = distinct(integers([i.kernel_id for i in info]))
    names = [_kernel_name(known.get(k), k) for (k,) in kernels]
    stream, queue = _handles([r.stream_id for r in records]), _handles([i.queue_id for i in info])
    _add_gpu(
        rows,
        records,
        Cat.KERNEL,
        name=rows.names(names)[which],
        device=_devices(_handles([i.agent_id for i in info]), device),
        # dispatches of one stream may go to several hardware queues: the stream is what keeps their order
        stream=np.where(stream >= 0, stream, np.maximum(queue, 0)),
        size=-1,
        owner=owner,
    )


def _add_copies(
    rows: Rows, records: list[Record], strings: Strings, device: dict[int, int], owner: int
) -> None:
    if not records:
        return
    source, target = (
        _handles([r.src_agent_id for r in records]),
        _handles([r.dst_agent_id for r in records]),
    )
    on_gpu = np.isin(source, list(device)) | np.isin(target, list(device))
    kinds, which = distinct(*_kinds(records))
    names = [_copy_name(_operation(strings, *kind)) for kind in kinds]
    stream = _handles([r.stream_id for r in records])
    _add_gpu(
        rows,
        records,
        np.where(on_gpu | (not device), Cat.MEMCPY, Cat.OTHER),  # from host to host is not the GPU's work
        name=rows.names(names)[which],
        device=_devices(np.where(np.isin(target, list(device)), target, source), device),
        stream=np.where(stream >= 0, stream, COPIES_STREAM),
        size=integers([r.size for r in records]),
        owner=owner,
    )


def _add_gpu(
    rows: Rows, records: list[Record], cat: Any, *, device: I64, stream: I64, **columns: Any
) -> None:
    places, which = distinct(device, stream)
    thread = np.array([rows.thread(str(d), f"stream {s}") for d, s in places], np.int64)
    start, end = _times(records)
    rows.add(
        cat=cat,
        ts=start,
        end=end,
        thread=thread[which],
        corr=_own(_correlations(records), columns["owner"]),
        device=device,
        stream=stream,
        **columns,
    )


def _add_calls(rows: Rows, records: list[Record], strings: Strings, cat: Cat, pid: str, owner: int) -> None:
    """Calls of the host. A dispatch carries the id of the call that made it."""
    if not records:
        return
    kinds, which = distinct(*_kinds(records))
    start, end = _times(records)
    rows.add(
        cat=cat,
        ts=start,
        end=end,
        name=rows.names(_operation(strings, *kind) for kind in kinds)[which],
        thread=_host_threads(rows, records, pid),
        corr=_own(_correlations(records), owner) if cat is not Cat.OP else -1,
        owner=owner,
    )


def _add_ranges(rows: Rows, records: list[Record], strings: Strings, pid: str, owner: int) -> None:
    """roctx ranges; their message is found by the record's id."""
    said = dict(zip(integers([m.key for m in strings.marker_api]).tolist(), strings.marker_api, strict=True))
    kinds = list(zip(*(k.tolist() for k in _kinds(records)), strict=True))
    ids = _correlations(records).tolist()
    ranges = [
        (record, said[i])
        for record, kind, i in zip(records, kinds, ids, strict=True)
        if i in said and _RANGE.match(_operation(strings, *kind))
    ]
    if not ranges:
        return
    kept = [record for record, _ in ranges]
    start, end = _times(kept)
    rows.add(
        cat=Cat.ANNOTATION,
        ts=start,
        end=end,
        name=rows.names(str(marker.value) for _, marker in ranges),
        thread=_host_threads(rows, kept, pid),
        owner=owner,
    )


def _missing(rows: Rows) -> None:
    cat = rows.column("cat")
    if not ((cat >= Cat.KERNEL) & (cat <= Cat.MEMSET)).any():
        rows.warn(
            "no-kernels-captured",
            "no kernel and no copy was recorded: rocprofv3 --sys-trace --output-format json -- COMMAND",
            "everything about the GPU",
        )
    elif not np.isin(cat, (Cat.RUNTIME, Cat.DRIVER)).any():
        rows.warn(
            "no-runtime-calls",
            "no HIP call was recorded: rocprofv3 --hip-trace (or --sys-trace) records them",
            "every idle cause",
        )


# -- fields -----------------------------------------------------------------------------------------------


def _times(records: list[Record]) -> tuple[I64, I64]:
    """Starts and ends in ns. A record without a start (absent, or 0) is put so far off that it is dropped, with
    a count, when the rows are cleaned."""
    start = integers([r.start_timestamp for r in records])
    end = integers([r.end_timestamp for r in records])
    start = np.where(start > 0, start, -(2**62))
    return start, np.where(end > 0, end, start - 1)


def _handles(values: Iterable[Handle | None]) -> I64:
    return integers([None if v is None else v.handle for v in values])


def _correlations(records: list[Record]) -> I64:
    return integers([None if r.correlation_id is None else r.correlation_id.internal for r in records])


def _own(corr: I64, owner: int) -> I64:
    """Ids that two processes of one file cannot share."""
    return np.where((corr > 0) & (corr < 2**40), corr + (owner << 40), -1)


def _kinds(records: list[Record]) -> tuple[I64, I64]:
    return integers([r.kind for r in records]), integers([r.operation for r in records])


def _operation(strings: Strings, kind: int, operation: int) -> str:
    """Name of an operation, by the file's own tables."""
    if 0 <= kind < len(strings.buffer_records):
        names = strings.buffer_records[kind].operations
        if 0 <= operation < len(names):
            return names[operation]
    return f"operation {operation} of kind {kind}"


def _copy_name(operation: str) -> str:
    return _COPY.get(operation.removeprefix("MEMORY_COPY_"), f"Memcpy ({operation})")


def _kernel_name(symbol: Symbol | None, number: int) -> str:
    if symbol is None:
        return f"kernel {number}"
    return symbol.formatted_kernel_name or symbol.kernel_name.removesuffix(".kd") or f"kernel {number}"


def _devices(handles: I64, device: dict[int, int]) -> I64:
    known, which = distinct(handles)
    return np.array([device.get(h, 0) for (h,) in known], np.int64)[which]


def _host_threads(rows: Rows, records: list[Record], pid: str) -> I64:
    known, which = distinct(integers([r.thread_id for r in records]))
    return np.array([rows.thread(pid, str(t)) for (t,) in known], np.int64)[which]


# -- damage -----------------------------------------------------------------------------------------------


def _salvaged(text: bytes, rows: Rows, name_of: str) -> Process:
    """What is left of a broken file, as one process: each list is found by its key and taken apart."""
    marks = [
        (found.start(), found.end(), name)
        for name in (*_HEADS, *_BUFFERS)
        for found in re.finditer(rb'"' + name.encode() + rb'"\s*:\s*[\[{]', text)
    ]
    marks.sort()
    process = Process()
    lost: list[int] = []
    read: set[str] = set()
    for k, (_, begin, name) in enumerate(marks):
        end = marks[k + 1][0] if k + 1 < len(marks) else len(text)
        if name not in ("metadata", "strings"):
            lost += _salvage_list(process, text, begin, end, name)
        elif name not in read:  # one of each: their ends are searched for, which a thousand would make slow
            read.add(name)
            lost += _salvage_head(process, text, begin, name)
    if not any(process.buffer_records.values()):
        raise WellfedError(
            f"{name_of} is damaged: no record in it can be read", hint="copy it again, or record it again"
        )
    rows.warn(
        "lost-events",
        f"the text is broken: {counted(len(lost), 'record')} could not be read"
        + (f", the first at byte {lost[0]}" if lost else ""),
        "all sums over events",
        max(len(lost), 1),
    )
    return process


def _salvage_list(process: Process, text: bytes, begin: int, end: int, name: str) -> list[int]:
    decoder = _DECODE_HEAD.get(name, _DECODE_RECORD)
    found, lost = salvage(text, begin, end, _STARTS[name], decoder)
    if name == "agents":
        process.agents += found
    elif name == "kernel_symbols":
        process.kernel_symbols += found
    else:
        process.buffer_records.setdefault(name, []).extend(found)
    return lost


def _salvage_head(process: Process, text: bytes, begin: int, name: str) -> list[int]:
    """The metadata and the names of operations: small dictionaries, whole or not at all."""
    brace = begin - 1
    try:
        value = _DECODE_HEAD[name].decode(text[brace : object_end(text, brace, len(text))])
    except BROKEN:
        return [brace]
    setattr(process, name, value)
    return []
