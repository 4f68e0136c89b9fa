"""What stragglers cost a pipeline: closed forms, laws, and the authors' own answers on their public data."""

import json
import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline_maker import Cost, one_f_one_b, records, simulate, two_pieces_a_stage

from wellfed.analyze.pipeline import OpRecords
from wellfed.analyze.straggler import Stragglers, study_stragglers
from wellfed.model import WellfedError
from wellfed.model.base import replace


def flat(forward: float = 1.0, backward: float = 2.0) -> Cost:
    table = {"forward-compute": forward, "backward-compute": backward, "optimizer": 0.0}
    return lambda kind, d, p, k: table[kind]


def job(cost: Cost, *, stages: int = 4, micro: int = 8, replicas: int = 2, steps: int = 1) -> OpRecords:
    schedule = one_f_one_b(stages, micro)
    rows = [r for n in range(steps) for r in simulate(schedule, cost, replicas=replicas, step=n)]
    return records(rows, stages)


def study(cost: Cost, **shape: int) -> Stragglers:
    return study_stragglers(job(cost, **shape))


def test_equal_work_has_no_slowdown_and_the_bubble_of_the_textbook() -> None:
    stages, micro = 4, 8
    rows = simulate(one_f_one_b(stages, micro), flat(), replicas=2, transfer=0.0, tail=False)
    found = study_stragglers(records(rows, stages))
    assert found.slowdown == pytest.approx(1.0, abs=1e-12)
    assert found.replayed_s == pytest.approx((micro + stages - 1) * 3.0)
    assert found.bubble == pytest.approx((stages - 1) / (micro + stages - 1))
    assert found.culprit is None
    assert not found.straggling
    assert found.worker_share is None


def test_a_slow_worker_is_named_and_its_share_is_all() -> None:
    def cost(kind: str, d: int, p: int, k: int) -> float:
        return flat()(kind, d, p, k) * (2.0 if (d, p) == (1, 2) and kind != "optimizer" else 1.0)

    found = study(cost, replicas=4)
    assert found.culprit == {"replica": 1, "stage": 2, "rank": 6}
    assert found.workers[0].rank == 6
    assert found.worker_share is not None
    assert found.worker_share > 0.9
    assert found.by_replica[1] == pytest.approx(found.slowdown, rel=0.02)
    assert all(found.by_replica[d] < 1.01 for d in (0, 2, 3))
    assert next(iter(found.by_kind)) in ("backward-compute", "forward-compute")


def test_a_stage_that_is_slow_in_every_replica_is_the_stage() -> None:
    def cost(kind: str, d: int, p: int, k: int) -> float:
        return flat()(kind, d, p, k) * (1.6 if p == 3 and kind != "optimizer" else 1.0)

    found = study(cost, replicas=4)
    assert found.culprit == {"stage": 3}
    assert found.last_stage_share is not None
    assert found.last_stage_share > 0.9
    assert max(found.by_stage, key=lambda p: found.by_stage[p]) == 3
    alone = study(cost, replicas=1)
    assert alone.culprit == {"stage": 3}, "with one replica a worker is not told from its stage"


def test_noise_names_nobody() -> None:
    rng = random.Random(7)

    def cost(kind: str, d: int, p: int, k: int) -> float:
        return flat()(kind, d, p, k) * rng.uniform(0.97, 1.03)

    found = study(cost, replicas=4, steps=3)
    assert 1.0 < found.slowdown < 1.1
    assert found.culprit is None


@settings(max_examples=25)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(1, 3), st.integers(0, 10**6))
def test_the_replay_gives_back_the_measured_step(stages: int, micro: int, replicas: int, seed: int) -> None:
    rng = random.Random(seed)
    found = study(lambda *_: rng.uniform(0.5, 3.0), stages=stages, micro=micro, replicas=replicas)
    assert found.error == pytest.approx(0.0, abs=1e-9)
    assert found.left_out == 0
    assert 0.0 <= found.bubble < 1.0


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.floats(0.01, 100.0))
def test_the_slowdown_does_not_know_the_unit(seed: int, unit: float) -> None:
    rng = random.Random(seed)
    plain = job(lambda *_: rng.uniform(0.5, 3.0), stages=3, micro=4)
    scaled = replace(plain, start_s=plain.start_s * unit, end_s=plain.end_s * unit)
    a, b = study_stragglers(plain), study_stragglers(scaled)
    assert b.slowdown == pytest.approx(a.slowdown)
    assert b.by_stage == pytest.approx(a.by_stage)


def test_pieces_of_the_model_wrap_around_and_unlaunched_sends_are_no_trouble() -> None:
    schedule = two_pieces_a_stage(2, 4)
    rows = simulate(schedule, flat(), replicas=2)
    rows += [(0, d, 0, "forward-recv", 99.0, 99.0, -1) for d in (0, 1)]
    rows += [(0, d, 1, "backward-send", -1.0, -1.0, -1) for d in (0, 1)]
    found = study_stragglers(records(rows, 2))
    sound = study_stragglers(records(rows[:-4], 2))
    assert sound.error == pytest.approx(0.0, abs=1e-9)
    assert found.replayed_s == pytest.approx(sound.replayed_s)


def test_a_step_that_misses_an_operation_is_left_out_and_said() -> None:
    whole = job(flat(), steps=3)
    keep = np.ones(len(whole), bool)
    keep[np.flatnonzero(whole.step == 1)[5]] = False
    cut = OpRecords(
        **{f: getattr(whole, f)[keep] for f in ("step", "replica", "stage", "rank", "kind", "chunk")},
        kinds=whole.kinds,
        start_s=whole.start_s[keep],
        end_s=whole.end_s[keep],
    )
    found = study_stragglers(cut)
    assert found.steps == 2
    assert found.left_out == (whole.step == 1).sum() - 1
    assert any("1 of 3 steps" in note for note in found.notes)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda r: replace(r, kinds=tuple("x" + k for k in r.kinds)),
        lambda r: replace(r, replica=np.arange(len(r), dtype=np.int32) * 1000),
        lambda r: replace(r, end_s=np.full(len(r), np.nan)),
    ],
    ids=["unknown types", "replicas that are no numbers of replicas", "no times"],
)
def test_records_that_say_nothing_are_refused_with_a_hint(spoil: Any) -> None:
    with pytest.raises(WellfedError) as error:
        study_stragglers(spoil(job(flat())))
    assert error.value.hint


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "culprit"), [("ST", {"stage": 3}), ("AR", {"replica": 0, "stage": 0, "rank": 0})]
)
def test_the_public_data_give_the_authors_answers(corpus: Path, name: str, culprit: dict[str, int]) -> None:
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    from wellfed.ingest.records import read_records

    folder = corpus / "traces" / "straggler"
    told = json.loads((folder / f"result-{name}.json").read_text())
    began = time.process_time()
    found = study_stragglers(read_records(folder / f"trace-{name}.parquet"))
    assert time.process_time() - began < 5.0
    assert found.slowdown == pytest.approx(told["blocking_slowdown"], rel=1e-4)
    assert 1.0 + found.error == pytest.approx(told["launch_slowdown"], rel=1e-4)
    assert found.culprit == culprit
    share = json.loads((folder / f"mw-{name}.json").read_text())["Mw"]
    assert found.worker_share == pytest.approx(share, abs=1e-3)
    share = json.loads((folder / f"ms-{name}.json").read_text())["Ms"]
    assert found.last_stage_share == pytest.approx(share, abs=1e-3)
    for of, parts in (("stage", found.by_stage), ("dp_rank", found.by_replica), ("optype", found.by_kind)):
        theirs = told[f"blocking_decompose_by_{of}"]
        assert {str(k): v for k, v in parts.items()} == pytest.approx(theirs, rel=1e-3)
    per_step = {str(k): v for k, v in found.by_step.items()}
    assert per_step == pytest.approx(told["blocking_step_slowdown"], rel=1e-4)
