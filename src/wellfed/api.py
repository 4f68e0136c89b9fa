"""wellfed as a library: the verbs as functions. Each returns a `Case` and prints nothing.

    import wellfed
    case = wellfed.trace("trace.json.gz")
    case.verdicts[0].message
    wellfed.save(case, "my.case")

A `Case` holds what was looked at (`machine`, `ceilings`, `ranks`), what was judged (`verdicts`, by worth) and
one sentence on top (`headline`). Every function raises `WellfedError` for what a user can put right: a file
that is not there or not readable, an unknown intent. What could not be *seen* raises nothing: it is a verdict
`not-judged`, or an entry of `machine.gaps`, with the reason.

The rooms are imported when they are used, so that `check` does not pay for the trace reader.
"""

import gzip
import os
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from wellfed._version import __version__
from wellfed.model import Case, Ceiling, Machine, Verdict, WellfedError, decode_case, encode_case
from wellfed.model.base import replace
from wellfed.model.case import MAX_CASE_BYTES
from wellfed.model.comparison import Comparison
from wellfed.report import notebook
from wellfed.report.story import rank_name

if TYPE_CHECKING:
    from typing import NoReturn

    from wellfed.analyze import Each, Study
    from wellfed.analyze.collectives import CollectiveSeries
    from wellfed.analyze.comm_knobs import Knob
    from wellfed.apply.journal import Journal
    from wellfed.apply.policy import Options
    from wellfed.ingest.workers import Executor
    from wellfed.live.run.command import Live
    from wellfed.model import Change, Curve, RankTrace, TraceWarning
    from wellfed.model.ab import AbResult
    from wellfed.model.change import Applied, Done, Plan, Skipped, TuneLog, TuneStatus
    from wellfed.model.held import MemoryHeld
    from wellfed.model.placement import Placement
    from wellfed.model.ranks import Stragglers
    from wellfed.model.timeline import Timeline
    from wellfed.report.exports import Export

__all__ = [
    "WellfedError",
    "ab",
    "check",
    "compare",
    "doctor",
    "inspect",
    "load",
    "measure",
    "measured_before",
    "pin_plan",
    "read_ceilings",
    "read_run",
    "run",
    "save",
    "trace",
    "tune_apply",
    "tune_confirm",
    "tune_export",
    "tune_log",
    "tune_plan",
    "tune_status",
    "tune_undo",
]

notebook.install()  # Case, Budget, Verdict... show themselves in a notebook

Progress = Callable[[str], None]
"""Told what is being done, in words; called often."""

MAX_PRICE = 1e6
MIN_STEP_MS, MAX_STEP_MS = 1e-6, 1e9
"""A nanosecond, and eleven days."""
MAX_BUDGET_S = 86_400.0
_MANY_FILES, _REPLAY_OF_MANY = 8, 12_000
"""Of more files than this the steps in the middle are replayed, so many device events of each: ranks of one job do the
same work in every step, and a replay takes seconds for 100,000 events."""
_WORTH_PROCESSES_BYTES = 32 << 20
"""Starting processes takes as long as reading about this much."""
_LIKELY = {"price": "2.5", "step-ms": "46.4", "budget": "15", "confirm-within": "120s"}

QUICK_S, FULL_S = 15.0, 600.0
"""Seconds that `measure` takes when not told otherwise, and with everything."""

PathLike = str | os.PathLike[str]


def inspect(host: PathLike | None = None) -> Case:
    """The facts of this machine, or of the one in `host` (a recording, or a file that tells of it), unjudged."""
    from wellfed.host import look, open_host

    machine = look(open_host(None if host is None else os.fspath(host)))
    return Case(made_by=_made_by("inspect"), made_at=_now(), machine=machine)


def check(
    host: PathLike | None = None,
    *,
    intent: str = "training",
    ignore: Mapping[str, str] | None = None,
    evidence: Sequence[PathLike] = (),
) -> Case:
    """Judge the machine for `intent` (`training`, `latency`...: `wellfed.check.INTENTS`).

    `ignore` maps codes to the reason why their findings are set aside; those go to `case.ignored`. `evidence` are files
    that say more of the same machine: DCGM's diagnostics, a kernel log, a log of the fabric manager, `nvidia-smi -q`."""
    from wellfed.check import judge_machine

    looked = inspect(host)
    assert looked.machine is not None
    if evidence:
        from wellfed.host import with_evidence

        looked = replace(looked, machine=with_evidence(looked.machine, evidence))
    assert looked.machine is not None
    return _judged("check", looked, judge_machine(looked.machine, intent=intent), ignore)


def measure(
    *,
    budget_s: float | None = None,
    only: Sequence[str] = (),
    full: bool = False,
    folder: PathLike | None = None,
    shapes: Sequence[tuple[int, int, int]] = (),
    peers: Sequence[str] = (),
    tier: str | None = None,
    progress: Progress | None = None,
) -> Case:
    """Measure the ceilings of this machine: memory, processors, storage, network, GPUs, collectives. Each has n, spread, a
    plausible band and a verdict of its own.

    `budget_s` are the seconds to spend in all (QUICK_S, or FULL_S with `full`). `only` are the ids, patterns (`h2d.*`), modules or
    groups to measure; `folder` is where storage is measured, `shapes` are GEMMs of your model as (M, N, K), `peers` are
    other hosts that serve (`HOST:PORT:TOKEN`, see `measure --serve`): without `only` the network to them is all that is measured.
    `tier` (`driver`) does without torch. What could not be measured is in `machine.gaps`, with the reason. The result is added to this user's
    history (see `measured_before`). Raises WellfedError for an unknown id."""
    from wellfed.bench import Options, history

    budget_s = (FULL_S if full else QUICK_S) if budget_s is None else budget_s
    _check_number("budget", budget_s, 0, MAX_BUDGET_S, "s")
    looked = inspect()
    assert looked.machine is not None
    machine, ceilings = _measured(
        looked.machine,
        budget_s,
        progress,
        only=only or (("network.pair",) if peers else ()),
        effort="full" if full else "quick",
        folder=None if folder is None else Path(folder),
        options=Options(shapes=tuple(shapes), peers=tuple(peers), tier=tier),
    )
    history.remember(ceilings)
    return replace(looked, made_by=_made_by("measure"), machine=machine, ceilings=ceilings)


def measured_before(case: Case | None = None) -> tuple[Case, dict[str, str]]:
    """The newest ceiling of each id that this user has measured on machines of this make, and when each was (ISO 8601, by id);
    with a `case` on machines of its make, and only what is older than it."""
    from wellfed.bench import history
    from wellfed.bench.setup import hardware_key

    looked = case or inspect()
    assert looked.machine is not None
    kept = history.recall(hardware_key(looked.machine))
    newest = history.latest([one for one in kept if case is None or one.at < case.made_at])
    found = replace(
        looked, made_by=_made_by("measure"), ceilings=tuple(one.ceiling for one in newest.values())
    )
    return found, {id: one.at for id, one in newest.items()}


def read_ceilings(path: PathLike) -> list[Ceiling]:
    """The ceilings in a result file of another tool: nvbandwidth, nccl-tests, fio, perftest, Intel MLC, SuperBench,
    TransferBench; our ids and units, `method` names the tool. Raises WellfedError when it is of none of them."""
    from wellfed.ingest.ceilings import read_ceilings as read

    return read(path)


class RunEnded(NamedTuple):
    """What came of a command that was run: the case, its exit code as a shell has it, and where its rings are."""

    case: Case
    code: int
    folder: Path


def run(
    words: Sequence[str],
    *,
    folder: PathLike | None = None,
    trace_step: int | None = None,
    trace_slow: bool = False,
    trace_max_mb: float = 64.0,
    step_pattern: str | None = None,
    step_fn: str | None = None,
    pin: bool = False,
    tell: "Callable[[Live], None] | None" = None,
    keep_stdout: bool = False,
    say: Callable[[str], None] | None = None,
) -> RunEnded:
    """Run a command and watch it. `folder` keeps its rings, samples and traces (a temporary one when None, which the caller takes
    away). `trace_step` or `trace_slow` records a trace, whose verdicts are in the case too. `tell` is called once a second,
    `say` with what the user should know."""
    from wellfed.live.run.command import Watching, run_command

    where = None if folder is None else Path(folder)
    watching = Watching(
        folder=where, trace_step=trace_step, trace_slow=trace_slow, trace_max_mb=trace_max_mb, step_fn=step_fn,
        step_pattern=step_pattern, pin=pin, keep_stdout=keep_stdout,
    )  # fmt: skip
    ended = run_command(words, watching, tell, say)
    return RunEnded(read_run(ended.folder), ended.code, ended.folder)


def read_run(folder: PathLike) -> Case:
    """What a run has left in its folder: rings, samples, the manifest, whole or not, and traces, whose verdicts stand beside
    those of the run. Raises WellfedError when there is nothing of a run in it."""
    from wellfed.check.run import headline, judge_run
    from wellfed.live.run.read import read_run as read

    where = Path(folder)
    report = read(where)
    verdicts = judge_run(report)
    traces = sorted(where.glob("trace-*.json.gz"))
    traced = trace(traces) if traces else Case()
    told = {verdict.code for verdict in traced.verdicts if verdict.verdict != "not-judged"}
    kept = [v for v in verdicts if v.code not in told or v.verdict == "finding"]
    case = Case(made_at=_now(), run=report, ranks=traced.ranks, warnings=traced.warnings)
    return replace(_judged("run", case, [*kept, *traced.verdicts], None), headline=headline(report, verdicts))


def ab(
    a: str,
    b: str,
    *,
    metric: str = "wall",
    higher_is_better: bool = False,
    runs: int = 120,
    budget_s: float | None = None,
    least: float = 0.05,
    warmup: int = 1,
    timeout_s: float | None = None,
    prepare: str | None = None,
    shell: bool = False,
    anyway: bool = False,
    progress: Progress | None = None,
) -> "AbResult":
    """Run two commands in turn and say whether B differs from A: `metric` is `wall`, `step`, `regex:PATTERN` or `json:PATH` of the
    output; `runs` of both together at most; `least` the difference that matters, as a fraction.

    Raises WellfedError when a command fails or does not show the metric, and on a machine that is too noisy to compare
    on, unless `anyway`."""
    from wellfed.live.ab import Order, check_metric, compare_commands, disturbed

    check_metric(metric)
    reason = None if anyway else disturbed()
    if reason is not None:
        raise WellfedError(
            f"this machine is too noisy to compare on: {reason}", hint="wellfed ab --anyway 'CMD A' 'CMD B'"
        )
    order = Order(
        metric=metric, higher_is_better=higher_is_better, pairs=max(runs // 2, 1), budget_s=budget_s, warmup=warmup,
        timeout_s=timeout_s, prepare=prepare, shell=shell, least=least,
    )  # fmt: skip
    return compare_commands(a, b, order, progress or _silent)


def trace(
    paths: PathLike | Sequence[PathLike],
    *,
    ranks: Sequence[int] | None = None,
    steps: tuple[int, int] | None = None,
    window: tuple[int, int | None] | None = None,
    step_ms: float | None = None,
    price: float | None = None,
    network: str | None = None,
    ceilings: PathLike | Sequence[Ceiling] = (),
    each: "Each | None" = None,
    processes: int | None = None,
    executor: "Executor | None" = None,
) -> Case:
    """Read traces, one file for each rank (or folders of them), and say what kept the GPUs waiting. A Parquet file of
    a pipeline's operation records is read too, and so are PyTorch's memory snapshots and flight-recorder dumps, alone or
    beside traces.

    `ranks`, `steps` (first and last, counted from 0) and `window` (start and end in ns since each file's first
    event; end None: to the last) narrow the look; steps count within the window. `each` is told each timeline
    with the studies of its devices when they are done, one rank at a time: for an export, say. `step_ms` is the time of a step
    without the profiler, in milliseconds, when you know it; `price` is USD per GPU and hour (the catalogue's
    dated price when None), `network` the link between nodes as the catalogue names it (`ib-ndr`). `ceilings` are
    measured ones, or a file of them (a case, a result of another tool): beside the curves of collectives among them the calls
    of the traces are judged. Large sets are read
    in `processes` (as many as there are cores when None), one file a process at a time, or by `executor`: whatever has
    `submit` as those of the standard library. A damaged file gives what is left in it, and a warning; one unreadable file among
    others is a finding; WellfedError is raised when no file can be read at all."""
    from wellfed.check.headline import headline
    from wellfed.ingest import find_traces
    from wellfed.ingest.records import is_records

    _check_numbers(price=price, step_ms=step_ms)
    _check_network(network)
    curves = _curves(ceilings)
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    dumped, dump_verdicts, rest = _dumps(given, ranks)
    files = find_traces(rest)
    records = [path for path in files if is_records(path)]
    read = Case()
    verdicts: tuple[Verdict, ...] = ()
    if len(records) < len(files):
        traces = [path for path in files if path not in records]
        events = _REPLAY_OF_MANY if len(traces) > _MANY_FILES else None
        asked = _Asked(
            None if ranks is None else tuple(ranks), steps, window, step_ms, price, len(traces) > 1, events
        )
        looks, failed = _looks(traces, asked, each, processes, executor)
        if steps is not None and looks and not any(rank.steps for look in looks for rank in look.ranks):
            raise WellfedError(
                f"no step {steps[0]} in {traces[0].name if len(traces) == 1 else 'any of the traces'}",
                hint="leave --steps out to see how many there are; they are counted from 0",
            )
        read, verdicts = _gathered(looks, failed, asked, network, curves)
    if records:
        pipeline, more = _pipeline(records, price)
        read, verdicts = replace(read, pipeline=pipeline), (*verdicts, *more)
    read = replace(
        read,
        memory=(*dumped.memory, *read.memory),
        hang=dumped.hang,
        warnings=(*read.warnings, *dumped.warnings),
    )
    verdicts = (*verdicts, *dump_verdicts)
    judged = _judged("trace", replace(read, made_at=_now()), verdicts, None)
    return replace(judged, headline=headline(judged))


def _dumps(
    given: Sequence[PathLike], ranks: Sequence[int] | None
) -> tuple[Case, tuple[Verdict, ...], Sequence[PathLike]]:
    """Memory snapshots and flight records among the paths: a case of them, its verdicts, and the paths that are left.
    Raises WellfedError when there is nothing else and none of them can be read."""
    from wellfed.analyze.hang import study_hang
    from wellfed.analyze.memory import study_memory
    from wellfed.analyze.memory_told import held_of
    from wellfed.check.trace import unreadable
    from wellfed.check.trace.hang import judge_hang
    from wellfed.check.trace.memory import judge_memory
    from wellfed.ingest.dumps import sort_out

    failed: list[tuple[Path, WellfedError]] = []
    found = sort_out(given, unreadable=lambda path, error: failed.append((path, error)))
    if failed and not (found.memory or found.flights or found.rest):
        raise failed[-1][1]
    kept = [one for one in found.memory if ranks is None or one.rank is None or one.rank in ranks]
    memory = tuple(held_of(study) for one in kept for study in study_memory(one))
    verdicts = [*judge_memory(memory), *(unreadable(path.name, error.message) for path, error in failed)]
    hang = study_hang(found.flights) if found.flights else None
    if hang is not None:
        verdicts += judge_hang(hang)
    warnings = (
        *(w for one in kept for w in one.warnings),
        *(w for one in found.flights for w in one.warnings),
    )
    case = Case(memory=memory, hang=hang.told() if hang is not None else None, warnings=warnings)
    return case, tuple(verdicts), found.rest


class _Asked(NamedTuple):
    """What of a file is wanted."""

    ranks: tuple[int, ...] | None
    steps: tuple[int, int] | None
    window: tuple[int, int | None] | None
    step_ms: float | None
    price: float | None
    many: bool
    replay_events: int | None


class _Look(NamedTuple):
    """What stays of one timeline once it is studied. `told` is the rank that the file itself tells."""

    source: str
    told: int | None
    ranks: "tuple[RankTrace, ...]"
    warnings: "tuple[TraceWarning, ...]"
    verdicts: tuple[Verdict, ...]
    series: "tuple[CollectiveSeries, ...]"
    memory: "tuple[MemoryHeld, ...]" = ()
    mark: "tuple[int, ...]" = ()
    """The same for two copies of one recording only."""


def _look(path: Path, asked: _Asked, each: "Each | None" = None) -> list[_Look] | WellfedError:
    """One file read, studied and judged; the error if nothing in it can be read."""
    from wellfed.analyze import analyze
    from wellfed.analyze.bounds import bounded
    from wellfed.analyze.memory_told import held_in
    from wellfed.analyze.together import mark_of, of_steps, rank_told, series_of_timeline, with_cpu_calls
    from wellfed.analyze.window import cut
    from wellfed.check.trace import judge_study, with_knobs
    from wellfed.ingest import read_file

    try:
        timelines = read_file(path)
    except WellfedError as error:
        return error
    looks: list[_Look] = []
    while timelines:
        timeline = timelines.pop(0)
        told = rank_told(timeline)
        if asked.ranks is not None and timeline.rank not in asked.ranks and not (asked.many and told is None):
            continue
        if asked.window is not None:
            timeline = cut(timeline, *asked.window)
        timeline = bounded(timeline)
        found = analyze(
            [timeline], step_ms=asked.step_ms, steps=asked.steps, each=each, replay_events=asked.replay_events
        )
        series = series_of_timeline(timeline)
        if asked.steps is not None:
            series = tuple(of_steps(one, found.ranks) for one in series)
        whole = with_cpu_calls(series, timeline)
        if asked.steps is not None:
            whole = tuple(of_steps(one, found.ranks) for one in whole)
        verdicts = tuple(
            with_knobs(verdict, _knobs(timeline, study.rank, series), _step_ns(study.rank))
            if verdict.code == "T210" and verdict.verdict == "finding"
            else verdict
            for study in found.studies
            for verdict in judge_study(study, price=asked.price)
        )
        if asked.steps is None:
            verdicts += tuple(_recording(timeline, study) for study in found.studies)
        rank = told if asked.many else timeline.rank
        looks.append(
            _Look(
                timeline.source,
                rank,
                found.ranks,
                found.warnings,
                verdicts,
                whole,
                held_in(timeline),
                mark_of(timeline),
            )
        )
        del timeline
    return looks


def _recording(timeline: "Timeline", study: "Study") -> Verdict:
    """What the recording lacks."""
    from wellfed.analyze.capture import lacks_of
    from wellfed.check.trace.capture import judge_recording
    from wellfed.check.trace.verdicts import placed

    verdict = judge_recording(lacks_of(timeline, study), source=timeline.source, kind=timeline.kind)
    return placed(verdict, judge_recording.manual, study, None)  # type: ignore[attr-defined]


def _step_ns(rank: "RankTrace") -> int:
    return rank.step_budget.span_ns if rank.step_budget is not None else 0


def _knobs(
    timeline: "Timeline", rank: "RankTrace", series: "Sequence[CollectiveSeries]"
) -> "tuple[Knob, ...]":
    """The settings of DDP and FSDP that would save something on this device."""
    from wellfed.analyze.comm_calls import comm_devices
    from wellfed.analyze.comm_knobs import comm_knobs

    of = dict(zip(comm_devices(timeline), series, strict=True))
    if rank.device is None or rank.device not in of:
        return ()
    return comm_knobs(timeline, rank.device, of[rank.device], _step_ns(rank))


def _looks(
    files: Sequence[Path],
    asked: _Asked,
    each: "Each | None",
    processes: int | None,
    executor: "Executor | None",
) -> tuple[list[_Look], list[Verdict]]:
    """All files, in order, and verdicts of those that cannot be read. Raises WellfedError when none can."""
    from wellfed.check.trace import unreadable
    from wellfed.ingest.workers import how_many, map_files

    small = sum(path.stat().st_size for path in files if path.is_file()) < _WORTH_PROCESSES_BYTES
    if each is not None:
        found: Iterator[list[_Look] | WellfedError] = (_look(path, asked, each) for path in files)
    else:
        number = processes or (1 if small else how_many(len(files)))
        found = map_files(_look, files, asked, processes=number, executor=executor)
    looks: list[_Look] = []
    failed: list[tuple[Path, WellfedError]] = []
    for path, look in zip(files, found, strict=True):
        if isinstance(look, WellfedError):
            failed.append((path, look))
        else:
            looks += look
    if len(failed) == len(files):
        raise failed[-1][1]
    return looks, [unreadable(path.name, error.message) for path, error in failed]


def _gathered(
    looks: Sequence[_Look],
    failed: Sequence[Verdict],
    asked: _Asked,
    network: str | None,
    curves: "Sequence[Curve]",
) -> tuple[Case, tuple[Verdict, ...]]:
    """The case of all looks, unjudged, and its verdicts: each rank's own and those of all together."""
    from wellfed.analyze.together import fold_warnings, once, rank_numbers, ranks_found
    from wellfed.check.trace import judge_ranks, saves_of
    from wellfed.model.verdict import worth

    single, copies = once([(look.told, look.mark) for look in looks], [look.source for look in looks])
    looks = [looks[k] for k in single]
    numbers, doubts = rank_numbers([look.told for look in looks], [look.source for look in looks])
    kept = [
        _numbered(look, number)
        for look, number in zip(looks, numbers, strict=True)
        if asked.ranks is None or number in asked.ranks
    ]
    if not kept:
        raise WellfedError(
            "none of the traces is of the ranks asked for", hint="leave --rank out to see which there are"
        )
    kept.sort(key=lambda look: (look.ranks[0].rank is None, look.ranks[0].rank or 0))
    ranks = tuple(rank for look in kept for rank in look.ranks)
    verdicts = tuple(sorted((v for look in kept for v in look.verdicts), key=worth))
    warnings = (*copies, *doubts, *fold_warnings([look.warnings for look in kept]))
    series = [one for look in kept for one in look.series]
    memory = tuple(held for look in kept for held in look.memory)
    if curves and len(series) == 1:
        verdicts = tuple(sorted((*verdicts, *_limits(kept, curves)), key=worth))
    if len(ranks) < 2:
        return Case(ranks=ranks, warnings=warnings, memory=memory), (*verdicts, *failed)
    found = ranks_found(ranks, series, saves=saves_of(verdicts, ranks), network=network, curves=curves)
    judged = judge_ranks(verdicts, found, price=asked.price)
    case = Case(ranks=ranks, warnings=warnings, rank_verdicts=verdicts, together=found.study, memory=memory)
    return case, (*judged, *failed)


def _limits(looks: Sequence[_Look], curves: "Sequence[Curve]") -> list[Verdict]:
    """What holds the collectives of the one rank that has any."""
    from wellfed.analyze.comm_limits import limits_of_series
    from wellfed.check.trace.comm_limit import judge_limits

    page = judge_limits.manual  # type: ignore[attr-defined]
    found: list[Verdict] = []
    for look in looks:
        for one in look.series:
            step_ns = _step_ns(look.ranks[0])
            verdict = judge_limits(limits_of_series(one, curves), source=look.source, step_ns=step_ns)
            if verdict is not None:
                where = {"rank": one.rank, "device": look.ranks[0].device}
                sources = page.sources if verdict.verdict == "finding" else ()
                said = {
                    "code": page.code,
                    "name": page.name,
                    "layer": "trace",
                    "where": where,
                    "sources": sources,
                }
                found.append(replace(verdict, **said))
    return found


def _curves(ceilings: PathLike | Sequence[Ceiling]) -> "tuple[Curve, ...]":
    """The curves of collectives among ceilings, or in the file that has them. Raises WellfedError for a file without."""
    from wellfed.analyze.comm_limits import curves_of

    if not isinstance(ceilings, str | os.PathLike):
        return curves_of(ceilings)
    path = Path(ceilings)
    found = curves_of(load(path).ceilings if _is_case(path) else read_ceilings(path))
    if not found:
        raise WellfedError(
            f"{path.name} holds no curve of a collective",
            hint="wellfed measure --only collectives --save curves.case",
        )
    return found


def _numbered(look: _Look, rank: int | None) -> _Look:
    """The look with another rank. Series that stand for several devices keep their numbers."""
    if rank is None:
        return look
    alone = len(look.series) == 1

    def placed(verdict: Verdict) -> Verdict:
        rest = {key: value for key, value in verdict.where.items() if key != "rank"}
        return replace(verdict, where={"rank": rank, **rest})

    return look._replace(
        ranks=tuple(replace(one, rank=rank) for one in look.ranks),
        verdicts=tuple(map(placed, look.verdicts)),
        memory=tuple(replace(one, rank=rank) for one in look.memory),
        series=tuple(replace(one, rank=rank) for one in look.series) if alone else look.series,
    )


def _pipeline(records: Sequence[Path], price: float | None) -> "tuple[Stragglers, tuple[Verdict, ...]]":
    from wellfed.analyze.straggler import study_stragglers
    from wellfed.check.trace.records import judge_records
    from wellfed.ingest.records import read_records

    if len(records) > 1:
        raise WellfedError("several files of operation records", hint=f"wellfed trace {records[0]}")
    found = study_stragglers(read_records(records[0]))
    return found, judge_records(found, source=records[0].name, price=price)


def _check_network(name: str | None) -> None:
    from wellfed import catalog

    if name is not None and catalog.link(name) is None:
        known = ", ".join(link.key for link in catalog.links() if link.family in ("infiniband", "ethernet"))
        raise WellfedError(f"no link `{name}` in the catalogue", hint=f"one of: {known}")


def compare(a: PathLike, b: PathLike, *, price: float | None = None) -> Comparison:
    """Two recordings of one kind of work, before and after or on two machines: what each part of a step, each
    operator and kernel took in both, and whether B got what A's findings promised for the cures.

    `a` and `b` are traces (files, folders or globs), cases saved by `trace` or `doctor`, or their JSON results; a
    case was judged when it was saved, so that an unprofiled step given then (`--step-ms`) still counts. Raises
    WellfedError for what cannot be read, holds no trace, or has no rank in common."""
    from wellfed.analyze.compare import compare_ranks, matched
    from wellfed.check.promises import with_promises
    from wellfed.report.comparison import headline, label

    _check_numbers(price=price)
    before, after = (_case_of(path, price) for path in (a, b))
    pairs, only_a, only_b = matched(before.ranks, after.ranks)
    if not pairs:
        raise WellfedError(
            "the two have no rank and device in common", hint="compare one rank: trace --rank 0 --save"
        )
    compared = [
        with_promises(found, (before, one), (after, other))
        for one, other in pairs
        if (found := compare_ranks(one, other)) is not None
    ]
    return Comparison(
        made_by=_made_by("compare"),
        a=label(Path(a).name, before.ranks),
        b=label(Path(b).name, after.ranks),
        headline=headline(compared),
        ranks=tuple(compared),
        only_a=tuple(map(rank_name, only_a)),
        only_b=tuple(map(rank_name, only_b)),
    )


def _case_of(path: PathLike, price: float | None) -> Case:
    """The case in a file, or that of the traces it names. Raises WellfedError when no trace is in it."""
    case = load(path) if _is_case(Path(path)) else trace(path, price=price)
    if not case.ranks:
        raise WellfedError(f"{os.fspath(path)} holds no trace", hint="wellfed trace TRACE --save before.case")
    return case


def _is_case(path: Path) -> bool:
    """Whether a file begins as a case or a JSON result does; a trace of PyTorch begins with `schemaVersion`."""
    try:
        if not path.is_file():  # a pipe would be waited for, and what is read of it is gone
            return False
        with path.open("rb") as file:
            head = file.read(256)
            if head[:2] == b"\x1f\x8b":
                file.seek(0)
                with gzip.GzipFile(fileobj=file) as unpacked:
                    head = unpacked.read(64)
    except (OSError, EOFError, zlib.error):
        return False  # the reader of traces says what is wrong
    return re.match(rb'\s*\{\s*"schema"\s*:', head) is not None


def doctor(
    host: PathLike | None = None,
    *,
    traces: Sequence[PathLike] = (),
    demo: bool = False,
    budget_s: float = QUICK_S,
    intent: str = "training",
    price: float | None = None,
    step_ms: float | None = None,
    ignore: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Case:
    """Look, read the traces, measure, judge all of it, and say in one sentence what limits this work.

    `demo` takes the recorded host and the trace that wellfed ships instead. `budget_s` seconds are spent on
    measuring (0: none; never on a recorded host, whose ceilings are not this machine's). `price` is USD per
    GPU and hour (the catalogue's dated price when None), `step_ms` the time of a step without the profiler,
    in milliseconds, when you know it."""
    from wellfed.check import judge_machine
    from wellfed.check.headline import headline

    if demo:
        if host is not None or traces:
            raise WellfedError("the demo brings its own host and trace", hint="wellfed doctor --demo")
        with _demo("host.tar.gz") as box, _demo("trace.json.gz") as recording:
            return doctor(
                box, traces=[recording], intent=intent, price=price, ignore=ignore, progress=progress
            )
    _check_numbers(price=price, step_ms=step_ms)
    _check_number("budget", budget_s, 0, MAX_BUDGET_S, "s")
    say = progress or _silent
    # Traces before measuring: a file that can't be read should not cost a measurement first.
    say("reading traces" if traces else "looking at the machine")
    read = trace(traces, step_ms=step_ms, price=price) if traces else Case()
    looked = inspect(host)
    machine = looked.machine
    assert machine is not None
    ceilings: tuple[Ceiling, ...] = ()
    if host is None and budget_s > 0:
        machine, ceilings = _measured(machine, budget_s, say)
    say("judging")
    verdicts = judge_machine(machine, ceilings=ceilings, intent=intent)
    whole = replace(
        read, made_at=looked.made_at, machine=machine, ceilings=ceilings, verdicts=(), headline=None
    )
    judged = _judged("doctor", whole, (*read.verdicts, *verdicts), ignore)
    return replace(judged, headline=headline(judged))


_PLACING = ("container", "cpu", "environment", "gpu", "network", "numa", "pci", "rdma", "topology")
"""The readers that placing needs: a rank must not wait for the others."""


def pin_plan(
    host: PathLike | None = None,
    *,
    mode: str = "node",
    ranks: int | None = None,
    gpus: Sequence[str] | None = None,
    cpus: Sequence[int] | None = None,
    workers: int = 0,
    memory: str | None = None,
    alone: bool = False,
) -> "Placement":
    """Where the ranks of a job go on this machine, or on the recorded one in `host`: CPUs, memory policy, NICs and variables of
    each, with reasons.

    `mode` is one of `wellfed.model.placement.MODES`; `ranks` is the number of processes (one a visible GPU when None); `gpus`
    are what they see, as CUDA_VISIBLE_DEVICES writes it (that variable when None); `cpus` replaces the affinity and cpuset
    that were seen; `workers` is how many loaders each rank starts; `memory` is `preferred`, `bind`, `interleave` or
    `none`; `alone` says that nobody else uses the allowed CPUs. Raises WellfedError for what is none of these."""
    from wellfed.host import look, open_host
    from wellfed.model.placement import PlaceRequest
    from wellfed.place import plan_placement

    machine = look(open_host(None if host is None else os.fspath(host)), _PLACING)
    visible = tuple(gpus) if gpus is not None else _visible(machine.environment)
    request = PlaceRequest(
        mode=mode,
        ranks=ranks,
        visible=visible,
        allowed=None if cpus is None else tuple(cpus),
        workers=workers,
        memory=memory,
        alone=alone,
    )
    return plan_placement(machine, request)


def _visible(environment: Mapping[str, str]) -> tuple[str, ...] | None:
    """The GPUs that the environment leaves; None when it does not say, or a recording has taken it out."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"):
        value = environment.get(name)
        if value is not None and value != "[redacted]":
            return tuple(part for part in value.split(",") if part.strip())
    return None


def pin_exec(
    command: Sequence[str],
    *,
    rank: int | None = None,
    ranks: int | None = None,
    mode: str = "node",
    memory: str | None = None,
    workers: int = 0,
    watch_s: float = 0.0,
    verify_s: float | None = None,
    say: Progress | None = None,
) -> "NoReturn":
    """Put this process in the place of its rank, and become `command`. The rank is the launcher's (LOCAL_RANK, SLURM_LOCALID,
    OMPI_COMM_WORLD_LOCAL_RANK...) when None; without any the process gets the places of all ranks together, since it
    starts them itself. `watch_s` seconds long threads that leave are put back, and after `verify_s` masks and pages are
    looked at and told to `say`. Raises WellfedError with exit code 127 when there is no such command."""
    from wellfed.host import look, open_host
    from wellfed.live.launchers import place_of_rank, told_rank
    from wellfed.live.pin import Watching, become, find_command
    from wellfed.model.placement import PlaceRequest

    environ = dict(os.environ)
    find_command(command, environ)
    machine = look(open_host(None), _PLACING)
    request = PlaceRequest(
        mode=mode, ranks=ranks, visible=_visible(machine.environment), memory=memory, workers=workers
    )
    place, warnings = place_of_rank(machine, request, rank=rank, told=told_rank(environ))
    tell = say or _silent
    for warning in warnings:
        tell(warning)
    become(command, place, environ, Watching(watch_s, verify_s), tell)


_OWNERS = ("container", "kernel", "sysctl_files")
"""The readers that know who else sets a knob."""


def tune_plan(
    host: PathLike | None = None,
    *,
    intent: str = "training",
    yes: bool = False,
    allow: Sequence[str] = (),
    only: Sequence[str] = (),
    changes: PathLike | None = None,
    confirm: bool = False,
    ignore: Mapping[str, str] | None = None,
) -> "Plan":
    """What `tune_apply` with the same arguments would write on this machine, knob by knob, and what people would have to do.
    Nothing is written. Of a recorded machine in `host` no knob can be asked: those are `unseen`.

    `yes` agrees to what restarts something or outlives the boot, `allow` to codes that can do harm or that nobody has seen
    to help; `only` narrows it to these codes. `changes` is a list of your own in TOML, in place of what the checks find;
    `confirm` says that all will be undone unless confirmed. Raises WellfedError for an unknown code or a list that is none."""
    from wellfed.apply.policy import Options

    options = Options(yes=yes, allow=frozenset(allow), only=frozenset(only), confirm=confirm)
    return _plan(host, intent, options, changes, ignore)[0]


def _plan(
    host: PathLike | None,
    intent: str,
    options: "Options",
    changes: PathLike | None,
    ignore: Mapping[str, str] | None,
) -> "tuple[Plan, tuple[Change, ...]]":
    """The plan, and the changes that it is of as they were asked for."""
    from wellfed.apply.dry_run import dry_run
    from wellfed.apply.policy import consent_of, notes_of
    from wellfed.host import look, open_host
    from wellfed.model.change import Plan, Skipped

    skipped: list[Skipped] = []
    if changes is not None:
        found = _own_changes(changes, options)
        machine = look(open_host(None if host is None else os.fspath(host)), _OWNERS)
    else:
        machine, found, skipped = _cures(host, intent, options, ignore)
    by_hand = tuple(change for change in found if consent_of(change) == "instruction")
    asked = tuple(change for change in found if change not in by_hand)
    planned, none_here = dry_run(None if host is not None else _journal(None).root, asked, machine, options)
    origin = "this machine" if host is None else os.fspath(host)
    plan = Plan(
        made_by=_made_by("tune plan"),
        origin=origin if changes is None else f"{origin}, {os.fspath(changes)}",
        intent=intent,
        changes=tuple(planned),
        instructions=by_hand,
        skipped=(*none_here, *skipped),
        notes=notes_of(machine, asked),
    )
    return plan, asked


def _own_changes(path: PathLike, options: "Options") -> "tuple[Change, ...]":
    from wellfed.apply.user_file import read_changes

    found = read_changes(path)
    known = {change.code for change in found}
    for code in sorted((options.only | options.allow) - known):
        raise WellfedError(
            f"no change with the code `{code}` in {os.fspath(path)}", hint=", ".join(sorted(known))
        )
    return tuple(change for change in found if not options.only or change.code in options.only)


def _cures(
    host: PathLike | None, intent: str, options: "Options", ignore: Mapping[str, str] | None
) -> "tuple[Machine, tuple[Change, ...], list[Skipped]]":
    """What the checks find to change, and findings of which nothing comes."""
    from wellfed.check import host_codes, manual, require_code
    from wellfed.check.changes import changes_of
    from wellfed.model.change import Skipped

    for code in sorted(options.only | options.allow):
        require_code(code)
    case = check(host, intent=intent, ignore=ignore)
    assert case.machine is not None
    wanted = [v for v in case.verdicts if not options.only or v.code in options.only]
    pages = {code: manual(code) for code in host_codes()}
    found = changes_of(case.machine, wanted, intent, pages)
    cured = {change.code for change in found}
    skipped: list[Skipped] = []
    for verdict in wanted:
        if verdict.verdict == "finding" and verdict.code not in cured:
            skipped.append(Skipped(code=verdict.code, reason=f"no cure is known: {verdict.message}"))
        elif verdict.verdict != "finding" and options.only:
            word = "passes here" if verdict.verdict == "pass" else "not judged"
            skipped.append(Skipped(code=verdict.code, reason=f"{word}: {verdict.message}"))
    skipped += [
        Skipped(code=verdict.code, reason=f"set aside: {verdict.message}")
        for verdict in case.ignored
        if not options.only or verdict.code in options.only
    ]
    return case.machine, found, skipped


def tune_apply(
    *,
    intent: str = "training",
    yes: bool = False,
    allow: Sequence[str] = (),
    only: Sequence[str] = (),
    changes: PathLike | None = None,
    journal: PathLike | None = None,
    confirm_within_s: float | None = None,
    prove: bool = False,
    ignore: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> "Applied":
    """Change this machine as `tune_plan` with the same arguments says, through the journal in `journal`
    (/var/lib/wellfed/journal when None), and say what became of each knob.

    After `confirm_within_s` seconds all of it is undone by itself unless `tune_confirm` is called. With `prove` each change
    is measured without and with it, in turn, and kept only where it is better; one that no measurement is linked to is not
    made. Raises WellfedError, before anything is written, when nothing of it can be."""
    from wellfed.apply import engine
    from wellfed.apply.deadman import LEAST_S, MOST_S
    from wellfed.apply.policy import Options, is_root
    from wellfed.apply.root import with_sudo
    from wellfed.model.change import Applied

    _check_number("confirm-within", confirm_within_s, LEAST_S, MOST_S, "s")
    if prove and confirm_within_s is not None:
        raise WellfedError(
            "a proof is not to be confirmed: it puts back by itself what does not pay",
            hint="wellfed tune apply --prove",
        )
    place = _journal(journal)
    late = tuple(engine.revert_overdue(place))
    options = Options(
        yes=yes,
        allow=frozenset(allow),
        only=frozenset(only),
        confirm=confirm_within_s is not None,
    )
    plan, asked = _plan(None, intent, options, changes, ignore)
    chosen = [one for one in plan.changes if one.chosen]
    todo = [one for one in chosen if one.state == "change"]
    if not is_root() and any(one.privilege == "root" for one in todo):
        raise WellfedError(
            "only root may change these settings; nothing is changed", hint=with_sudo("tune apply")
        )
    blocked = [one for one in chosen if one.state == "read-only"]
    if blocked and len(blocked) == len(chosen):
        raise WellfedError(
            f"nothing is changed: {blocked[0].reason}",
            hint="on the host itself, outside the container: sudo wellfed tune apply",
        )
    result = Applied(plan=plan, late=late, confirm_within_s=confirm_within_s)
    if prove:
        from wellfed.apply.prove import prove as proved
        from wellfed.bench.proof import meter

        rows = {(one.change.code, one.change.kind, one.asked) for one in todo}
        trials = [change for change in asked if (change.code, change.kind, change.target) in rows]
        proofs = proved(
            place,
            trials,
            measure=lambda change: None if change.proof is None else meter(change.proof),
            told=progress,
        )
        return replace(result, proofs=proofs)
    if not chosen:
        return result
    done = tuple(engine.apply(place, [one.change for one in chosen], confirm_within_s=confirm_within_s))
    txid = next((one.txid for one in done if one.txid), "")
    return replace(result, done=done, txid=txid, confirm_within_s=confirm_within_s if txid else None)


def tune_status(journal: PathLike | None = None) -> "TuneStatus":
    """What was changed and is still ours, how it reads now, and who else sets what differs. Writes nothing. Raises
    WellfedError for a journal that can't be read."""
    from wellfed.apply import engine
    from wellfed.model.change import Holding, TuneStatus

    place = _journal(journal)
    left = engine.waiting(place)
    held: dict[str, list[Done]] = {}
    for one in engine.status(place):
        held.setdefault(one.txid, []).append(one)
    drifted = [one for ones in held.values() for one in ones if one.outcome in ("changed", "missing")]
    owners = _owners(drifted)
    found = [
        Holding(
            txid=name,
            began=place.read(name)[0].ts,
            state="held" if name not in left else "waiting" if left[name] > 0 else "overdue",
            left_s=left.get(name),
            changes=tuple(
                replace(one, note=owners.get((one.kind, one.target), one.note)) for one in held.get(name, ())
            ),
        )
        for name in place.names()
        if name in held or name in left
    ]
    return TuneStatus(transactions=tuple(found), drift=len(drifted))


def _owners(drifted: "Sequence[Done]") -> dict[tuple[str, str], str]:
    """Who may have set these knobs, where it is known."""
    from wellfed.apply.policy import owner_of
    from wellfed.host import look, open_host
    from wellfed.model import Change

    if not drifted:
        return {}
    machine = look(open_host(None), _OWNERS)
    found = {}
    for one in drifted:
        change = Change(code=one.code, kind=one.kind, target=one.target, new=one.new or "", restore="")
        if (owner := owner_of(change, machine)) is not None:
            found[one.kind, one.target] = f"it is also set by {owner}"
    return found


def tune_undo(
    txid: str | None = None, *, force: bool = False, journal: PathLike | None = None
) -> "tuple[Done, ...]":
    """Put back what was changed, the last first: all of it, or one transaction. What somebody else has set since stays
    as it is (`drift`) unless `force`."""
    from wellfed.apply import engine

    place = _journal(journal)
    late = engine.revert_overdue(place)
    return (*late, *engine.undo(place, txid, force=force))


def tune_confirm(txid: str | None = None, *, journal: PathLike | None = None) -> tuple[str, ...]:
    """Keep what waits to be confirmed; the transactions that did. Raises WellfedError when nothing waits or it is too late:
    all is then as it was."""
    from wellfed.apply import engine

    place = _journal(journal)
    kept = tuple(engine.confirm(place, txid))
    if not kept:
        names = place.names()
        undone = bool(names) and any(record.type == "expired" for record in place.read(names[-1]))
        raise WellfedError(
            f"too late: {names[-1]} has been undone, since nobody confirmed it in time"
            if undone
            else "nothing waits to be confirmed",
            hint=f"wellfed tune {'log' if undone else 'status'}{place.option}",
        )
    return kept


def tune_log(journal: PathLike | None = None) -> "TuneLog":
    """All that was ever written down, for an audit; what is damaged is said and does not hide the rest."""
    from wellfed.apply.journal import is_open, seconds_left
    from wellfed.model.change import Logged, TuneLog

    place = _journal(journal)
    boot = place.root.boot_id()
    found: list[Logged] = []
    for name in place.names():
        try:
            records = place.read(name)
        except WellfedError as error:
            found.append(Logged(txid=name, state="damaged", damaged=error.message))
            continue
        waits = seconds_left(records, boot) is not None
        state = "waiting" if waits else "open" if is_open(records) else "undone"
        found.append(Logged(txid=name, state=state, records=tuple(records)))  # type: ignore[arg-type]
    return TuneLog(folder=os.fspath(place.folder), transactions=tuple(found))


def tune_export(
    form: str,
    host: PathLike | None = None,
    *,
    intent: str = "training",
    changes: PathLike | None = None,
    allow: Sequence[str] = (),
    only: Sequence[str] = (),
    ignore: Mapping[str, str] | None = None,
    redact: bool = False,
) -> "Export":
    """What `tune_plan` would change, as files for sysctl.d, systemd, tmpfiles.d, udev, tuned or Ansible, or as kernel
    arguments (`wellfed.report.exports.FORMS`); `.files` have path and text, `.left` says what the form can't carry and why.
    Nothing is written. With `redact` names and keys in the kernel's command line are hidden; all else is needed as it is.
    Raises WellfedError as `tune_plan` does, and for an unknown form."""
    from wellfed.apply.engine import in_order
    from wellfed.model.redact import redact_case
    from wellfed.report.exports import FORMS, export, of_plan

    if form not in FORMS:
        raise WellfedError(f"no form `{form}`", hint=f"one of: {', '.join(FORMS)}")
    # Restarts and the network are told in comments: here nothing is written that would need consent.
    plan = tune_plan(
        host, intent=intent, yes=True, allow=allow, only=only, changes=changes, confirm=True, ignore=ignore
    )
    kept, left = of_plan(plan)
    machine = Machine()
    if form == "cmdline":
        case = inspect(host)
        machine = (redact_case(case) if redact else case).machine or machine
    return export(
        form,
        [*in_order(kept), *plan.instructions],
        left=left,
        cmdline=machine.kernel.cmdline,
        arch=machine.cpu.arch,
        made_by=f"wellfed {__version__}" + ("" if changes is not None else f" for {intent}"),
    )


def _journal(folder: PathLike | None) -> "Journal":
    from wellfed.apply.journal import Journal
    from wellfed.apply.root import Root

    if folder is not None and not os.fspath(folder):
        raise WellfedError("the name of the journal is empty", hint="wellfed tune status --journal DIR")
    journal = Journal(Root(), None if folder is None else Path(folder).absolute())
    journal.guard()
    return journal


def load(path: PathLike) -> Case:
    """A case that was saved. Raises WellfedError when the file is missing, damaged or no case."""
    try:
        if not Path(path).is_file() and Path(path).exists():  # a pipe would wait for a writer
            raise WellfedError(f"{os.fspath(path)} is no file", hint="wellfed doctor --save my.case")
        with Path(path).open("rb") as file:
            data = file.read(MAX_CASE_BYTES + 1)
    except ValueError as error:  # a name that holds a NUL
        raise WellfedError(
            f"can't read {os.fspath(path)}: {error}", hint="wellfed doctor --save my.case"
        ) from error
    except OSError as error:
        raise WellfedError(
            f"can't read {os.fspath(path)}: {error.strerror}", hint="wellfed doctor --save my.case"
        ) from error
    return decode_case(data)


def save(case: Case, path: PathLike, *, redact: bool = True) -> Case:
    """Write `case` to one file, names and secrets taken out unless `redact` is False; returns what was
    written. Raises OSError when the file can't be written."""
    from wellfed.model.redact import redact_case

    public = redact_case(case) if redact else case
    Path(path).write_bytes(encode_case(public))
    return public


def _check_numbers(*, price: float | None = None, step_ms: float | None = None) -> None:
    _check_number("price", price, 0, MAX_PRICE, "USD per GPU and hour")
    _check_number("step-ms", step_ms, MIN_STEP_MS, MAX_STEP_MS, "ms")


def _check_number(name: str, value: float | None, low: float, high: float, unit: str) -> None:
    """Raises WellfedError for what would make nonsense of all that is worked out from it, NaN too."""
    if value is not None and not low <= value <= high:
        raise WellfedError(
            f"a {name} of {value:g} {unit} is none: {low:g} to {high:g}", hint=f"--{name} {_LIKELY[name]}"
        )


def _measured(
    machine: Machine, budget_s: float, progress: Progress | None, **which: Any
) -> tuple[Machine, tuple[Ceiling, ...]]:
    """The machine, its gaps now with what could not be measured, and its ceilings."""
    from wellfed.bench import run_benchmarks

    measured = run_benchmarks(machine, budget_s=budget_s, progress=progress, **which)
    gaps = {f"ceilings[{id}]": reason for id, reason in measured.skipped.items()}
    return replace(machine, gaps={**machine.gaps, **gaps}), measured.ceilings


def _judged(verb: str, case: Case, verdicts: Sequence[Verdict], ignore: Mapping[str, str] | None) -> Case:
    from wellfed.check import order, set_aside

    kept, ignored, _ = set_aside(order(verdicts), ignore or {})
    return replace(case, made_by=_made_by(verb), verdicts=kept, ignored=ignored)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _made_by(verb: str) -> str:
    return f"{verb} {__version__}"


def _demo(name: str) -> AbstractContextManager[Path]:
    """A file of the shipped sample, for as long as the context lasts."""
    from importlib.resources import as_file, files

    return as_file(files("wellfed").joinpath("demo", name))


def _silent(_: str) -> None:
    pass
