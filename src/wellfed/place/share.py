"""Dividing cores among claims: evenly, whole L3 groups first, fast cores before slow ones, never one core twice."""

from collections.abc import Sequence
from typing import TypeVar

from wellfed.place.usable import Core

T = TypeVar("T")


def divide(cores: Sequence[Core], claims: int) -> list[list[Core]] | None:
    """`claims` shares that differ by at most a core (on hybrids: by a core of each kind); the first ones get what is left
    over. None when there are fewer cores than claims."""
    if claims < 1 or len(cores) < claims:
        return None
    fast = sorted(core for core in cores if not core.efficient)
    slow = sorted(core for core in cores if core.efficient)
    if fast and slow:
        shares = [fast[place::claims] for place in range(claims)]
        # Who came off with a fast core less begins with the slow ones.
        order = sorted(range(claims), key=lambda place: (len(shares[place]), place))
        for at, core in enumerate(slow):
            shares[order[at % claims]].append(core)
        return [sorted(share) for share in shares]
    groups = l3_groups(cores)
    whole = len(groups) // claims
    if len(groups) < claims or len(cores) / claims < max(map(len, groups)):
        return _slices(sorted(cores), claims)
    taken = [[core for group in groups[p * whole : (p + 1) * whole] for core in group] for p in range(claims)]
    if len({len(share) for share in taken}) > 1:  # groups of unequal size, as a cpuset leaves them
        return _slices(sorted(cores), claims)
    rest = [core for group in groups[claims * whole :] for core in group]
    for share, more in zip(taken, _slices(rest, claims), strict=True):
        share += more
    return taken


def divide_l3(cores: Sequence[Core], claims: int) -> list[list[Core]] | None:
    """Whole L3 groups only, the first claims get what is left over; None when there are fewer groups than claims, or
    no group is known."""
    groups = l3_groups(cores)
    if len(groups) < claims or any(core.l3 < 0 for core in cores):
        return None
    return [[core for group in share for core in group] for share in _slices(groups, claims)]


def l3_groups(cores: Sequence[Core]) -> list[list[Core]]:
    """Cores by node and L3 group: a group that lies in two nodes counts as two."""
    groups: dict[tuple[int, int], list[Core]] = {}
    for core in sorted(cores):
        groups.setdefault((core.node, core.l3), []).append(core)
    return [groups[key] for key in sorted(groups)]


def _slices(items: Sequence[T], claims: int) -> list[list[T]]:
    each, extra = divmod(len(items), claims)
    out, at = [], 0
    for place in range(claims):
        size = each + (place < extra)
        out.append(list(items[at : at + size]))
        at += size
    return out
