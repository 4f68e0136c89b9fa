"""What a recording lacks, as one verdict with the options to add."""

from collections.abc import Sequence

from wellfed.analyze.capture import Lack
from wellfed.check.manual import rule
from wellfed.model import Evidence, Gain, Verdict

TOOLS = {"kineto": "torch", "nsys": "nsys", "jax": "jax"}


@rule("T010", "recording-lacks", layer="trace", severity="info", trust="measured")
def judge_recording(lacks: Sequence[Lack], *, source: str, kind: str) -> Verdict:
    """The recording lacks something that would have told more.

    What it looks at. Which kinds of events the file holds: GPU activity, launch calls, operators and their arguments,
    marks of steps and how many, start-up inside, kernels of graphs, stacks, records of synchronisation, the rank.

    Why it costs. What was not recorded cannot be judged: a cause without a name, a gain without a number.

    How it is judged. Missing activity, launches and steps always; arguments of operators where PyTorch recorded; the
    rest only where this recording would have needed it: stacks from 5 % of a step in which the host is silent or waits,
    records of synchronisation from 5 % in which streams wait, a warm-up when the first of four steps or more took 1.5
    times as long as the others, or 5 % of the recording outside of the steps is start-up.

    Remedy. The option named with each; `wellfed trace --how torch`, `nsys` or `jax` prints all of them.

    When to ignore. What the recording tells is enough for the question.

    Sources. measured: recordings with and without each option, PyTorch 2.11 and JAX 0.11 on an H200; PyTorch, Nsight
    Systems and JAX documentation of their profilers
    """
    if not lacks:
        return Verdict(code="", name="", verdict="pass", message="the recording holds what the checks need")
    first = ", ".join(lack.lacks for lack in lacks[:3]) + (
        f" and {len(lacks) - 3} more" if len(lacks) > 3 else ""
    )
    tool = TOOLS.get(kind)
    return Verdict(
        code="",
        name="",
        verdict="finding",
        severity="info",
        message=f"the recording lacks {first}",
        evidence=tuple(
            Evidence(source=source, at=lack.slug, text=f"leaves unsaid: {lack.unsaid}; add {lack.option}")
            for lack in lacks
        ),
        gain=Gain(basis="none", source="a better recording is no faster loop"),
        remedy="; ".join(lack.option for lack in lacks[:3]),
        risk="safe",
        verify=f"wellfed trace --how {tool}" if tool else None,
    )
