"""Several cures at once, replayed: savings overlap and uncover each other, in ways that only the joint replay shows."""

from collections.abc import Mapping, Sequence
from typing import Any

from wellfed.analyze import replay
from wellfed.analyze.copies import EXPOSED, Copies, beside
from wellfed.analyze.cures import Cured, edits_of, launching, limit
from wellfed.analyze.recording import POINTS
from wellfed.analyze.replay import Loop, Replayed
from wellfed.analyze.wastes import Waste

WORTH = 0.05
"""Cures that save a step less than this are not asked for."""
LAST = "launch-bound"
"""A graph of the launches takes in whatever the other cures leave of them."""
_PAGEABLE = "pageable-copy"


def worth_asking(cures: Mapping[str, Cured], free: Replayed) -> tuple[str, ...]:
    """The cures that save much, each by what is its own, in the order in which they are applied."""
    found = []
    for name, cure in cures.items():
        saved = cure.before[1] - cure.after[1]
        if name == LAST:
            saved = min(saved, launching(free))
        if "/" not in name and saved >= WORTH * cure.before[1]:
            found.append(name)
    return tuple(sorted(found, key=lambda name: name == LAST))


def cured_together(
    names: Sequence[str],
    loops: Sequence[Loop],
    free: Sequence[Replayed],
    *,
    link_gbs: float,
    copies: Copies,
    wastes: Mapping[str, Waste],
    cures: Mapping[str, Cured],
) -> Cured:
    """All of `names` cured at once, at each of the three points; pageable copies a batch ahead at the high one."""
    edits = edits_of(link_gbs)
    made = list(loops)
    for name in names:
        for at, point in enumerate(POINTS):
            if name in wastes:
                made[at] = replay.edited(made[at], wastes[name].edits[at])
            elif name == EXPOSED:
                made[at] = beside(made[at], copies.events, point)
            else:
                ahead = "/overlapped" if name == _PAGEABLE and point == "high" else ""
                made[at] = edits[name + ahead](made[at], point)
    after = [replay.run(loop) for loop in made]
    return Cured(
        name=" + ".join(names),
        before=(free[0].step_ns, free[1].step_ns, free[2].step_ns),
        after=(after[0].step_ns, after[1].step_ns, after[2].step_ns),
        next=limit(after[1], made[1], names[-1]),
        floor=min(*(cures[name].floor for name in names), *(one.busy_ns for one in after)),
        idle_only=all(cures[name].idle_only for name in names),
        sampling=max(cures[name].sampling for name in names),
    )


def told(names: Sequence[str], joint: Cured) -> dict[str, Any]:
    """As the JSON of a rank keeps it (`replay.together`), ns."""
    return {
        "cures": list(names),
        "before_ns": [round(t) for t in joint.before],
        "after_ns": [round(t) for t in joint.after],
        "floor_ns": round(joint.floor),
        "longest_ns": round(joint.longest),
        "sampling_ns": round(joint.sampling),
    }


def joint_of(kept: Mapping[str, Any]) -> Cured:
    """What `told` made, the other way round."""
    before, after = kept["before_ns"], kept["after_ns"]
    return Cured(
        name=" + ".join(kept["cures"]),
        before=(before[0], before[1], before[2]),
        after=(after[0], after[1], after[2]),
        next="",
        floor=kept["floor_ns"],
        longest=kept["longest_ns"],
        sampling=kept["sampling_ns"],
    )
