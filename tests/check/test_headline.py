"""One sentence on top: the first finding in its unit, what its cure promises, and how much could not be judged."""

import pytest

from wellfed.check.headline import headline as headline_of
from wellfed.model import Budget, Case, Cost, Gain, Headline, Machine, RankTrace, Verdict
from wellfed.model.devices import Gpu
from wellfed.model.trace import StepBudget

DATA_WAIT = Verdict(
    code="T110",
    name="data-wait",
    verdict="finding",
    severity="error",
    message="the loader keeps the GPU waiting 116 ms of each 162 ms step",
    cost=Cost(value=116.0, unit="ms/step"),
    gain=Gain(speedup=3.4, low=2.9, high=3.8, basis="modelled"),
    verify="wellfed ab 'A' 'B'",
)
SMALL = Verdict(code="T300", name="unfused", verdict="finding", severity="info", message="could be fused")
HOST = Verdict(
    code="CPU07", name="governor", verdict="finding", severity="warning", message="the governor saves power"
)
PASS = Verdict(code="CPU08", name="boost", verdict="pass")
BLIND = Verdict(code="GPU24", name="x", verdict="not-judged", reason="no-fact")
ELSEWHERE = Verdict(code="MEM02", name="x", verdict="not-judged", reason="not-applicable")


def budget(compute: int, *, comm: int = 0, copy: int = 0, idle: int = 0) -> Budget:
    return Budget(
        span_ns=compute + comm + copy + idle,
        compute_ns=compute,
        exposed_comm_ns=comm,
        exposed_copy_ns=copy,
        idle_ns=idle,
    )


BUSY = RankTrace(rank=0, budget=budget(90, idle=10), idle={"launch-latency": 10})


def headline(*verdicts: Verdict, traced: bool = False) -> Headline:
    return headline_of(Case(verdicts=verdicts, ranks=(RankTrace(rank=0),) if traced else ()))


def test_the_headline_is_the_first_finding_of_the_trace_in_its_unit() -> None:
    head = headline(HOST, DATA_WAIT, BLIND, BLIND, ELSEWHERE, traced=True)
    assert head.text == (
        "the loader keeps the GPU waiting 116 ms of each 162 ms step; "
        "cured, a step is 2.9 to 3.8 times as fast (modelled) (2 checks could not be judged)"
    )
    assert (head.value, head.unit, head.next_command) == (116.0, "ms/step", "wellfed ab 'A' 'B'")


def test_without_a_trace_it_is_the_first_finding_of_the_machine() -> None:
    head = headline(PASS, HOST)
    assert head.text == "the governor saves power"
    assert (head.value, head.next_command) == (None, "wellfed explain CPU07")


def test_an_opportunity_is_no_headline() -> None:
    assert headline(SMALL, HOST, traced=True).text == "the governor saves power"


@pytest.mark.parametrize(
    ("case", "says"),
    [
        (
            Case(verdicts=(PASS, BLIND, BLIND)),
            "nothing found by the 1 check that could be judged (2 checks could not be judged)",
        ),
        (
            Case(machine=Machine(), verdicts=(BLIND, BLIND)),
            "no GPU seen, and not one check could be judged (2 checks could not be judged)",
        ),
        (
            Case(verdicts=(PASS, BLIND)),
            "nothing found that starves this machine (1 check could not be judged)",
        ),
        (Case(machine=Machine(gpus=(Gpu(index=0),))), "nothing found that starves this machine"),
        (Case(), "nothing was read that could be judged"),
        (Case(machine=Machine()), "no GPU seen, and nothing found that would starve one"),
        (Case(ranks=(BUSY,), verdicts=(SMALL,)), "nothing found that starves this work"),
        (
            Case(ranks=(BUSY,), machine=Machine()),
            "nothing found that starves this work or this machine",
        ),
    ],
)
def test_nothing_found_says_so_and_how_much_could_not_be_judged(case: Case, says: str) -> None:
    assert headline_of(case).text == says


@pytest.mark.parametrize(
    ("ranks", "says"),
    [
        ((RankTrace(rank=0),), "no GPU event was recorded: what starves this work is not known"),
        (
            (RankTrace(budget=budget(2, copy=97, idle=1), idle={"orphan": 1}),),
            "the GPU computes 2% of the recording, copies take 97%; what a cure of that is worth is not known",
        ),
        (
            (BUSY, RankTrace(rank=3, budget=budget(28, idle=72), idle={"launch-bound": 70, "orphan": 2})),
            "the GPU of rank 3 computes 28% of the recording, idle (launch-bound) takes 70%; "
            "what a cure of that is worth is not known",
        ),
        (
            (
                RankTrace(
                    budget=budget(90, idle=10),
                    step_budget=StepBudget(
                        n=3,
                        span_ns=100,
                        compute_ns=50,
                        exposed_comm_ns=0,
                        exposed_copy_ns=40,
                        idle_ns=10,
                    ),
                    step_idle={"queue-wait": 10},
                ),
            ),
            "the GPU computes 50% of a step, copies take 40%; what a cure of that is worth is not known",
        ),
    ],
)
def test_a_gpu_that_hardly_computes_is_not_said_to_be_well_fed(
    ranks: tuple[RankTrace, ...], says: str
) -> None:
    """No finding above info: without steps none is claimed, and not every wait has a known cure."""
    assert headline_of(Case(ranks=ranks, verdicts=(SMALL,))).text == says
