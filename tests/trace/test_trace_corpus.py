"""Public traces of many frameworks and GPUs: budgets to the nanosecond, against figures made independently."""

import json
from pathlib import Path
from typing import Any

import pytest

from wellfed import api

pytestmark = pytest.mark.corpus


def expected(corpus: Path) -> dict[str, Any]:
    known: dict[str, Any] = json.loads((corpus / "traces" / "expected.json").read_text())
    return {name: facts for name, facts in known.items() if facts.get("kind") == "kineto"}


def test_budgets_are_exact_on_every_trace(corpus: Path) -> None:
    wrong: list[Any] = []
    known = expected(corpus)
    for name, facts in known.items():
        ranks = api.trace(corpus / "traces" / name).ranks
        if not facts["gpu_events"]:
            assert ranks[0].budget is None, name
            continue
        (rank,) = ranks
        assert rank.budget is not None
        told = {**facts, **facts.get("symmetric_memory_collectives", {}).get("if_counted_as_comm", {})}
        found = {
            "span_ns": rank.budget.span_ns,
            "idle_ns": rank.budget.idle_ns,
            "compute_ns": rank.budget.compute_ns,
            "exposed_comm_ns": rank.budget.exposed_comm_ns,
            "comm_ns": rank.comm_ns,
            "comm_overlapped_ns": rank.comm_overlapped_ns,
            "gpu_events": rank.gpu_events,
        }
        wrong += [(name, key, value, told[key]) for key, value in found.items() if value != told[key]]
        copies = facts["exposed_memcpy_ns"] + facts["exposed_memset_ns"]
        wrong += [(name, "copy")] if rank.budget.exposed_copy_ns != copies else []
        wrong += [(name, "idle")] if sum(rank.idle.values()) != rank.budget.idle_ns else []
        wrong += [(name, "rank")] if rank.rank != facts["rank"] else []
    assert wrong == []
    assert len(known) >= 25


def test_the_loader_is_named_where_it_was_slow_and_nowhere_else(corpus: Path) -> None:
    folder = corpus / "traces" / "kineto"
    slow = api.trace(folder / "resnet50_workers0.pt.trace.json.gz")
    fixed = api.trace(folder / "resnet50_workers4.pt.trace.json.gz")
    first = next(v for v in slow.verdicts if v.verdict == "finding")
    assert first.name == "data-wait"
    assert all(v.name != "data-wait" for v in fixed.verdicts if v.verdict == "finding")


def test_labelled_loops_of_another_day(corpus: Path) -> None:
    folder = corpus / "traces" / "h200"
    labels = json.loads((folder / "labels.json").read_text())["cases"]
    for name, ill in (
        ("data_starved", "data-wait"),
        ("pageable_copy", "pageable-copy"),
        ("decode_no_graph", "launch-bound"),
    ):
        top = next(v for v in api.trace(folder / f"{name}.json.gz").verdicts if v.verdict == "finding")
        assert top.name == ill and top.gain is not None
        assert (top.gain.low or 9) <= labels[name]["speedup"] <= (top.gain.high or 0)
    for name in ("healthy", "data_starved.cured"):
        case = api.trace(folder / f"{name}.json.gz")
        assert all(v.severity == "info" for v in case.verdicts if v.verdict == "finding"), name
