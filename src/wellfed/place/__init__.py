"""Placing processes: a machine and a request in, a place for each rank out. Pure."""

from wellfed.place.plan import plan_placement

__all__ = ["plan_placement"]
