"""Recordings of loops of operators, with or without their arguments: what was run, on what, and for how long is known."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from trace_builder import Event, event, kernel, write

from wellfed import api
from wellfed.model import Case, Verdict

H200 = {"fp32": 67e12, "tf32": 494.7e12, "bf16": 989e12, "memory": 4.8e12}
"""Dense peaks of the datasheet, FLOP/s and bytes/s."""
F32, BF16 = "float", "c10::BFloat16"


class Op(NamedTuple):
    """An operator that launches one kernel of `us`. `inside` are the ranges that it lies in, outermost first."""

    name: str
    kernel: str
    us: float
    dims: Sequence[Any] = ()
    types: Sequence[str] = ()
    concrete: Sequence[str] = ()
    inside: Sequence[str] = ()
    extra: Sequence[tuple[str, float]] = ()
    """More kernels of the same call: name and length in us."""
    strides: Sequence[Any] = ()


def mm(
    m: int, k: int, n: int, us: float, *, kernel_name: str = "cutlass_80_simt_sgemm_128x256", of: str = F32
) -> Op:
    return Op("aten::mm", kernel_name, us, [[m, k], [k, n]], [of, of], ["", ""])


def pointwise(
    name: str, size: Sequence[int], us: float, *, of: str = F32, tensors: int = 1, inside: Sequence[str] = ()
) -> Op:
    label = (
        f"void at::native::vectorized_elementwise_kernel<4, at::native::{name.split('::')[1]}_functor<{of}>>"
    )
    return Op(name, label, us, [list(size)] * tensors, [of] * tensors, [""] * tensors, inside)


def events_of(
    ops: Sequence[Op], *, steps: int = 3, shapes: bool = True, host_us: float = 20.0
) -> list[Event]:
    """The loop of one thread and one stream; each launch takes `host_us` of dispatch and 5 us of call."""
    out: list[Event] = []
    host, device, corr = 1000.0, 1000.0, 0
    for step in range(steps):
        begin = host
        open_ranges: dict[str, float] = {}
        for op in ops:
            closing = [label for label in open_ranges if label not in op.inside]
            out += [_range(label, open_ranges.pop(label), host) for label in closing]
            for label in op.inside:
                open_ranges.setdefault(label, host + 0.1)
            start = host + 1.0
            host += host_us
            for label, us in ((op.kernel, op.us), *op.extra):
                corr += 1
                out.append(event("cuda_runtime", "cudaLaunchKernel", host, 5.0, correlation=corr))
                at = max(host + 6.0, device + 1.0)
                out.append(kernel(label, at, us, corr=corr))
                device = at + us
                host += 6.0
            args: dict[str, Any] = {}
            if shapes and op.dims:
                args = {"Input Dims": op.dims, "Input type": op.types, "Concrete Inputs": op.concrete}
                if op.strides:
                    args["Input Strides"] = op.strides
            out.append(event("cpu_op", op.name, start, host - start + 0.5, **args))
            host += 1.0
        out += [_range(label, since, host) for label, since in open_ranges.items()]
        host += 1.0
        out.append(event("user_annotation", f"ProfilerStep#{step}", begin, host - begin))
    return out


def _range(label: str, since: float, until: float) -> Event:
    kind = "cpu_op" if label.startswith("autograd::") else "user_annotation"
    return event(kind, label, since, until - since)


def study(
    folder: Path, ops: Sequence[Op], *, shapes: bool = True, host_us: float = 20.0, gpu: str = "NVIDIA H200"
) -> Case:
    path = folder / f"{'shapes' if shapes else 'plain'}.json"
    events = events_of(ops, shapes=shapes, host_us=host_us)
    write(path, events, deviceProperties=[{"id": 0, "name": gpu}], record_shapes=int(shapes))
    return api.trace(path)


def verdict(case: Case, name: str) -> Verdict:
    return next(v for v in case.verdicts if v.name == name)


def gain(case: Case, name: str) -> tuple[float, float, float]:
    """Expected, low and high speed-up of a finding."""
    found = verdict(case, name)
    assert found.verdict == "finding", (found.verdict, found.message)
    assert found.gain is not None
    assert found.gain.speedup and found.gain.low and found.gain.high
    return found.gain.speedup, found.gain.low, found.gain.high
