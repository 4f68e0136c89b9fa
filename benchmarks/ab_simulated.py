"""How often `wellfed ab` is right on invented noise: python benchmarks/ab_simulated.py [--times 1000]

Each comparison may take 120 runs, A and B together, and stops as the verb does. Noise is multiplicative; the seed is fixed; the kinds
were chosen before the rule was."""

import argparse
import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from wellfed.predict.two_commands import decide, looks

PAIRS = 60
Rng = np.random.Generator


def lognormal(rng: Rng, n: int, sd: float = 0.05, wild: float = 0.02) -> np.ndarray:
    """Logs of costs: normal, and some runs 1.2 to 3 times as long."""
    x = rng.normal(0, sd, n)
    return x + np.where(rng.random(n) < wild, np.log(rng.uniform(1.2, 3, n)), 0)


def autocorrelated(rng: Rng, n: int) -> np.ndarray:
    """AR(1), 0.8 from run to run, 5 % spread."""
    x = rng.normal(0, 0.05, n)
    for i in range(1, n):
        x[i] = 0.8 * x[i - 1] + 0.6 * x[i]
    return x


KINDS: dict[str, Callable[[Rng, int], np.ndarray]] = {
    "log-normal 5 %, 2 % wild": lognormal,
    "log-normal 1 %, 2 % wild": lambda rng, n: lognormal(rng, n, 0.01),
    "log-normal 10 %, 2 % wild": lambda rng, n: lognormal(rng, n, 0.10),
    "drift of 20 % over the whole, 5 %": lambda rng, n: lognormal(rng, n) + np.linspace(0, 0.2, n),
    "heavy tails (t, 2 degrees), 3 %": lambda rng, n: 0.03 * rng.standard_t(2, n),
    "two speeds, 15 % apart, 2 %": lambda rng, n: rng.normal(0, 0.02, n) + 0.15 * (rng.random(n) < 0.3),
    "autocorrelated (0.8), 5 %": autocorrelated,
}


def compare(rng: Rng, kind: Callable[[Rng, int], np.ndarray], effect: float) -> tuple[str, int]:
    """Verdict and runs taken of one comparison in which B takes 1 + `effect` of A's time."""
    costs = kind(rng, 2 * PAIRS)
    a, b = [], []
    for pair in range(PAIRS):
        first, second = costs[2 * pair], costs[2 * pair + 1]
        one, other = (first, second) if pair % 2 == 0 else (second, first)
        a.append(math.exp(one))
        b.append(math.exp(other) * (1 + effect))
    for n in looks(PAIRS):
        found = decide(a[:n], b[:n], pairs=PAIRS)
        if found.verdict != "undecided":
            break
    return found.verdict, 2 * found.n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=1000)
    args = parser.parse_args()
    print(
        "| noise | true effect | no difference | worse | better | undecided | runs (mean) |\n|---|---|---|---|---|---|---|"
    )
    for name, kind in KINDS.items():
        for effect in (0.0, 0.05, 0.10):
            rng = np.random.default_rng(20261203)
            found = [compare(rng, kind, effect) for _ in range(args.times)]
            counts = Counter(verdict for verdict, _ in found)
            shares = [
                f"{100 * counts[v] / args.times:.1f} %"
                for v in ("no difference", "worse", "better", "undecided")
            ]
            runs = sum(n for _, n in found) / args.times
            print(f"| {name} | {effect:.0%} | {' | '.join(shares)} | {runs:.0f} |", flush=True)


if __name__ == "__main__":
    main()
