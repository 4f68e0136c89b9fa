"""Whether a trace can be judged at all: something in it, something that replays, every file read."""

from wellfed.analyze import Study
from wellfed.check.manual import Manual, rule
from wellfed.check.trace.verdicts import unjudged
from wellfed.model import Evidence, Gain, Verdict


@rule("T001", "no-gpu-event", layer="trace", severity="warning", trust="read")
def judge_presence(study: Study) -> Verdict | None:
    """The trace holds no GPU event, so nothing can be said of the GPU.

    What it looks at. Events of the categories kernel, memcpy and memset.

    Why it costs. Without them idle time is unknown: not 0, not 100 %.

    How it is judged. None at all: not judged. Otherwise this rule says nothing.

    Remedy. Record with `ProfilerActivity.CUDA` among the activities, on a machine whose driver lets CUPTI in.

    When to ignore. A host-only trace on purpose.

    Sources. Kineto's event categories (libkineto/src/output_json.cpp)
    """
    if study.rank.budget is not None:
        return None
    return unjudged("no-gpu-event", f"no GPU event in {study.rank.source}: idle time cannot be judged")


@rule("T002", "no-prediction", layer="trace", severity="info", trust="measured")
def judge_replay(study: Study) -> Verdict | None:
    """The steps cannot be replayed, so no gain is predicted.

    What it looks at. The steps replayed unchanged against the recorded ones.

    Why it costs. A model that does not give the recording back says nothing about a changed one.

    How it is judged. More than 2 % off, no steps, or no launch records: no predictions from this trace.

    Remedy. Record three to five whole steps with `schedule(wait=1, warmup=1, active=3)` and call `profiler.step()`.

    Sources. measured: identity within 0.5 % on 30 of 31 recorded loops (docs/validation/trace.md)
    """
    if study.rank.budget is None or study.refused is None:
        return None
    return unjudged("no-replay", f"no gains predicted: {study.refused}")


@rule("T003", "unreadable-file", layer="trace", severity="warning", trust="read")
def judge_readable(study: Study) -> Verdict | None:
    """One of several traces cannot be read.

    What it looks at. Every file named, or found in a folder.

    Why it costs. A rank that is left out may be the slow one.

    How it is judged. A file in which nothing can be read, beside others that can. (When none can, that is an error.)

    Remedy. Record or copy it again; a damaged file is read as far as it goes, so this one has nothing left.

    Sources. DESIGN: one unreadable file among readable ones is a finding of its own
    """
    return None  # a study is of a file that was read; `unreadable` makes the verdict of one that was not


def unreadable(name: str, why: str) -> Verdict:
    """The verdict of a file that cannot be read."""
    page: Manual = judge_readable.manual  # type: ignore[attr-defined]
    return Verdict(
        code=page.code,
        name=page.name,
        verdict="finding",
        severity="warning",
        layer="trace",
        message=f"{name} cannot be read, the others can: {why}",
        where={"file": name},
        evidence=(Evidence(source=name, text=why),),
        gain=Gain(basis="none"),
        remedy="record or copy it again",
        risk="safe",
    )
