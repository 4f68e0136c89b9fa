"""Verdicts of flight records: which collective hangs, and which rank keeps the others waiting."""

from collections.abc import Sequence

from wellfed.analyze.hang import Hang
from wellfed.analyze.hang_calls import RankAt, Stuck, is_done
from wellfed.analyze.stacks import outside_torch, short
from wellfed.check.manual import Manual, rule
from wellfed.model import Evidence, Gain, Verdict
from wellfed.model.base import replace
from wellfed.model.counting import counted
from wellfed.model.flight import Collective

MAX_SHOWN = 8
"""Stuck groups that get a verdict of their own; the roots come first."""


def judge_hang(hang: Hang) -> tuple[Verdict, ...]:
    """The verdicts of all dumps together: one for each stuck group, or that none is."""
    return tuple(
        replace(verdict, code=page.code, name=page.name, layer="trace", sources=page.sources)
        if verdict.verdict == "finding"
        else replace(verdict, code=page.code, name=page.name, layer="trace")
        for function in (judge_absent, judge_mismatch)
        for page in (_page(function),)
        for verdict in function(hang)
    )


def _page(function: object) -> Manual:
    page: Manual = function.manual  # type: ignore[attr-defined]
    return page


@rule("T510", "collective-hang", layer="trace", severity="error", trust="measured")
def judge_absent(hang: Hang) -> list[Verdict]:
    """Ranks wait in a collective that others did not enter, or that does not end.

    What it looks at. Flight-recorder dumps of all ranks (`nccl_trace_rank_N`, `comm_lib_trace_rank_N`; pickle or
    JSON): the calls of each group lined up by their number, with what is queued, started and completed.

    Why it costs. A collective ends on no rank before all have entered it: one rank that is late, dead or in another
    call holds every GPU of the job until the timeout.

    How it is judged. The first number of a group that a rank has queued and that is not done. Ranks that did not
    queue it keep the others waiting; if they wait in another group themselves, that group is the cause, and groups
    that wait for each other in a circle are reported together. All in and none done: the cause is below PyTorch. A
    rank without a dump, or whose ring no longer holds the call, is named as unknown.

    Remedy. Look at the line where the late rank stands (its last call and stack); make the order of collectives the
    same on all ranks; if all are in, test the links and the GPU's stream.

    When to ignore. Dumps taken of a job that was running: they show the calls in flight.

    Sources. measured: dumps of PyTorch 2.13's Gloo groups with a planted late rank (tests/traces/flight); PyTorch,
    torch/csrc/distributed/c10d/FlightRecorder.hpp and ProcessGroupNCCL environment variables
    """
    if not hang.ranks:
        named = ", ".join(hang.unnamed[:3])
        return [
            _unjudged(
                f"the rank of no dump is known: name the files nccl_trace_rank_0, nccl_trace_rank_1... ({named})"
            )
        ]
    found = [_hanging(hang, one) for one in hang.stuck if not one.unlike][:MAX_SHOWN]
    if not hang.entries:
        return [_unjudged("the dumps hold no calls: set TORCH_FR_BUFFER_SIZE=2000 before the job starts")]
    if not found and not hang.stuck:
        said = f"{ranks_text(hang.ranks)}: every recorded collective is done"
        return [_unjudged(f"{said}, and {_no_dump(hang.missing)}")] if hang.missing else [_pass(said)]
    return found


@rule("T520", "collective-mismatch", layer="trace", severity="error", trust="measured")
def judge_mismatch(hang: Hang) -> list[Verdict]:
    """Ranks of one group called different collectives, or sizes that do not fit.

    What it looks at. The calls that ranks of a group made under the same number: operation, data type, elements.

    Why it costs. NCCL pairs calls by their order alone. Unlike ones hang, or mix up data without a word.

    How it is judged. At the number where the group stands: operation first, then data type, then the size that must
    agree (what comes out of a gather, what goes into a reduction; all-to-all may be uneven). With two kinds of one
    size no side is called the wrong one.

    Remedy. Look at both lines; a branch that depends on the rank or on data (an empty batch, an early stop, a
    condition on the loss) is the usual cause. `TORCH_DISTRIBUTED_DEBUG=DETAIL` checks every call while it runs.

    Sources. measured: dumps of PyTorch 2.13's Gloo groups with a planted other call (tests/traces/flight); PyTorch
    documentation of torch.distributed, debugging
    """
    return [_unlike(hang, one) for one in hang.stuck if one.unlike][:MAX_SHOWN] or (
        [_pass("the open calls of each group are alike")] if hang.entries else []
    )


def _hanging(hang: Hang, one: Stuck) -> Verdict:
    waiting, absent = one.ranks("waiting"), one.absent
    what, severity = _what(one), "error"
    if one.circle:
        message = (
            f"{ranks_text(waiting)} wait in {what} for {ranks_text(absent or one.not_started)}, "
            f"which wait for them in another group: {len(one.circle)} groups wait in a circle"
        )
    elif one.waits_for:
        message, severity = (
            f"{ranks_text(waiting)} wait in {what} for {ranks_text(absent or one.not_started)}, held in another group",
            "info",
        )
    elif absent:
        message = f"{ranks_text(absent)} did not enter {what}: {ranks_text(waiting)} wait for {_them(absent)}"
    elif one.no_dump:
        message = f"{ranks_text(waiting)} wait in {what}, and {_no_dump(one.no_dump)}: dead, or the one that is late"
    elif one.not_started:
        message = (
            f"{ranks_text(one.not_started)} queued {what}, but the GPU did not reach it: earlier work holds the stream, "
            f"and {ranks_text([r for r in waiting if r not in one.not_started])} wait"
        )
    elif one.members is None and not one.is_p2p:
        message, severity = (
            f"{ranks_text(waiting)} wait in {what}; who else belongs to the group is not in the dumps",
            "warning",
        )
    elif unknown := one.ranks("unknown"):
        message = (
            f"{ranks_text(waiting)} wait in {what}; where {ranks_text(unknown)} stand fell out of the ring"
        )
        severity = "warning"
    else:
        message, severity = (
            f"all of {ranks_text(waiting)} entered {what} and it is not done: the links, or a GPU, not the order of calls",
            "warning",
        )
    if absent and one.no_dump:
        message += f"; {_no_dump(one.no_dump)}"
    return _finding(hang, one, message, severity, absent or one.not_started or one.no_dump)


def _unlike(hang: Hang, one: Stuck) -> Verdict:
    kinds = "; ".join(f"{ranks_text(ranks)}: {text[:80]}" for ranks, text in one.kinds[:4])
    message = f"call {one.seq} of {_group(one)} differs in {one.differs} ({kinds})"
    return _finding(hang, one, message, "error", one.unlike)


def _finding(hang: Hang, one: Stuck, message: str, severity: str, late: Sequence[int]) -> Verdict:
    first = [at for at in one.at if at.rank in late][:4] + [at for at in one.at if at.state == "waiting"][:2]
    shown = list({at.rank: at for at in first}.values())
    timed_out = sum(1 for at in one.at if at.call is not None and at.call.retired and at.state == "waiting")
    lines = tuple(_line(hang, at) for at in shown)
    if timed_out:
        lines += (Evidence(source="all dumps", text=f"timed out on {counted(timed_out, 'rank')}"),)
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity=severity,  # type: ignore[arg-type]
        message=message,
        where={"group": one.group, "seq": one.seq, **({"rank": late[0]} if len(late) == 1 else {})},
        evidence=lines,
        gain=Gain(basis="none", source="a job that hangs has no step time"),
        remedy="look at the lines where they part, below"
        if one.unlike
        else "look at the late rank's last line below"
        if late
        else "test the links: nccl-tests, then the GPU",
        risk="safe",
    )


def _line(hang: Hang, at: RankAt) -> Evidence:
    call = at.call or at.last
    said = {"absent": "did not call it; its last call", "unknown": "its last recorded call"}.get(
        at.state, "called"
    )
    if call is None:
        text = f"rank {at.rank} recorded no call at all"
    else:
        text = f"rank {at.rank} {said}: {_call(call)}"
    return Evidence(source=hang.sources.get(at.rank, ""), at=f"rank {at.rank}", text=text)


def _call(call: Collective) -> str:
    sizes = f" {list(map(list, call.inputs))}"[:60] if call.inputs else ""
    state = "done" if is_done([call]) else "timed out" if call.retired else call.state
    line = outside_torch(call.frames)
    return (
        f"{call.op} {call.p2p_seq if call.is_p2p else call.seq} of group {call.group}{sizes}, {state}"
        f"{f', {short(line)}' if line else ', no stack recorded'}"
    )


def _what(one: Stuck) -> str:
    return f"{one.op} of {_group(one)}" if one.is_p2p else f"{one.op} {one.seq} of {_group(one)}"


def _group(one: Stuck) -> str:
    return f"group {one.group}{f' ({one.desc})' if one.desc and one.desc != 'undefined' else ''}"


def _them(ranks: Sequence[int]) -> str:
    return "it" if len(ranks) == 1 else "them"


def _no_dump(ranks: Sequence[int]) -> str:
    return f"{ranks_text(ranks)} left no dump"


def _unjudged(message: str) -> Verdict:
    return Verdict(code="", name="", verdict="not-judged", reason="not-recorded", message=message)


def _pass(message: str) -> Verdict:
    return Verdict(code="", name="", verdict="pass", message=message)


def ranks_text(ranks: Sequence[int], *, limit: int = 6) -> str:
    """`rank 3`, `ranks 0-2, 5 and 40 more`: runs are folded."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs[:limit]]
    more = sum(b - a + 1 for a, b in runs[limit:])
    return f"rank{'s' if len(ranks) != 1 else ''} {', '.join(shown)}{f' and {more} more' if more else ''}"
