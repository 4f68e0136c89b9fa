"""Traces made by a small simulation whose truth is known, and the pieces to write odd ones by hand."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]


def event(cat: str, name: str, ts: Any, dur: Any, *, pid: Any = 100, tid: Any = 100, **args: Any) -> Event:
    """A complete event, times in us."""
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(
    name: str, ts: Any, dur: Any, *, corr: int, stream: int = 7, device: int = 0, cat: str = "kernel"
) -> Event:
    return event(cat, name, ts, dur, pid=device, tid=stream, device=device, stream=stream, correlation=corr)


def text_of(events: list[Event], **extra: Any) -> str:
    """The file as Kineto lays it out: `"ph"` first, one event a block, metadata before the array."""
    head = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200"}],
        "record_shapes": 1,
        **extra,
    }
    lines = ",\n".join(f'  "{k}": {json.dumps(v)}' for k, v in head.items())
    body = ",\n".join(json.dumps(e) for e in events)
    return "{\n" + lines + ',\n  "traceEvents": [\n' + body + '\n  ],\n  "traceName": "x.json"\n}\n'


def write(path: Path, events: list[Event] | str, **extra: Any) -> Path:
    text = events if isinstance(events, str) else text_of(events, **extra)
    data = text.encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
    return path


class Simulated(NamedTuple):
    events: list[Event]
    period_us: float
    """Time of a step in the steady state, by the simulation."""


def simulate(
    *,
    steps: int = 4,
    kernels: int = 20,
    kernel_us: float = 100.0,
    dispatch_us: float = 10.0,
    call_us: float = 4.0,
    latency_us: float = 6.0,
    gap_us: float = 1.0,
    data_us: float = 0.0,
    sync: bool = False,
    pageable_us: float = 0.0,
    pinned_us: float = 0.0,
    fetch_us: float = 0.0,
    copy_bytes: int = 100_000_000,
    orphans: int = 0,
    pace_us: float = 0.0,
    silence_us: float = 0.0,
) -> Simulated:
    """A loop of one host thread and one stream. The host loads (`data_us`), or takes a batch from workers that
    finish one every `pace_us`, is silent for a while (`silence_us`), maybe copies from pageable memory
    (and is held) or from pinned memory (`pinned_us`, not held), dispatches each kernel (`dispatch_us` before a call of `call_us`), maybe copies to pinned memory
    (`fetch_us`, not held), and maybe waits for the last. A kernel starts `latency_us` after its call began, or `gap_us` after its predecessor."""
    events: list[Event] = []
    host, device, corr = 1000.0, 1000.0, 0
    ends: list[float] = []
    for i in range(orphans):
        events.append(kernel("left_over", device + 1, 50.0, corr=900_000 + i))
        device += 51.0

    def launch(name: str, duration: float, api: str, cat: str, held: bool, **more: Any) -> None:
        nonlocal host, device, corr
        corr += 1
        host += dispatch_us
        begin = max(host + latency_us, device + gap_us)
        end = begin + duration
        back = end + 2.0 if held else host + call_us
        events.append(event("cuda_runtime", api, host, back - host, correlation=corr))
        done = kernel(name, begin, duration, corr=corr, cat=cat)
        done["args"].update(more)
        events.append(done)
        host, device = back, end

    made = host
    for step in range(steps):
        begin = host
        if pace_us:
            name = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"
            made += pace_us
            taken = max(host + 100.0, made)
            events.append(event("user_annotation", name, host, taken - host))
            host = taken
        host += silence_us
        if data_us:
            name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
            events.append(event("user_annotation", name, host, data_us))
            host += data_us
        if pageable_us:
            launch(
                "Memcpy HtoD (Pageable -> Device)",
                pageable_us,
                "cudaMemcpyAsync",
                "gpu_memcpy",
                True,
                bytes=copy_bytes,
            )
        if pinned_us:
            launch(
                "Memcpy HtoD (Pinned -> Device)",
                pinned_us,
                "cudaMemcpyAsync",
                "gpu_memcpy",
                False,
                bytes=copy_bytes,
            )
        for _ in range(kernels):
            launch("gemm", kernel_us, "cudaLaunchKernel", "kernel", False)
        if fetch_us:
            launch(
                "Memcpy DtoH (Device -> Pinned)",
                fetch_us,
                "cudaMemcpyAsync",
                "gpu_memcpy",
                False,
                bytes=copy_bytes,
            )
        if sync:
            host += dispatch_us
            back = max(device + 2.0, host + 1.0)
            events.append(event("cuda_runtime", "cudaStreamSynchronize", host, back - host, correlation=-1))
            host = back
        events.append(event("user_annotation", f"ProfilerStep#{step}", begin, host - begin))
        ends.append(max(host, device))
    return Simulated(events, ends[-1] - ends[-2])


Make = Callable[..., Simulated]
