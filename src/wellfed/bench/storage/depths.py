"""Random reads by queue depth: where more in flight stops bringing more reads and brings only longer waits.

A loader with w workers that each read one sample at a time is a queue of depth w: the curve says what more workers, or more reads at once in
each, can bring on this storage.
"""

import time
from collections.abc import Iterator

from wellfed.bench.find import Effort
from wellfed.bench.setup import Setup
from wellfed.bench.storage.files import file_size, random_file
from wellfed.bench.storage.reads import RANDOM, measure_pattern, needs
from wellfed.model import Ceiling

__all__ = ["EFFORT", "IDS", "WEIGHT", "measure", "needs"]

DEPTHS = (1, 4, 16, 64, 256)
IDS = tuple(f"storage-depth.{depth}" for depth in DEPTHS)
WEIGHT = 3.0
EFFORT: Effort = "full"


def measure(setup: Setup, budget_s: float) -> Iterator[Ceiling]:
    """The same file for all depths. Raises OSError as `reads.measure` does."""
    started = time.monotonic()
    with random_file(setup.folder, file_size(setup), started + budget_s * 0.3) as target:
        share_s = max(budget_s - (time.monotonic() - started), budget_s * 0.5) / len(DEPTHS)
        for depth, id in zip(DEPTHS, IDS, strict=True):
            pattern = RANDOM._replace(id=id, title=f"storage, random read, {depth} in flight", depth=depth)
            yield measure_pattern(setup, target, pattern, share_s)
