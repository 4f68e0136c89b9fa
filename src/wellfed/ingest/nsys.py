"""Nsight Systems reports, exported to SQLite, into Timelines: one for each process that used GPUs of its own.

Tables appear only when something was recorded, their columns vary by version, and names are numbers into
`StringIds`. What is not there degrades with a warning that says which numbers it weakens. Times are ns since
the session began; the session's start makes them absolute.
"""

import re
from collections.abc import Iterable
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np

from wellfed.ingest.nsys_export import exported
from wellfed.ingest.rows import Rows, distinct, rank_in, without_gc
from wellfed.ingest.sqlite import BAD_TIME, MAGIC, NO_TIME, Tables, as_integers, as_times, open_tables
from wellfed.model import TraceWarning, WellfedError
from wellfed.model.base import replace
from wellfed.model.counting import counted
from wellfed.model.timeline import I64, Cat, Timeline

REPORTS = (".nsys-rep", ".qdrep", ".qdstrm")
"""What `nsys profile` writes; only `nsys` can read it."""
SUFFIXES = (".sqlite", *REPORTS)

_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
_COPY = {1: "HtoD", 2: "DtoH", 8: "DtoD", 9: "HtoH", 10: "PtoP", 11: "HtoD", 12: "DtoH", 13: "DtoD"}
"""copyKind, in the words of PyTorch's traces; 3 to 7 are of arrays, 11 to 13 migrations of unified memory."""
_MEMORY = ("Pageable", "Pinned", "Device", "Array", "Managed", "Device Static", "Managed Static")
"""srcKind, dstKind and memKind."""
_SYNC = {1: "Event Sync", 2: "Stream Wait Event", 3: "Stream Sync", 4: "Context Sync"}
_OVERHEAD = {
    2: "Driver JIT compiler (CUDA)",
    3: "Buffer flush (Profiler)",
    4: "Instrumentation (Profiler)",
    5: "Resource creation/destruction (Profiler)",
    6: "Runtime module loading (CUDA)",
    7: "Lazy function loading (CUDA)",
    8: "Command buffer full (CUDA)",
}
_OVERHEAD_OF_CUDA = (2, 6, 7, 8)
"""Costs that CUDA has without a profiler too: what the host does, not what recording costs."""
_RANGES = (59, 60, 70, 71)
"""eventType of NVTX ranges: push/pop and start/end, of the program and imported."""
_TIMES = ("start", "end")
_VERSION = re.compile(r"_v\d+$")
_EMIT_NVTX = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = .*", re.DOTALL)
"""What `torch.autograd.profiler.emit_nvtx` adds to an operator's name."""
_OPERATOR = re.compile(r"::|Backward\d*$")
_TOLD = re.compile(r"(?i)dropped|lost|not all|missing|insufficient|failed|fewer")
"""Diagnostics below an error that still say that events are missing."""


def matches(head: bytes, name: str) -> bool:
    """Whether a file with this beginning is an SQLite file or a report of Nsight Systems."""
    return head.startswith(MAGIC) or name.endswith(REPORTS)


def read(path: Path) -> list[Timeline]:
    """The timelines of one export: one, or one for each process (rank) that has devices of its own. Raises
    WellfedError when it is no export of Nsight Systems or nothing in it can be read. A report is exported first, by
    `nsys` where that is installed."""
    if path.name.endswith(".qdstrm"):
        raise WellfedError(f"{path.name} is a report that only nsys can open", hint=_how_to_export(path))
    if path.name.endswith(REPORTS):
        with exported(path, _how_to_export(path)) as export:
            found = read(export)
        rank = rank_in(path.name)
        return [
            replace(one, source=path.name, rank=rank if one.rank is None and len(found) == 1 else one.rank)
            for one in found
        ]
    with without_gc(), open_tables(path) as tables:
        return _Export(tables).timelines()


def _how_to_export(path: Path) -> str:
    stem = str(path.with_suffix(""))
    first = ""
    if path.suffix == ".qdstrm":
        first = f"QdstrmImporter -i {quote(str(path))} -o {quote(stem + '.nsys-rep')} && "
        path = path.with_suffix(".nsys-rep")
    return f"{first}nsys export --type sqlite -o {quote(stem + '.sqlite')} {quote(str(path))}"


class _Export:
    """One open export on its way to timelines."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.path = tables.path
        self.rows = Rows()
        self.options = self._gate()
        self.processes: dict[int, int] = {}
        """Number of each process by its global id (VM, host and pid in one)."""
        self.devices: dict[tuple[int, int], int] = self._devices()
        self.launched: set[int] = set()
        self.unnamed = 0

    def _gate(self) -> dict[str, Any]:
        """The versions that the export tells; anything that is none is refused."""
        names = self.tables.names
        if any(name.startswith("rocpd_") for name in names):
            raise WellfedError(
                f"{self.path.name} is a rocpd database of rocprofv3, which is not read yet",
                hint="rocprofv3 --output-format json ... writes what wellfed reads",
            )
        told = self.tables.find("META_DATA_EXPORT")
        known = {} if told is None else dict(self.tables.pairs(told, "name", "value"))
        schema = known.get("EXPORT_SCHEMA_VERSION")
        activity = any(name.startswith(_ACTIVITY) for name in names) or "NVTX_EVENTS" in names
        if schema is None and not ("StringIds" in names and activity):
            raise WellfedError(
                f"{self.path.name} is an SQLite file, but no export of Nsight Systems",
                hint="nsys export --type sqlite -o x.sqlite x.nsys-rep makes one",
            )
        if schema is None or not re.match(r"[23]\.", schema):
            self.rows.warn(
                "unknown-schema",
                f"export schema {schema or 'not told'}; versions 2 and 3 are known, read by the column names",
                "whatever a new version may have changed",
            )
        found: dict[str, Any] = {"record_shapes": False}
        for key in ("EXPORT_SCHEMA_VERSION", "EXPORT_PRODUCT_VERSION"):
            if key in known:
                found[key] = known[key][:60]
        return found

    def timelines(self) -> list[Timeline]:
        self._gpu_work()
        self._graphs()
        self._calls()
        self._syncs()
        self._overheads()
        self._ranges()
        self._missing()
        for table, (why, before) in self.tables.damage.items():
            self.rows.warn(
                "damaged-table", f"{table} breaks off after {before} rows: {why}", "all sums over events"
            )
        if not len(self.rows) and self.tables.damage:
            raise WellfedError(
                f"{self.path.name} is damaged: no event in it can be read", hint="export the report again"
            )
        return self._split()

    # -- tables ---------------------------------------------------------------------------------------

    def _read(
        self, name: str, columns: Iterable[str], need: Iterable[str] = ("start", "end")
    ) -> dict[str, I64]:
        """The integer columns of one table by name; empty when there is no row, or a needed column is missing.
        Absent columns come out as -1 and are warned of."""
        table = self.tables.find(name)
        if table is None:
            return {}
        found = self.tables.integers(table, list(columns), times=_TIMES)
        absent = [c for c in columns if c not in found]
        if absent:
            lost = [c for c in need if c in absent]
            self.rows.warn(
                "missing-columns",
                f"{table} has no {', '.join(absent)}" + ("; the table is left out" if lost else ""),
                "everything that this table says" if lost else "what these columns would tell",
                len(absent),
            )
            if lost:
                return {}
        found = self._timed(table, found)
        n = len(next(iter(found.values())))
        return {**{c: np.full(n, -1, np.int64) for c in absent}, **found} if n else {}

    def _timed(self, table: str, found: dict[str, I64]) -> dict[str, I64]:
        """The rows whose times are numbers; one without an end never ended."""
        if not {"start", "end"} <= set(found):
            return found
        start, end = found["start"], found["end"]
        bad = (start <= BAD_TIME) | (end == BAD_TIME)
        if bad.any():
            count = int(bad.sum())
            told = f"{counted(count, 'row')} of {table} without a readable time, dropped"
            self.rows.warn("no-time", told, "busy and idle time", count)
        found = {**found, "end": np.where(end == NO_TIME, np.maximum(start, BAD_TIME) - 1, end)}
        return {c: v[~bad] for c, v in found.items()}

    def _gpu_work(self) -> None:
        common = ("start", "end", "deviceId", "streamId", "correlationId", "globalPid")
        kernels = self._read(_ACTIVITY + "KERNEL", (*common, "demangledName", "shortName"))
        copies = self._read(_ACTIVITY + "MEMCPY", (*common, "bytes", "copyKind", "srcKind", "dstKind"))
        sets = self._read(_ACTIVITY + "MEMSET", (*common, "bytes", "memKind"))
        if kernels:
            pairs, which = distinct(kernels["demangledName"], kernels["shortName"])
            names = self._strings(i for pair in pairs for i in pair)
            # the short name is a kernel's bare name: right for a table, but blind to what a template is of
            text = [names.get(full) or names.get(short) or "unnamed kernel" for full, short in pairs]
            self._add_gpu(kernels, Cat.KERNEL, self.rows.names(text)[which])
        if copies:
            kinds, which = distinct(copies["copyKind"], copies["srcKind"], copies["dstKind"])
            text = [_copy_name(*kind) for kind in kinds]
            self._add_gpu(copies, Cat.MEMCPY, self.rows.names(text)[which], copies["bytes"])
        if sets:
            kinds, which = distinct(sets["memKind"])
            text = [f"Memset ({_memory(kind)})" for (kind,) in kinds]
            self._add_gpu(sets, Cat.MEMSET, self.rows.names(text)[which], sets["bytes"])

    def _add_gpu(self, found: dict[str, I64], cat: Cat, name: Any, size: Any = -1) -> None:
        """Rows of the GPU. CUPTI gives 0 for both times of what it could not time: those are dropped."""
        untimed = (found["start"] == 0) & (found["end"] == 0)
        if untimed.any():
            self.rows.warn(
                "no-time",
                f"{int(untimed.sum())} GPU events without a time, dropped",
                "busy and idle time",
                int(untimed.sum()),
            )
        owner = self._owners(found["globalPid"])
        device = self._device_of(owner, found["deviceId"])
        places, which = distinct(device, found["streamId"])
        thread = np.array([self.rows.thread(str(d), f"stream {s}") for d, s in places], np.int64)
        block = {
            "ts": found["start"],
            "end": found["end"],
            "name": name,
            "thread": thread[which],
            "corr": self._own(owner, found["correlationId"]),
            "stream": found["streamId"],
            "device": device,
            "size": np.broadcast_to(np.asarray(size, np.int64), len(owner)),
            "owner": owner,
        }
        self.rows.add(cat=cat, **{k: np.asarray(v)[~untimed] for k, v in block.items()})
        self.launched.update(c for c in np.unique(block["corr"]).tolist() if c >= 0)

    def _graphs(self) -> None:
        """Whole replays of graphs, where their nodes were not recorded one by one."""
        found = self._read(
            _ACTIVITY + "GRAPH_TRACE",
            ("start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphId"),
        )
        if not found:
            return
        corr = self._own(self._owners(found["globalPid"]), found["correlationId"])
        whole = ~np.isin(corr, list(self.launched))
        if not whole.any():
            return
        found = {k: v[whole] for k, v in found.items()}
        graphs, which = distinct(found["graphId"])
        text = [f"CUDA graph {g}" if g >= 0 else "CUDA graph" for (g,) in graphs]
        self._add_gpu(found, Cat.KERNEL, self.rows.names(text)[which])
        count = len(found["start"])
        self.rows.warn(
            "graph-as-one",
            f"{count} graph replays were recorded as one event each; nsys profile --cuda-graph-trace=node shows"
            " their kernels",
            "compute against communication, kernels, and idle time inside a graph",
            count,
        )

    def _calls(self) -> None:
        found = self._read(_ACTIVITY + "RUNTIME", ("start", "end", "globalTid", "correlationId", "nameId"))
        if not found:
            return
        ids, which = distinct(found["nameId"])
        strings = self._strings(i for (i,) in ids)
        text = [_VERSION.sub("", strings.get(i, "unnamed call")) for (i,) in ids]
        driver = np.array([t.startswith("cu") and not t.startswith("cuda") for t in text])
        self._add_host(
            found,
            np.where(driver, Cat.DRIVER, Cat.RUNTIME)[which],
            self.rows.names(text)[which],
            corr=found["correlationId"],
        )

    def _syncs(self) -> None:
        """Waits of the device's own record, with the call that recorded the event waited for."""
        found = self._read(
            _ACTIVITY + "SYNCHRONIZATION",
            ("start", "end", "correlationId", "globalPid", "syncType", "eventSyncId"),
        )
        if not found:
            return
        owner = self._owners(found["globalPid"])
        kinds, which = distinct(found["syncType"])
        self.rows.add(
            cat=Cat.SYNC,
            ts=found["start"],
            end=found["end"],
            name=self.rows.names(_SYNC.get(kind, "Sync") for (kind,) in kinds)[which],
            thread=self.rows.thread("sync", "sync"),
            corr=self._own(owner, found["correlationId"]),
            wait_corr=self._recorded(owner, found["eventSyncId"]),
            owner=owner,
        )

    def _recorded(self, owner: I64, sync_id: I64) -> I64:
        """The correlation of the event record that each wait is for; -1 where the file does not say.
        `eventSyncId` joins them, since an `eventId` is used again and again."""
        absent = np.full(len(owner), -1, np.int64)
        if self.tables.find(_ACTIVITY + "CUDA_EVENT") is None:
            return absent
        events = self._read(
            _ACTIVITY + "CUDA_EVENT", ("correlationId", "globalPid", "eventSyncId"), need=("eventSyncId",)
        )
        if not events:
            return absent
        whose = self._owners(events["globalPid"])
        key = self._own(whose, events["eventSyncId"])
        corr = self._own(whose, events["correlationId"])
        keys, first = np.unique(key, return_index=True)
        asked = self._own(owner, sync_id)
        at = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        return np.where((keys[at] == asked) & (asked >= 0), corr[first[at]], -1)

    def _overheads(self) -> None:
        """What recording cost the host; what CUDA itself costs (loading, compiling, a full command buffer) is
        the host's own doing, and kept as an annotation."""
        for table in (_ACTIVITY + "OVERHEAD", "PROFILER_OVERHEAD"):
            found = self._read(table, ("start", "end", "globalTid", "nameId", "overheadType"))
            if not found:
                continue
            kinds, which = distinct(found["overheadType"], found["nameId"])
            strings = self._strings(name for _, name in kinds)
            own = np.isin(found["overheadType"], _OVERHEAD_OF_CUDA) & (table != "PROFILER_OVERHEAD")
            text = [_OVERHEAD.get(k) or strings.get(i) or "Profiler overhead" for k, i in kinds]
            self._add_host(found, np.where(own, Cat.ANNOTATION, Cat.OVERHEAD), self.rows.names(text)[which])

    def _ranges(self) -> None:
        """NVTX ranges: their text stands in the row, or is a number into the names."""
        table = self.tables.find("NVTX_EVENTS")
        there = frozenset() if table is None else self.tables.columns(table)
        if table is None or not {"start", "end", "eventType"} <= there:
            return
        columns = [c for c in ("start", "end", "eventType", "globalTid", "textId") if c in there]
        for batch in self.tables.scan(table, columns, text="text" if "text" in there else None):
            by_column = dict(zip([*columns, "text"], zip(*batch, strict=True), strict=False))
            texts = np.array(by_column.pop("text", (None,) * len(batch)), object)
            found = {c: (as_times if c in _TIMES else as_integers)(v) for c, v in by_column.items()}
            kept = np.isin(found["eventType"], _RANGES)
            absent = np.full(int(kept.sum()), -1, np.int64)
            found = {"globalTid": absent, "textId": absent, **{c: v[kept] for c, v in found.items()}}
            found["row"] = np.arange(len(absent))
            found = self._timed(table, found)
            self._add_ranges(found, texts[kept][found.pop("row")].tolist())

    def _add_ranges(self, found: dict[str, I64], texts: list[Any]) -> None:
        by_id = [i for i, t in zip(found["textId"].tolist(), texts, strict=True) if not isinstance(t, str)]
        strings = self._strings(by_id)
        told = [
            t if isinstance(t, str) else strings.get(i, "")
            for t, i in zip(texts, found["textId"].tolist(), strict=True)
        ]
        self.unnamed += told.count("")
        named = [_range_name(t) for t in told if t]
        kept = np.array([t != "" for t in told], bool)
        found = {c: v[kept] for c, v in found.items()}
        cat = np.array([cat for cat, _ in named], np.int64)
        self._add_host(found, cat, self.rows.names(name for _, name in named))

    def _add_host(self, found: dict[str, I64], cat: Any, name: Any, corr: I64 | None = None) -> None:
        where = found["globalTid"]
        owner = self._owners(np.where(where >= 0, where & ~0xFFFFFF, -1))
        tids, which = distinct(where)
        names = [(str(t >> 24 & 0xFFFFFF), str(t & 0xFFFFFF)) if t >= 0 else ("?", "?") for (t,) in tids]
        thread = np.array([self.rows.thread(*name) for name in names], np.int64)
        self.rows.add(
            cat=cat,
            ts=found["start"],
            end=found["end"],
            name=name,
            thread=thread[which],
            corr=-1 if corr is None else self._own(owner, corr),
            owner=owner,
        )

    # -- who is who -----------------------------------------------------------------------------------

    def _owners(self, global_pid: I64) -> I64:
        """Number of the process of each row: its global id less the thread. Where the file does not say it is
        process 0."""
        known = self.processes
        found, which = distinct(global_pid & ~0xFFFFFF)
        numbers = [0 if p < 0 else known.setdefault(p, len(known)) for (p,) in found]
        return np.array(numbers, np.int64)[which]

    @staticmethod
    def _own(owner: I64, ids: I64) -> I64:
        """Ids that two processes cannot share. 0 is CUPTI's word for none."""
        return np.where((ids > 0) & (ids < 2**32), ids + (owner << 32), -1)

    def _devices(self) -> dict[tuple[int, int], int]:
        """The GPU of each process's CUDA device: what a process calls 0 may be any GPU of the machine."""
        table = self.tables.find("TARGET_INFO_CUDA_DEVICE")
        if table is None:
            return {}
        found = self.tables.integers(table, ["gpuId", "cudaId", "pid"])
        if len(found) < 3:
            return {}
        columns = (found["pid"].tolist(), found["cudaId"].tolist(), found["gpuId"].tolist())
        return {(pid, cuda): gpu for pid, cuda, gpu in zip(*columns, strict=True) if gpu >= 0}

    def _device_of(self, owner: I64, device: I64) -> I64:
        pid_of = {number: process >> 24 & 0xFFFFFF for process, number in self.processes.items()}
        pairs, which = distinct(owner, device)
        found = [self.devices.get((pid_of.get(o, -1), d), max(d, 0)) for o, d in pairs]
        return np.array(found, np.int64)[which]

    def _gpus(self) -> dict[int, str]:
        table = self.tables.find("TARGET_INFO_GPU")
        rows = [] if table is None else self.tables.pairs(table, "id", "name")
        return {number: name[:200] for number, name in rows if isinstance(number, int)}

    def _strings(self, ids: Iterable[int]) -> dict[Any, str]:
        table = self.tables.find("StringIds")
        wanted = sorted({i for i in ids if i >= 0})
        return {} if table is None or not wanted else self.tables.texts(table, wanted)

    # -- the end --------------------------------------------------------------------------------------

    def _missing(self) -> None:
        """What was not recorded, or recorded and lost, and what it weakens."""
        cat = self.rows.column("cat")
        calls = bool(np.isin(cat, (Cat.RUNTIME, Cat.DRIVER)).any())
        if not ((cat >= Cat.KERNEL) & (cat <= Cat.MEMSET)).any():
            self.rows.warn(
                "no-kernels-captured",
                "CUDA calls were recorded but not one kernel: a known failure of nsys, set"
                " CuptiUseRawGpuTimestamps=false in its config.ini and record again"
                if calls
                else "nothing of CUDA was recorded: nsys profile --trace=cuda,nvtx,osrt",
                "everything about the GPU",
            )
        elif not calls:
            self.rows.warn("no-runtime-calls", "no CUDA call was recorded", "every idle cause")
        if self.tables.find("NVTX_EVENTS") is None:
            self.rows.warn(
                "no-nvtx",
                "no NVTX range was recorded: mark each step with torch.cuda.nvtx.range('step N')",
                "steps, gains, and what the host did between calls",
            )
        if self.unnamed:
            self.rows.warn(
                "unnamed-ranges",
                f"{self.unnamed} NVTX ranges name a text that the file does not hold",
                "steps and host causes",
                self.unnamed,
            )
        if self.tables.find("StringIds") is None:
            self.rows.warn("no-names", "the export has no StringIds", "every name: classes, causes, steps")
        if self.tables.find("TARGET_INFO_GPU") is None:
            self.rows.warn(
                "no-gpu-names", "the export does not say which GPUs these are", "prices and ceilings"
            )
        self._diagnostics()

    def _diagnostics(self) -> None:
        """What nsys itself said went wrong: errors, and warnings about missing events."""
        table = self.tables.find("DIAGNOSTIC_EVENT")
        told: dict[str, int] = {}
        for severity, text in [] if table is None else self.tables.pairs(table, "severity", "text"):
            if severity == 3 or (severity == 2 and _TOLD.search(text)):
                told[text] = told.get(text, 0) + 1
        for text, count in list(told.items())[:5]:
            self.rows.warn("profiler-diagnostic", text, "whatever nsys lost", count)

    def _split(self) -> list[Timeline]:
        """A timeline for each process with devices of its own. Processes that share a device stay together, so
        that its idle time is nobody's."""
        column = {k: self.rows.column(k) for k in ("cat", "owner", "device")}
        gpu = (column["cat"] >= Cat.KERNEL) & (column["cat"] <= Cat.MEMSET)
        pairs, _ = distinct(column["owner"][gpu], column["device"][gpu])
        start = self.tables.find("TARGET_INFO_SESSION_START_TIME")
        told = {} if start is None else self.tables.integers(start, ["utcEpochNs"])
        epoch = max([0, *told.get("utcEpochNs", np.zeros(0, np.int64))[:1].tolist()])
        common: dict[str, Any] = {
            "source": self.path.name,
            "kind": "nsys",
            "epoch_ns": epoch,
            "gpus": self._gpus(),
            "options": self.options,
        }
        groups = _groups(pairs)
        warnings = self._sharing(pairs)
        if len(groups) < 2:
            return [self.rows.timeline(**common, rank=rank_in(self.path.name), warnings=warnings)]
        warnings += (
            TraceWarning(
                code="ranks-by-order",
                count=len(groups),
                sample=f"{len(groups)} processes in one file; ranks are numbered by device, then by process",
                weakens="which rank is which",
            ),
        )
        return [
            self.rows.timeline(**common, owners=group, rank=k, warnings=warnings)
            for k, group in enumerate(groups)
        ]

    def _sharing(self, pairs: list[tuple[int, ...]]) -> tuple[TraceWarning, ...]:
        """Several processes on one device, or on devices that only seem one."""
        on: dict[int, int] = {}
        for _, device in pairs:
            on[device] = on.get(device, 0) + 1
        shared = {device: n for device, n in on.items() if n > 1}
        if not shared:
            return ()
        text = ", ".join(f"{n} processes on device {d}" for d, n in sorted(shared.items()))
        if not self.devices:
            text += "; the file does not say whether it is the same GPU"
        return (
            TraceWarning(
                code="shared-device",
                count=len(shared),
                sample=text[:300],
                weakens="idle causes, steps, gains",
            ),
        )


def _groups(pairs: list[tuple[int, ...]]) -> list[set[int]]:
    """Processes joined by the devices they share, in the order of their first device."""
    groups: list[tuple[set[int], set[int]]] = []
    for owner, device in sorted(pairs, key=lambda p: (p[1], p[0])):
        touching = [g for g in groups if owner in g[0] or device in g[1]]
        joined = ({owner}.union(*(g[0] for g in touching)), {device}.union(*(g[1] for g in touching)))
        groups = [g for g in groups if g not in touching] + [joined]
    return [owners for owners, devices in sorted(groups, key=lambda g: (min(g[1]), min(g[0])))]


def _copy_name(kind: int, source: int, target: int) -> str:
    """As PyTorch's traces call it: `Memcpy HtoD (Pageable -> Device)`."""
    way = f"Memcpy {_COPY.get(kind, 'of an array' if 3 <= kind <= 7 else 'of unknown kind')}"
    return way if source < 0 or target < 0 else f"{way} ({_memory(source)} -> {_memory(target)})"


def _memory(kind: int) -> str:
    return _MEMORY[kind] if 0 <= kind < len(_MEMORY) else "Unknown"


def _range_name(text: str) -> tuple[Cat, str]:
    """Category and name of an NVTX range. `emit_nvtx` writes operators as ranges, each with a number of its own."""
    bare = _EMIT_NVTX.sub("", text)
    if bare != text and _OPERATOR.search(bare):
        return Cat.OP, bare
    return Cat.ANNOTATION, bare
