"""What a report says of memory and of hangs, whatever it looks like: lines and rows for the renderers."""

from typing import NamedTuple

from wellfed.model import Case
from wellfed.model.counting import counted
from wellfed.model.flight import StuckCall
from wellfed.model.held import Holder, MemoryHeld, MemoryMoment
from wellfed.report import words


class Block(NamedTuple):
    """One device's memory: sentences, and who held it at `moment`: (size, share, text) with what is not listed last."""

    title: str
    lines: tuple[str, ...]
    moment: str
    holders: tuple[tuple[str, str, str], ...]


def memory_blocks(case: Case) -> list[Block]:
    """Each device's, those with an out-of-memory error first, then by their peak."""

    def first(one: MemoryHeld) -> tuple[bool, int]:
        return not one.oom_count, -(one.peak.allocated_bytes if one.peak else one.reserved_bytes or 0)

    return [_block(one) for one in sorted(case.memory, key=first)]


def _block(one: MemoryHeld) -> Block:
    where = ", ".join(f"{n} {v}" for n, v in (("rank", one.rank), ("device", one.device)) if v is not None)
    kind = "snapshot" if one.kind == "snapshot" else "allocator's events"
    lines = []
    if one.kind == "snapshot" and one.reserved_bytes is not None:
        parts = [
            (one.allocated_bytes, "allocated"), (one.pending_bytes, "freed but used by a stream"),
            (one.spare_bytes, "free in whole segments"), (one.broken_bytes, "free in pieces"),
        ]  # fmt: skip
        shown = ", ".join(f"{words.size(n)} {text}" for n, text in parts if n)
        lines.append(
            f"reserved at the end: {words.size(one.reserved_bytes)}" + (f" ({shown})" if shown else "")
        )
    if one.peak is not None:
        lines.append(f"peak: {_moment(one.peak, one.kind)}")
    elif one.refused:
        lines.append(f"the past is not told: {one.refused}")
    lines += [f"does not add up: {fault}" for fault in one.faults[:3]]
    oom = next((o for o in reversed(one.ooms) if o.moment is not None), None)
    moment, at = (oom.moment, "when the request failed") if oom is not None else (one.peak, "at the peak")
    if moment is None:
        moment, at = one.now, "when it was dumped"
    return Block(
        title=f"{words.clean(one.source)}, {kind}" + (f", {where}" if where else ""),
        lines=tuple(lines),
        moment=at,
        holders=_rows(moment) if moment is not None else (),
    )


def _moment(moment: MemoryMoment, kind: str) -> str:
    what = "asked for" if kind == "snapshot" else "allocated"
    text = f"{words.size(moment.allocated_bytes)} {what}"
    if moment.reserved_bytes is not None:
        text += f" of {words.size(moment.reserved_bytes)} reserved"
    return text + (f" at t={moment.at_ms:,.1f} ms" if moment.at_ms is not None else "")


def _rows(moment: MemoryMoment) -> tuple[tuple[str, str, str], ...]:
    whole = max(moment.allocated_bytes, 1)
    rows = [(words.size(h.bytes), words.percent(h.bytes / whole), _holder(h)) for h in moment.holders]
    if moment.rest_bytes > 0:
        rows.append((words.size(moment.rest_bytes), words.percent(moment.rest_bytes / whole), "all others"))
    return tuple(rows)


def _holder(h: Holder) -> str:
    if h.before:
        return "there before the recording began"
    phase = f", {h.phase}" if h.phase != "other" else ""
    return f"{words.clean(h.site or 'no line of code recorded')} ({counted(h.count, 'allocation')}{phase})"


def hang_lines(case: Case) -> list[str]:
    """What the flight records of all ranks cover, and what they lack."""
    hang = case.hang
    if hang is None:
        return []
    said = f"{counted(len(hang.ranks), 'rank')} left {counted(hang.calls, 'recorded call')} in {counted(hang.groups, 'group')}"
    lines = [said]
    if hang.missing:
        lines.append(f"no dump of rank {words.id_ranges(hang.missing)}")
    if hang.unnamed:
        lines.append(
            f"{counted(len(hang.unnamed), 'file')} whose name tells no rank: {words.clean(hang.unnamed[0])}"
        )
    if hang.doubled:
        lines.append(
            f"several dumps of rank {words.id_ranges(hang.doubled)}: the one that got furthest counts"
        )
    return lines


STUCK_HEADER = ("call", "group", "waiting", "did not enter", "differ", "no dump")


def stuck_rows(case: Case) -> list[tuple[str, ...]]:
    """The calls that hang, where the hang begins first."""
    return [_stuck(one) for one in (case.hang.stuck if case.hang is not None else ())]


def _stuck(one: StuckCall) -> tuple[str, ...]:
    def ids(ranks: tuple[int, ...]) -> str:
        return words.shorten(words.id_ranges(ranks), 40) if ranks else ""

    name = one.op if one.is_p2p else f"{one.op} {one.seq}"
    group = f"{one.group} {one.desc}" if one.desc and one.desc != "undefined" else one.group
    late = ids(one.absent) or (f"queued only: {ids(one.not_started)}" if one.not_started else "")
    return (words.clean(name), words.clean(group), ids(one.waiting), late, ids(one.unlike), ids(one.no_dump))
