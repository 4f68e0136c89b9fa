"""One sentence on top: the first finding in its unit, what its cure promises, and how much could not be judged."""

import pytest

from wellfed.check.headline import headline as headline_of
from wellfed.model import Case, Cost, Gain, Headline, Machine, RankTrace, Verdict
from wellfed.model.machine import Gpu

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
            Case(verdicts=(PASS, BLIND)),
            "nothing found that starves this machine (1 check could not be judged)",
        ),
        (Case(machine=Machine(gpus=(Gpu(index=0),))), "nothing found that starves this machine"),
        (Case(machine=Machine()), "no GPU seen, and nothing found that would starve one"),
        (Case(ranks=(RankTrace(),), verdicts=(SMALL,)), "nothing found that starves this work"),
        (
            Case(ranks=(RankTrace(),), machine=Machine()),
            "nothing found that starves this work or this machine",
        ),
    ],
)
def test_nothing_found_says_so_and_how_much_could_not_be_judged(case: Case, says: str) -> None:
    assert headline_of(case).text == says
