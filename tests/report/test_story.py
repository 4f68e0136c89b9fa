"""What a report says: the parts of a step add up, groups and headlines come out right."""

import report_cases as cases
from hypothesis import given, settings
from hypothesis import strategies as st

from wellfed.model import Case, Cost, Gain, RankTrace, Verdict
from wellfed.model.base import replace
from wellfed.model.trace import StepBudget
from wellfed.report import story

CAUSES = [name for name, (group, _) in story.PARTS.items() if group in ("idle", "overhead", "unknown")]


@given(
    st.lists(st.integers(0, 10**9), min_size=3, max_size=3),
    st.dictionaries(st.sampled_from(CAUSES), st.integers(0, 10**9)),
    st.sampled_from([0.0, 0.01, 0.2]),
)
@settings(max_examples=150, deadline=None)
def test_parts_sum_to_the_span_and_follow_each_other(
    busy: list[int], idle: dict[str, int], small: float
) -> None:
    span = sum(busy) + sum(idle.values())
    budget = StepBudget(
        n=3, span_ns=span, compute_ns=busy[0], exposed_comm_ns=busy[1], exposed_copy_ns=busy[2],
        idle_ns=sum(idle.values()),
    )  # fmt: skip
    told = story.step_story(RankTrace(step_budget=budget, step_idle=idle), small=small)
    if span == 0:
        assert told is None
        return
    assert told is not None
    assert sum(part.ns for part in told.parts) == span
    ends = [part.start_ns + part.ns for part in told.parts]
    assert [part.start_ns for part in told.parts] == [0, *ends[:-1]]
    assert all(part.ns > 0 for part in told.parts)


def test_small_parts_fold_only_when_there_are_two_of_them() -> None:
    told = story.step_story(cases.rank())
    assert told is not None
    assert [part.name for part in told.parts] == ["compute", "data-wait", "launch-bound", "3 smaller"]
    whole = story.step_story(cases.rank(), small=0.0)
    assert whole is not None
    assert len(whole.parts) == 6


def test_what_was_not_replayed_is_not_said_to_be_free_of_the_profiler() -> None:
    rank = cases.rank()
    free = story.step_story(replace(rank, replay={"unprofiled_step_ns": {"expected": 1}}))
    kept = story.step_story(replace(rank, replay={"identity_error_pct": 35.4}))
    assert free is not None and "cost taken off" in free.basis
    assert kept is not None and "as recorded" in kept.basis and "taken off" not in kept.basis


def test_a_replayed_step_is_a_mean_and_a_recorded_one_a_median() -> None:
    rank = cases.rank()
    free = story.step_story(replace(rank, replay={"unprofiled_step_ns": {"expected": 1}}))
    kept = story.step_story(replace(rank, replay={"identity_error_pct": 35.4}))
    assert free is not None and free.basis.startswith("mean of 3 replayed steps")
    assert kept is not None and kept.basis.startswith("median of 3 steps")


def test_a_cure_in_the_users_program_is_not_said_to_be_a_change_of_the_host() -> None:
    mine = Verdict(code="T120", name="launch-bound", verdict="finding", layer="trace", risk="safe")
    assert "your program" in (story.risk_phrase(mine) or "")
    assert "undone at once" not in (story.risk_phrase(mine) or "")
    host = replace(mine, code="CPU07", layer="cpu")
    assert "undone at once" in (story.risk_phrase(host) or "")
    assert story.risk_phrase(replace(mine, risk=None)) is None


def test_a_cost_of_the_unprofiled_step_says_so() -> None:
    cost = Cost(value=1.3, unit="ms/step")
    free = Verdict(
        code="T120", name="launch-bound", verdict="finding", layer="trace", cost=cost,
        gain=Gain(speedup=1.1, measured_in="time of the unprofiled step", basis="modelled"),
    )  # fmt: skip
    assert "ms/step without the profiler" in (story.cost_phrase(free) or "")
    assert "profiler" not in (story.cost_phrase(replace(free, gain=Gain())) or "")
    assert story.cost_phrase(replace(free, cost=None)) is None


def test_without_whole_steps_the_capture_is_told_and_called_so() -> None:
    rank = cases.rank()
    told = story.step_story(RankTrace(budget=rank.budget, idle=rank.idle))
    assert told is not None
    assert not told.whole_step
    assert "capture" in told.title
    assert rank.budget is not None
    assert told.span_ns == rank.budget.span_ns


def test_the_most_starved_rank_is_shown() -> None:
    shown = story.shown_rank(cases.eight_ranks())
    assert shown is not None
    assert shown.rank == 5
    assert story.shown_rank(cases.no_gpu_events()) is None


def test_not_judged_groups_by_reason_and_puts_what_does_not_apply_last() -> None:
    groups = story.not_judged(cases.starved())
    assert [(group.reason, group.total) for group in groups] == [
        ("denied", 2),
        ("no-fact", 1),
        ("not-applicable", 2),
    ]
    assert len(groups[0].groups) == 1  # two checks, one message


def test_findings_stand_by_worth() -> None:
    assert [verdict.code for verdict in story.findings(cases.starved())] == ["T110", "CPU07", "T401"]


def test_headline_falls_back_to_the_plainest_true_sentence() -> None:
    assert story.headline(Case()).text == "nothing was looked at"
    assert story.headline(cases.no_gpu_events()).text == "the trace holds no GPU event"
    assert story.headline(cases.eight_ranks()).text.startswith("Seven ranks wait 29 ms")
    assert (
        story.headline(cases.host_only(), "check").text
        == "2 findings (1 warning, 1 info), 2 pass, 5 not judged"
    )
    assert story.headline(cases.host_only(), "measure").text == "4 ceilings measured, 1 low, 1 noisy"
    assert story.headline(cases.host_only(), "inspect").text.startswith("1 x NVIDIA H200, 16 CPUs")


def test_next_command_is_the_proof_of_the_best_cure() -> None:
    assert story.next_command(cases.starved()) == cases.data_wait().verify
    assert story.next_command(cases.eight_ranks()) == "wellfed explain T210"
    assert story.next_command(cases.healthy()) is None
    assert story.next_command(Case()) == "wellfed doctor --demo"


def test_code_list_says_how_many_it_leaves_out() -> None:
    verdicts = [Verdict(code=f"C{n}", name="x", verdict="pass") for n in range(5)]
    assert story.code_list(verdicts, limit=3) == "C0, C1, C2 and 2 more"


def test_a_latency_is_told_as_a_multiple_of_its_reference() -> None:
    _low, best, latency, noisy = cases.ceilings()
    assert (story.of_peak(best) or "").replace("\xa0", " ") == "83.8 % of 4.80 TB/s"
    assert (story.of_peak(latency) or "").replace("\xa0", " ") == "1.34x of 90 ns"
    assert story.of_peak(noisy) is None
