"""How often the classifier of collectives is right on planted calls, wrong, or says that it can't tell.

    python benchmarks/comm_limit.py [CALLS]

Random start-up costs and bandwidths, 8 to 60 calls of one to five sizes, log-normal noise of up to 25 %, 2 % of the calls
five times as long. Prints a row a planted limit.
"""

import sys
from collections import Counter

import numpy as np

from wellfed.model import Curve
from wellfed.predict.collective import expected_seconds, half_bandwidth_bytes
from wellfed.predict.comm_limit import limit_of

KINDS = ("latency", "bandwidth", "path", "straggler", "contention")


def planted(kind: str, rng: np.random.Generator) -> str:
    """What is said of one set of calls."""
    alpha, beta = 10 ** rng.uniform(-5.5, -3), 10 ** rng.uniform(9, 12)
    grid = np.array([2.0**k for k in range(10, 32, 2)])
    curve = Curve(op="all_reduce", ranks=8, sizes=tuple(grid), seconds=tuple(alpha + grid / beta))
    half = half_bandwidth_bytes(curve)
    n = int(rng.integers(8, 61))
    low, high = {"latency": (-2.5, -0.8), "bandwidth": (0.8, 2.5), "path": (0.3, 2.5)}.get(kind, (-1.0, 2.0))
    sizes = rng.choice(half * 10 ** rng.uniform(low, high, int(rng.integers(1, 6))), n)
    beside = rng.random(n) < 0.4
    due = expected_seconds(curve, sizes)
    seconds = due * rng.lognormal(0, rng.uniform(0.02, 0.25), n) * np.where(rng.random(n) < 0.02, 5.0, 1.0)
    if kind == "path":
        seconds *= rng.uniform(2.0, 4.0)
    elif kind == "straggler":
        seconds += rng.uniform(1.0, 5.0) * due.mean() * rng.lognormal(0, rng.choice([0.05, 1.0]), n)
    elif kind == "contention":
        seconds *= np.where(beside, rng.uniform(1.6, 3.0), 1.0)
    found = limit_of(sizes, seconds, curve, overlapped=beside, waits=True)
    return found.kind if found is not None else "unclear"


def main() -> None:
    calls = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    rng = np.random.default_rng(0)
    print(f"{'planted':11} {'right':>7} {'unclear':>8} {'wrong':>7}  as what")
    for kind in KINDS:
        said = Counter(planted(kind, rng) for _ in range(calls))
        right, unclear = said.pop(kind, 0) / calls, said.pop("unclear", 0) / calls
        wrong = ", ".join(f"{name} {count / calls:.1%}" for name, count in said.most_common())
        print(f"{kind:11} {right:7.1%} {unclear:8.1%} {1 - right - unclear:7.1%}  {wrong}")


if __name__ == "__main__":
    main()
