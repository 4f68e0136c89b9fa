"""What recording costs the recorded: a model of the profiler's own time on the host.

A profiled step is slower than a free one wherever the host is what the device waits for. Two effects were
separated on loops timed free and recorded (H200, Xeon host, torch 2.11, driver 580, 2 December 2026;
docs/validation/trace.md): a cost per recorded event, and a slowdown of the host while recording, seen in the
launch call itself, which takes 4.6 us under the profiler on an undisturbed host and up to 9 us on a disturbed
one while the free loop ran undisturbed. Neither is known exactly: use the three points as an interval. The likely
point was set on 22 recordings of loops that the host bounds (sets `set`, `kind`, `fresh`, `held` and `later` of that
page), where its mean error is nil and the mean absolute one 13 %; the set `last` was not among them.
"""

from typing import NamedTuple

from wellfed.model.timeline import Cat

UNDISTURBED_LAUNCH_NS = 4_600.0
"""Median recorded cudaLaunchKernel on an undisturbed Xeon host (Sapphire Rapids): 4.4 to 4.8 us."""
PER_EVENT_NS = {"low": 150.0, "expected": 800.0, "high": 1_600.0}
"""Cost of one recorded operator or runtime call with record_shapes."""
WITHOUT_SHAPES = 1.0 / 3.0
"""Share of it without: four host-bound loops, each recorded both ways, ask for 0.2 to 0.4."""
PER_FRAME_NS = {"low": 200.0, "expected": 400.0, "high": 800.0}
"""Cost of one recorded Python frame (with_stack)."""
OTHER_RECORDERS = {"low": 0.0, "expected": 0.5, "high": 1.0}
"""Share of torch.profiler's cost of an event that another recorder (nsys, rocprofv3, JAX) is taken to have."""
MAX_SLOWDOWN = 2.2


class HostCost(NamedTuple):
    """`per_event_ns` by event category; `slowdown` divides dispatch time."""

    per_event_ns: dict[int, float]
    slowdown: float


def host_cost(
    point: str,
    *,
    launch_call_ns: float | None,
    record_shapes: bool,
    current_host: bool,
    calibrated: bool = True,
) -> HostCost:
    """The cost at `low`, `expected` or `high`: low takes least off the recorded time. `launch_call_ns` is the
    median launch call of the trace, None when it has none. `current_host` says that the launch call of an
    undisturbed current server is the yardstick (GPUs of compute capability 9 and later); an older host may
    be slow by itself, so less is taken off. A recorder that is not `calibrated` (any but torch.profiler) costs
    anything from nothing to as much as that one."""
    event = PER_EVENT_NS[point] * (1.0 if record_shapes else WITHOUT_SHAPES)
    if not calibrated:
        event *= OTHER_RECORDERS[point]
    ratio = max((launch_call_ns or UNDISTURBED_LAUNCH_NS) / UNDISTURBED_LAUNCH_NS, 1.0)
    power = (
        {"low": 0.3, "expected": 0.8, "high": 1.2}
        if current_host and calibrated
        else {"low": 0.0, "expected": 0.35, "high": 0.8}
    )
    return HostCost(
        per_event_ns={
            Cat.OP: event,
            Cat.RUNTIME: event,
            Cat.DRIVER: event,
            Cat.ANNOTATION: event,
            Cat.PYTHON: PER_FRAME_NS[point],
        },
        slowdown=min(ratio ** power[point], MAX_SLOWDOWN),
    )


def host_cost_for(amount: float, most: HostCost) -> HostCost:
    """A share `amount` (0: none, 1: all) of the highest cost, for fitting a known unprofiled step. The top of
    the range goes half again beyond `most`, so that a known step below the modelled range is reached too."""
    scale = 1.5 * amount
    return HostCost(
        per_event_ns={k: v * scale for k, v in most.per_event_ns.items()},
        slowdown=max(1.0 + (most.slowdown * 1.2 - 1.0) * scale, 1.0),
    )
