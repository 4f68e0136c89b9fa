"""Loops with one known ill each, and healthy ones: makers in a module per theme, one table per set."""

from loops.base import Loop
from loops.table_copies import COPIES
from loops.table_first import FIRST
from loops.table_fresh import FRESH
from loops.table_last import LAST
from loops.table_later import LATER
from loops.table_wastes import WASTES

LOOPS: dict[str, Loop] = {**FIRST, **FRESH, **LATER, **LAST, **WASTES, **COPIES}
