"""Many ranks together, on sets made from one trace whose clocks, waits and slow rank are known."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wellfed.analyze.clocks import align, on_reference
from wellfed.analyze.collectives import (
    Call,
    CollectiveSeries,
    CommGroup,
    kineto_call,
    parse_ranks,
    series_of,
)
from wellfed.analyze.matching import match_ranks
from wellfed.analyze.rank_replay import what_if
from wellfed.analyze.ranks import split as split_waits
from wellfed.analyze.ranks import study_ranks
from wellfed.model import Curve

ROOT = Path(__file__).resolve().parent.parent.parent


@cache
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("many_ranks", ROOT / "benchmarks" / "many_ranks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["many_ranks"] = module
    spec.loader.exec_module(module)
    return module


def recorded(steps: int = 4, calls: int = 16) -> list[dict[str, Any]]:
    """One rank's trace: in each step kernels of 0.3 to 0.6 ms, each followed by an all-reduce of 0.1 ms."""
    events: list[dict[str, Any]] = []
    at = 50_000.0
    for n in range(steps):
        begin = at
        for k in range(calls):
            work = 300.0 + 20.0 * k
            for name, dur, stream in (
                ("gemm", work, 7),
                ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 100.0, 20),
            ):
                args = {"device": 0, "stream": stream, "correlation": len(events)}
                events.append(
                    {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": stream, "ts": at, "dur": dur}
                    | {"args": args}
                )
                at += dur
        step = {"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1}
        events.append({**step, "ts": begin, "dur": at - begin})
    return events


def calls_of(text: bytes) -> tuple[int, list[Call], int]:
    """The collectives of a file, read the plain way."""
    file = json.loads(text)
    base = file["baseTimeNanoseconds"]
    events = [e for e in file["traceEvents"] if e["ph"] == "X"]
    steps = [
        (round(e["ts"] * 1000), round((e["ts"] + e["dur"]) * 1000), int(e["name"].split("#")[1]))
        for e in events
        if e["name"].startswith("ProfilerStep")
    ]
    calls = []
    for e in events:
        if "nccl" in e["name"]:
            start = round(e["ts"] * 1000)
            step = next((n for low, high, n in steps if low <= start < high), -1)
            end = start + round(e["dur"] * 1000)
            calls.append(kineto_call(e["name"], start, end, e["args"], step=step))
    return file["distributedInfo"]["rank"], calls, base


def made(**plan: Any) -> tuple[list[CollectiveSeries], Any]:
    make = maker()
    chosen = make.Plan(**plan)
    base = make.base_of(recorded())
    truth = make.run(base, chosen)
    found = []
    for _, pieces in make.files(base, chosen, truth):
        rank, calls, base_ns = calls_of(b"".join(pieces))
        found.append(series_of(rank, calls, base_ns=base_ns, world=chosen.ranks))
    return found, truth


def test_the_slow_rank_is_named_and_clocks_waits_and_what_it_costs_come_out() -> None:
    series, truth = made(ranks=8, slow=5, factor=1.5)
    matching = match_ranks(series)
    found = study_ranks(matching)
    assert found.matched_by == {"sequence": sum(map(len, series))}
    assert not found.refused
    for clock in found.clocks:
        at = (clock.at_ns - maker().BASE_NS - truth.offset_ns[clock.rank]) / (1 + truth.drift[clock.rank])
        ahead = truth.offset_ns[clock.rank] - truth.offset_ns[0]
        ahead += (truth.drift[clock.rank] - truth.drift[0]) * at
        assert clock.offset_ns == pytest.approx(ahead, abs=1_000)
        assert clock.residual_ns < 500
    planted = (truth.start.max(axis=1, keepdims=True) - truth.start).sum(axis=0)
    for row in found.waits:
        assert row.wait_ns + row.transfer_ns == row.comm_ns
        assert row.wait_ns == pytest.approx(planted[row.rank], rel=0.01, abs=64 * 1_000)
        assert row.clock_free_wait_ns == pytest.approx(row.wait_ns, rel=0.02, abs=64 * 1_000)
    assert found.straggler is not None
    assert found.straggler.rank == 5
    assert found.straggler.by == "waiting"
    assert found.straggler.last > 0.95
    assert {s.last_rank for s in found.steps} == {5}
    assert [s.step for s in found.steps] == [0, 1, 2, 3]
    for step in found.steps:
        assert len(step.by_rank) == 8
        assert min(step.by_rank) == step.by_rank[5] == step.min_wait_ns == 0
    assert found.straggler is not None
    assert found.straggler.of == 8
    assert not found.notes
    # without its excess the run takes what a healthy set takes
    _, sound = made(ranks=8)
    real_gain = (truth.end.max() - truth.start.min()) / (sound.end.max() - sound.start.min())
    assert found.straggler.speedup == pytest.approx(real_gain, rel=0.01)
    assert found.what_if.own_excess[5] == pytest.approx(1.5 / (1 + 0.5 / 8) - 1, rel=0.05)


def test_the_split_is_exact_for_every_call_and_rank() -> None:
    series, _ = made(ranks=8, slow=2, factor=1.3)
    for part in split_waits(match_ranks(series))[0]:
        assert (part.wait + part.transfer == part.matched.end - part.matched.start).all()
        assert (part.wait >= 0).all()
        assert (part.transfer >= 0).all()
        assert (part.wait.min(axis=1) == 0).all()


@pytest.mark.parametrize("tensor", [0, 2, 4])
@pytest.mark.parametrize("seed", range(4))
def test_a_healthy_set_names_nobody(tensor: int, seed: int) -> None:
    series, _ = made(ranks=8, tensor=tensor, seed=seed, jitter=0.03)
    found = study_ranks(match_ranks(series))
    assert found.straggler is None
    assert found.what_if.slowdown < 1.1


def test_two_healthy_ranks_name_nobody_and_one_slow_of_two_is_named() -> None:
    for seed in range(6):
        assert study_ranks(match_ranks(made(ranks=2, seed=seed, jitter=0.05)[0])).straggler is None
    slow = study_ranks(match_ranks(made(ranks=2, slow=1, factor=1.3)[0])).straggler
    assert slow is not None
    assert slow.rank == 1


def test_ranks_that_never_meet_are_aligned_through_others_and_the_cause_is_told_from_the_carriers() -> None:
    # rank 6 holds up its inner group, whose members then hold up their outer groups
    series, truth = made(ranks=16, tensor=4, slow=6, factor=1.4)
    found = study_ranks(match_ranks(series))
    meets = {r for m in match_ranks(series).matched if 0 in m.ranks for r in m.ranks}
    assert 6 not in meets
    for clock in found.clocks:
        assert clock.reference == 0
        at = (clock.at_ns - maker().BASE_NS - truth.offset_ns[clock.rank]) / (1 + truth.drift[clock.rank])
        ahead = truth.offset_ns[clock.rank] - truth.offset_ns[0]
        ahead += (truth.drift[clock.rank] - truth.drift[0]) * at
        assert clock.offset_ns == pytest.approx(ahead, abs=1_000)
    assert found.straggler is not None
    assert found.straggler.rank == 6


def test_without_numbers_whole_files_match_by_order_and_samples_are_refused() -> None:
    whole, _ = made(ranks=4, numbered=False, slow=1, factor=1.5)
    found = study_ranks(match_ranks(whole))
    assert set(found.matched_by) == {"order"}
    assert found.straggler is not None
    assert found.straggler.rank == 1
    counts_differ = study_ranks(match_ranks(made(ranks=4, numbered=False, kept=0.5)[0]))
    assert counts_differ.matched == 0
    assert "counts" in counts_differ.refused[0].reason
    # numbered samples still match where all ranks kept the call
    sampled, truth = made(ranks=4, kept=0.8)
    matching = match_ranks(sampled)
    common = set.intersection(*(set(s.seq.tolist()) for s in sampled))
    assert matching.matched[0].start.shape == (len(common), 4)
    assert align(matching.matched, matching.ranks)[3].offset_ns == pytest.approx(
        truth.offset_ns[3] - truth.offset_ns[0], abs=20_000
    )


def thin(series: CollectiveSeries, keep: Any, *, blank: bool = True) -> CollectiveSeries:
    """Those calls alone; `blank` takes numbers and sizes away."""
    rows = np.asarray(keep)
    one = {f: getattr(series, f)[rows] for f in ("group", "op", "start", "end", "exposed", "step")}
    lost = np.full(len(one["start"]), -1, np.int64)
    return CollectiveSeries(
        rank=series.rank,
        groups=series.groups,
        ops=series.ops,
        seq=lost if blank else series.seq[rows],
        size=lost if blank else series.size[rows],
        **one,
    )


def test_samples_of_equal_count_are_not_taken_for_the_same_calls() -> None:
    (a, b), _ = made(ranks=2)
    for drop_a, drop_b in (([0], [10]), ([3, 4, 5], [20, 30, 40])):
        keep_a = np.setdiff1d(np.arange(len(a)), drop_a)
        keep_b = np.setdiff1d(np.arange(len(b)), drop_b)
        pair = [thin(a, keep_a), thin(b, keep_b)]
        # what is left may be paired by coinciding ends, never by order; ends must then be right
        for m in match_ranks(pair).matched:
            assert m.by == "end"
            whole = dict(zip(a.end.tolist(), b.end.tolist(), strict=True))
            assert [whole[x] for x in m.end[:, 0].tolist()] == m.end[:, 1].tolist()


def test_the_same_number_for_other_operations_or_too_many_ranks_is_refused() -> None:
    (a, b), _ = made(ranks=2)
    other = [
        CollectiveSeries(
            **{f: getattr(b, f) for f in b.__struct_fields__} | {"ops": ("all_gather",), "size": b.size * 2}
        )
    ]
    found = study_ranks(match_ranks([a, *other]))
    assert found.matched == 0
    assert "other operations" in found.refused[0].reason
    third = CollectiveSeries(**{f: getattr(b, f) for f in b.__struct_fields__} | {"rank": 2})
    found = study_ranks(match_ranks([a, b, third]))
    assert "more ranks" in found.refused[0].reason
    again = study_ranks(match_ranks([a, b, b]))
    assert again.straggler is None
    assert "twice" in again.notes[0]


def test_calls_that_can_not_be_the_same_are_refused_once_clocks_are_in_line() -> None:
    (a, b), _ = made(ranks=2)
    shuffled = np.random.default_rng(0).permutation(len(b))
    wrong = CollectiveSeries(
        **{f: getattr(b, f) for f in b.__struct_fields__} | {"seq": b.seq[shuffled], "size": b.size * 0}
    )
    a = CollectiveSeries(**{f: getattr(a, f) for f in a.__struct_fields__} | {"size": a.size * 0})
    found = study_ranks(match_ranks([a, wrong]))
    assert found.matched == 0
    assert "ended before another began" in found.refused[0].reason


def test_memory_is_bounded_and_the_answer_stays() -> None:
    series, _ = made(ranks=8, slow=3, factor=1.5)
    period = max(int(s.end[-1] - s.start[0]) for s in series) + 1_000_000
    many = [
        CollectiveSeries(
            **{f: np.tile(getattr(s, f), 10) for f in ("group", "op", "size", "exposed", "step")},
            rank=s.rank,
            groups=s.groups,
            ops=s.ops,
            seq=np.arange(10 * len(s)),
            start=np.concatenate([s.start + k * period for k in range(10)]),
            end=np.concatenate([s.end + k * period for k in range(10)]),
        )
        for s in series
    ]
    limit = sum(map(len, many)) // 3
    matching = match_ranks(many, max_calls=limit)
    assert matching.thinned == 4
    assert sum(m.start.size for m in matching.matched) <= limit
    found = study_ranks(matching)
    assert found.straggler is not None
    assert found.straggler.rank == 3
    assert found.what_if.own_excess[3] == pytest.approx(1.5 / (1 + 0.5 / 8) - 1, rel=0.05)
    assert any("one of 4" in note for note in found.notes)


def test_the_series_are_read_one_by_one() -> None:
    alive = 0

    def stream() -> Iterator[CollectiveSeries]:
        nonlocal alive
        for one in made(ranks=4)[0]:
            alive += 1
            yield one

    matching = match_ranks(stream())
    assert alive == 4
    assert matching.ranks == (0, 1, 2, 3)


def test_missing_ranks_are_said() -> None:
    series, _ = made(ranks=8, slow=5, factor=1.5)
    found = study_ranks(match_ranks(series[:3]))
    assert found.straggler is None
    assert any("3 of 8 ranks" in note for note in found.notes)


def call(start: int, end: int, **told: Any) -> Call:
    return Call("allreduce", start, end, group_name="0", group_ranks="[0, 1]", group_size=2, **told)


def study_of(*ranks: list[Call]) -> Any:
    return study_ranks(match_ranks(series_of(r, calls) for r, calls in enumerate(ranks)))


def test_waiting_that_computing_hides_is_told_from_exposed_waiting() -> None:
    slow = [call(1000 * k + 600, 1000 * k + 700, seq=k, exposed_ns=100) for k in range(50)]
    quick = [call(1000 * k + 100, 1000 * k + 700, seq=k, exposed_ns=50) for k in range(50)]
    found = study_of(slow, quick)
    waits = found.waits[1]
    assert waits.wait_ns == 50 * 500
    assert waits.exposed_ns == 50 * 50
    low, middle, high = waits.exposed_wait_ns
    assert (low, high) == (0, 50 * 50)
    assert low <= middle <= high
    # the quick rank computed under its waiting, so making the slow one equal gains little
    blind = study_of(*([c._replace(exposed_ns=-1) for c in calls] for calls in (slow, quick)))
    assert found.what_if.slowdown < blind.what_if.slowdown


def test_sends_and_receives_are_matched_by_both_ranks_and_not_by_their_numbers() -> None:
    def p2p(name: str, start: int, end: int, seq: int, **who: int) -> Call:
        told = {"group_name": "pp", "group_ranks": "[0, 1]", "group_size": 2}
        return Call(name, start, end, seq=seq, in_elements=8, out_elements=8, dtype="Float", **told, **who)

    sends = [p2p("send", 1000 * k + 500, 1000 * k + 600, 3 * k, target=1) for k in range(20)]
    receives = [p2p("recv", 1000 * k, 1000 * k + 610, 7 * k, source=0) for k in range(20)]
    matching = match_ranks([series_of(0, sends), series_of(1, receives)])
    assert [m.group.ranks for m in matching.matched] == [(0, 1)]
    found = study_ranks(matching)
    assert found.waits[1].wait_ns == pytest.approx(20 * 510, abs=20)
    assert found.waits[1].pair_wait_ns == found.waits[1].wait_ns
    assert found.straggler is None, "who sends last is the pipeline's order, not an ill"


def test_bandwidth_by_size_and_the_limit_against_a_curve() -> None:
    series, _ = made(ranks=8)
    curve = Curve(op="all_reduce", ranks=8, sizes=(1e3, 1e6), seconds=(100e-6, 100e-6), source="test")
    found = study_ranks(match_ranks(series), curves=[curve])
    assert sum(row.calls for row in found.sizes) == len(series[0])
    for row in found.sizes:
        assert (row.ranks, row.seen, row.op) == (8, 8, "all_reduce")
        assert row.median_ns == pytest.approx(100_000, abs=500)
        assert row.bus_bytes_s == pytest.approx(row.size / row.median_ns * 1e9 * 1.75, rel=1e-4)
        assert row.expected_ns == 100_000
    assert found.limits["all_reduce/8"].ratio[1] == pytest.approx(1.0, abs=0.01)


@settings(max_examples=20)
@given(st.integers(2, 6), st.integers(1, 30), st.integers(0, 10**6))
def test_laws_of_any_set(ranks: int, calls: int, seed: int) -> None:
    """The split is exact, nobody waits for himself, the replay of what was measured is what was measured, and
    equal ranks are never slower than the slowest of all."""
    rng = np.random.default_rng(seed)
    now = np.zeros(ranks, np.int64)
    rows: list[list[Call]] = [[] for _ in range(ranks)]
    for k in range(calls):
        come = now + rng.integers(0, 10_000, ranks)
        now = come.max() + rng.integers(1, 5_000, ranks)
        for r in range(ranks):
            rows[r].append(call(int(come[r]), int(now[r]), seq=k)._replace(group_ranks="x", group_size=ranks))
    matching = match_ranks(series_of(r, c) for r, c in enumerate(rows))
    splits, clocks, _ = split_waits(matching)
    for part in splits:
        assert (part.wait + part.transfer == part.matched.end - part.matched.start).all()
        assert (part.wait.min(axis=1) == 0).all()
    if splits:
        replay = what_if([s.matched for s in splits], [s.start for s in splits], matching.ranks)
        last = max(
            int(on_reference(clocks[r], s.matched.end[:, k]).max())
            for s in splits
            for k, r in enumerate(s.matched.ranks)
        )
        first = min(int(s.start.min()) for s in splits)
        assert replay.measured_ns == pytest.approx(last - first, abs=10_000)
        assert replay.slowdown > 0


@pytest.mark.parametrize(
    ("text", "size", "ranks"),
    [
        ("[0, 1, 2]", 3, (0, 1, 2)),
        ("", 3, ()),
        ("[0, 8, 16, ..., 504]", 64, tuple(range(0, 512, 8))),
        ("[0, 8, 16, ..., 500]", 64, ()),
        ("[0, 1, 5, ..., 63]", 64, ()),
        ("[0, 1, 2, ..., 63]", -1, ()),
        ("[0, 1, 2, ..., 63]", 10**12, ()),
    ],
)
def test_lists_of_ranks_written_short(text: str, size: int, ranks: tuple[int, ...]) -> None:
    assert parse_ranks(text, size) == ranks


def test_what_a_kernel_does_not_tell_is_not_made_up() -> None:
    odd = kineto_call("ncclDevKernel_AllReduce", 5, 9, {"Seq": "12x", "Group size": None, "stream": "7"})
    assert (odd.seq, odd.group_size, odd.stream, odd.name) == (-1, -1, 7, "ncclDevKernel_AllReduce")
    one = series_of(3, [odd, odd._replace(seq=1 << 60, group_name="0", group_ranks="[3]")])
    assert one.seq.tolist() == [-1, -1]
    assert one.groups[0] == CommGroup(kind="stream", name="stream 7")
    assert one.size.tolist() == [-1, -1]
    empty = series_of(0, [])
    assert len(empty) == 0
    assert match_ranks([empty, one]).matched == ()


def test_nothing_at_all_is_no_trouble() -> None:
    for series in ([], [series_of(0, [])], [series_of(0, [call(0, 5, seq=0)])]):
        found = study_ranks(match_ranks(series))
        assert found.straggler is None
        assert found.matched == 0
        assert not found.uneven


@pytest.mark.corpus
def test_sampled_ranks_match_where_their_ends_prove_it(corpus: Path) -> None:
    """Two of 128 ranks, sampled, without groups or numbers: matching by order would pair the wrong calls."""
    from wellfed.ingest import read_timeline
    from wellfed.model.timeline import Timeline

    told = json.loads((corpus / "traces" / "groups.json").read_text())["trace_filter_two_ranks"]

    def series(timeline: Timeline) -> CollectiveSeries:
        rows = [
            k
            for k in np.flatnonzero(timeline.is_gpu).tolist()
            if "nccl" in timeline.names[timeline.name[k]].lower()
        ]
        calls = [
            Call(
                timeline.names[timeline.name[k]],
                int(timeline.ts[k]),
                int(timeline.end[k]),
                stream=int(timeline.stream[k]),
            )
            for k in rows
        ]
        assert timeline.rank is not None
        return series_of(timeline.rank, calls, base_ns=timeline.base_ns)

    matching = match_ranks(series(read_timeline(corpus / "traces" / name)) for name in told["files"])
    found = {
        (m.group.name, *start): (wait, int((end - begin).min()))
        for part in split_waits(matching)[0]
        for m in [part.matched]
        for start, begin, end, wait in zip(
            map(tuple, m.start.tolist()), m.start, m.end, part.wait.tolist(), strict=True
        )
    }
    expected = {
        (f"stream {e['stream']}", *e["start_ns"]): (e["wait_ns"], e["transfer_ns"])
        for e in told["matched_by_end_within_500us_same_stream"]
    }
    assert found == expected
    assert {m.by for m in matching.matched} == {"end"}


def test_healthy_ranks_are_named_no_more_often_than_chance_allows() -> None:
    """Sets of few steps whose work scatters, also wildly (Student's t with two degrees of freedom)."""
    dice = np.random.default_rng(11)
    named = sum(study_ranks(match_ranks(_scattered(dice, 0.0))).straggler is not None for _ in range(60))
    assert named <= 1
    slow = [study_ranks(match_ranks(_scattered(dice, 1.0))).straggler for _ in range(20)]
    assert {s.rank for s in slow if s is not None} == {0}


def _scattered(dice: np.random.Generator, slow: float) -> list[CollectiveSeries]:
    ranks, calls = int(dice.integers(2, 5)), 4
    wild = bool(dice.integers(0, 2)) and not slow
    usual, now = dice.uniform(1e6, 5e6, calls), 0.0
    rows: list[list[Call]] = [[] for _ in range(ranks)]
    told: dict[str, Any] = {
        "group_name": "0", "group_ranks": str(list(range(ranks))), "group_size": ranks,
        "in_elements": 100, "out_elements": 100, "dtype": "Float",
    }  # fmt: skip
    for number in range(3 * calls):
        scatter = dice.standard_t(2, ranks) if wild else dice.normal(0, 1, ranks)
        work = usual[number % calls] * np.maximum(1.0 + 0.1 * scatter, 0.1)
        work[0] *= 1.0 + slow
        come = now + work
        now = float(come.max()) + 3e5
        for rank in range(ranks):
            rows[rank].append(
                Call(
                    "allreduce",
                    round(come[rank]),
                    round(now),
                    seq=number,
                    step=number // calls,
                    **told,
                )
            )
    return [series_of(rank, one, world=ranks) for rank, one in enumerate(rows)]
