"""The classifier of collectives on real ones: gloo among 2 to 4 processes, with a planted limit.

    python benchmarks/gloo_limits.py [TIMES]

A curve is measured first, then calls of one kind: tiny ones (latency), large ones (bandwidth), all sizes with rank 0 always
20 ms late (straggler). Prints what is said from all ranks together, and from rank 1 alone, which does not know why it waits.
"""

import sys
import time
from collections import Counter

import numpy as np

from wellfed.bench.comm.collectives import curve_of_sweep, over_ranks, run_plan
from wellfed.bench.comm.rank import GroupPlan, Plan, Times
from wellfed.model import Curve
from wellfed.predict.comm_limit import limit_of, limit_of_ranks

SWEEP = tuple(1 << k for k in range(10, 25, 2))
PLANTED = {
    "latency": ((1 << 10, 1 << 12), 0.0),
    "bandwidth": ((1 << 23, 1 << 24), 0.0),
    "straggler": ((1 << 10, 1 << 16, 1 << 20, 1 << 22, 1 << 24), 0.02),
}


def plan(n: int, sizes: tuple[int, ...], late_s: float, budget_s: float) -> Plan:
    group = GroupPlan(n=n, ops=("all_reduce",), sizes=sizes)
    return Plan(
        backend="gloo", device="cpu", world=n, groups=(group,), budget_s=budget_s, passes=2, late_s=late_s, started=time.time()
    )  # fmt: skip


def calls(ranks: list[list[Times]]) -> tuple[np.ndarray, np.ndarray]:
    """Sizes of all calls, and seconds with a row a rank."""
    kept = [[one for one in told if one.op == "all_reduce" and one.times] for told in ranks]
    sizes = [float(one.size) for one in kept[0] for _ in one.times]
    return np.array(sizes), np.array([[t for one in told for t in one.times] for told in kept])


def measured(n: int) -> Curve:
    asked = plan(n, SWEEP, 0.0, 4.0)
    return curve_of_sweep(
        over_ranks(run_plan(asked).ranks, "all_reduce", n), "all_reduce", asked, n, "measured here"
    )


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'ranks':>5} {'planted':10} from all ranks; from rank 1 alone")
    for n in (2, 4):
        curve = measured(n)
        for kind, (sizes, late_s) in PLANTED.items():
            together, alone = Counter[str](), Counter[str]()
            for _ in range(times):
                size, seconds = calls(run_plan(plan(n, sizes, late_s, 2.0)).ranks)
                found = limit_of_ranks(size, seconds, curve)
                own = limit_of(size, seconds[1], curve, waits=True)
                assert found is not None and own is not None
                together[found.limit.kind + (f" (rank {found.last})" if found.last is not None else "")] += 1
                alone[own.kind] += 1
            print(f"{n:5} {kind:10} {dict(together)}; {dict(alone)}")


if __name__ == "__main__":
    main()
