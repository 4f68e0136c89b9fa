"""Sends without their receive, and the other way round."""

from wellfed.analyze.hang_calls import COALESCED, Kinds, RankAt, Stuck, elements, is_done
from wellfed.model.flight import Collective, FlightDump


def stuck_pairs(dumps: dict[int, FlightDump], members: dict[str, tuple[int, ...]]) -> list[Stuck]:
    """Sends without their receive and the other way round. Calls between two ranks of a group meet in order, so
    the k-th open send from a to b meets the k-th open receive there."""
    open_calls: dict[tuple[str, str, int, int], dict[str, list[tuple[int, Collective]]]] = {}
    for rank, dump in dumps.items():
        done = _coalesced_states(dump)
        for index, entry in enumerate(dump.entries):
            ends = _ends(entry, members.get(entry.group))
            if ends is None or done.get(index, is_done([entry])):
                continue
            side = entry.op.partition(" ")[0]
            pair = open_calls.setdefault((entry.group, entry.desc, *ends), {"send": [], "recv": []})
            if rank == (ends[0] if side == "send" else ends[1]):
                pair[side].append((rank, entry))
    found = []
    for (group, desc, source, target), pair in sorted(open_calls.items()):
        sends, receives = pair["send"], pair["recv"]
        if not sends and not receives:
            continue
        both = min(len(sends), len(receives))
        sizes = [
            k
            for k in range(both)
            if sum(map(elements, sends[k][1].inputs)) != sum(map(elements, receives[k][1].outputs))
        ]
        if len(sends) == len(receives) and not sizes:
            lone, absent = sends[0][1], None
        else:
            lone = (
                (sends if len(sends) > len(receives) else receives)[0][1] if not sizes else sends[sizes[0]][1]
            )
            absent = None if sizes else (target if len(sends) > len(receives) else source)
        at = []
        for rank, calls in ((source, sends), (target, receives)):
            if rank in dumps:
                entries = dumps[rank].entries
                state = "absent" if rank == absent else "waiting"
                at.append(
                    RankAt(
                        rank=rank,
                        state=state,
                        call=calls[0][1] if calls else None,
                        last=entries[-1] if entries else None,
                    )
                )
        found.append(
            Stuck(
                group=group,
                desc=desc,
                seq=lone.p2p_seq,
                op=f"{'send' if lone.op.startswith('send') else 'recv'} from rank {source} to rank {target}",
                is_p2p=True,
                members=members.get(group),
                at=tuple(at),
                unlike=(source, target) if sizes else (),
                differs="size" if sizes else "",
                kinds=_pair_kinds(sends[sizes[0]], receives[sizes[0]]) if sizes else (),
                no_dump=tuple(r for r in (source, target) if r not in dumps),
            )
        )
    return found


def _pair_kinds(send: tuple[int, Collective], receive: tuple[int, Collective]) -> Kinds:
    return (
        ((send[0],), f"sends {sum(map(elements, send[1].inputs))} elements"),
        ((receive[0],), f"receives {sum(map(elements, receive[1].outputs))} elements"),
    )


def _coalesced_states(dump: FlightDump) -> dict[int, bool]:
    """For each send and receive inside a batch: whether the batch is done. It is recorded after them, in the same
    group, with the same numbers."""
    states: dict[int, bool] = {}
    seen: dict[tuple[str, int, int], bool] = {}
    for at in range(len(dump.entries) - 1, -1, -1):
        entry = dump.entries[at]
        key = (entry.group, entry.seq, entry.p2p_seq)
        if entry.op.endswith(COALESCED):
            seen[key] = is_done([entry])
        elif entry.is_p2p and key in seen:
            states[at] = seen[key]
    return states


def _ends(entry: Collective, members: tuple[int, ...] | None) -> tuple[int, int] | None:
    """Source and target of a send or receive as ranks of the job, when its name tells. Names hold ranks of the
    group; where its members are not known they are taken as they stand."""
    kind, _, pair = entry.op.partition(" ")
    arrow = {"send": "->", "recv": "<-"}.get(kind)
    if arrow is None:
        return None
    left, found, right = pair.partition(arrow)
    if not found or not left.isdecimal() or not right.isdecimal():
        return None
    ends = (int(left), int(right)) if kind == "send" else (int(right), int(left))
    if members is None:
        return ends
    return (members[ends[0]], members[ends[1]]) if max(ends) < len(members) else None
