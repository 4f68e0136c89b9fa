"""Wastes that are not idle: kernels that a better choice of precision, kernel or compiler would make shorter or spare.

Each module finds one kind and says, at three points (`low`, `expected`, `high` gain), what its cure makes of the
recorded events (`replay.Edit`). What that is worth the replay says: a step that waits for its host gains nothing from
faster kernels.
"""

from wellfed.analyze.wastes.attention import unfused_attention
from wellfed.analyze.wastes.elementwise import unfused_elementwise
from wellfed.analyze.wastes.optimizer import unfused_optimizer
from wellfed.analyze.wastes.precision import slow_precision
from wellfed.analyze.wastes.seen import Seen, Waste, look

__all__ = ["Seen", "Waste", "find_wastes", "look"]

FINDERS = (slow_precision, unfused_optimizer, unfused_attention, unfused_elementwise)


def find_wastes(seen: Seen) -> dict[str, Waste]:
    """The wastes that are there, by name."""
    found = [waste for finder in FINDERS for waste in finder(seen)]
    return {waste.name: waste for waste in found}
