"""A tuned loader as text and as plain values."""

import textwrap
from collections.abc import Iterator
from typing import Any

import msgspec

from wellfed.model.loader import LoaderProbe, LoaderResult, LoaderStages
from wellfed.report.words import clean

SCHEMA = 1


def plain(result: LoaderResult) -> dict[str, Any]:
    """Values for JSON: `loader` and `verdicts`."""
    tree: dict[str, Any] = msgspec.to_builtins(result)
    verdicts = tree.pop("verdicts")
    return {"schema": SCHEMA, "loader": tree, "verdicts": verdicts}


def render(result: LoaderResult, *, width: int, color: bool = False) -> str:
    """What to set, what it brings, what was measured for it, what limits next, and what is wrong with the loader."""
    lines = [*_wrapped(headline(result), width), ""]
    if result.chosen:
        lines += ["Set", *_diff(result), ""]
    lines += [
        "Measured  samples a second of each setting, in turn",
        *(_probe(probe) for probe in result.probes),
        "",
    ]
    lines += ["Where a batch's time goes  in one process", *_stages(result.stages), ""]
    for subject, text in _facts(result):
        lines += _wrapped(f"{subject:<9} {text}", width, first="  ", rest=" " * 12)
    findings = [v for v in result.verdicts if v.verdict == "finding" and v.name != "loader-starves"]
    if findings:
        lines += ["", "Also"]
        for verdict in findings:
            lines += _wrapped(
                f"{verdict.severity.upper()} {verdict.code} {verdict.name}: {clean(verdict.message)}",
                width,
                first="  ",
                rest="    ",
            )
            if verdict.remedy:
                lines += _wrapped(f"remedy: {clean(verdict.remedy)}", width, first="    ", rest="    ")
    return "\n".join(lines).rstrip() + "\n"


def headline(result: LoaderResult) -> str:
    """The one sentence."""
    if not result.chosen:
        return f"no setting is advised: {'; '.join(result.reasons) or 'none could be measured within the budgets'}"
    rate = f"{result.rate:,.4g} samples/s" if result.rate else "a rate not known"
    setting = ", ".join(f"{name}={value}" for name, value in result.chosen.items())
    if result.demand is not None and result.rate is not None:
        enough = "enough for" if result.rate >= result.demand else "not enough for"
        return f"{setting}: {rate}, {enough} the {result.demand:,.4g} that are needed"
    if result.current_rate and result.rate:
        return f"{setting}: {rate}, {result.rate / result.current_rate:.2f} times the {result.current_rate:,.4g} of now"
    return f"{setting}: {rate}"


def _diff(result: LoaderResult) -> Iterator[str]:
    current = result.current or {}
    for name, value in result.chosen.items():
        before = current.get(name)
        if before == value:
            yield f"    {name}={value!r},"
        else:
            if name in current and before is not None:
                yield f"  - {name}={before!r},"
            yield f"  + {name}={value!r},"


def _probe(probe: LoaderProbe) -> str:
    setting = probe.setting
    name = f"num_workers={setting.workers}" + (
        f", prefetch_factor={setting.prefetch}" if setting.prefetch else ""
    )
    name += "" if setting.in_order else ", in_order=False"
    if probe.measured is None:
        return f"  {name:<34} {probe.state}: {probe.why or 'not measured'}"
    spread = (
        f" ({probe.low:,.4g} to {probe.high:,.4g})"
        if probe.low is not None and probe.high is not None
        else ""
    )
    model = f", predicted {probe.predicted:,.4g}" if probe.predicted else ""
    return f"  {name:<34} {probe.measured:>9,.4g}{spread}, n = {probe.n}{model}"


def _stages(stages: LoaderStages) -> Iterator[str]:
    parts = {
        "reading": stages.read_s,
        "decoding": stages.decode_s,
        "sleeping or waiting": stages.sleep_s,
        "collating": stages.collate_s,
    }
    parts |= {f"transform {clean(name)}": spent for name, spent in stages.transforms.items()}
    yield f"  {'fetching a batch':<34} {stages.fetch_s * 1e3:>9.4g} ms, of it {stages.fetch_cpu_s * 1e3:.4g} ms of CPU"
    for name, spent in parts.items():
        if spent and spent > 0.005 * stages.fetch_s:
            yield f"  {name[:34]:<34} {spent * 1e3:>9.4g} ms"
    if stages.ipc_s:
        yield f"  {'from a worker to the main process':<34} {stages.ipc_s * 1e3:>9.4g} ms"


def _facts(result: LoaderResult) -> Iterator[tuple[str, str]]:
    if result.ceiling is not None:
        yield (
            "ceiling",
            f"{result.ceiling:,.4g} samples/s is the most that any such setting gives here; {result.limit} limits",
        )
    if result.next:
        yield "next", clean(result.next)
    if result.headspace is not None:
        yield (
            "headspace",
            f"batches replayed from memory would come {result.headspace:,.3g} times as fast as now",
        )
    budget = result.budget
    moved = (
        budget.measured and budget.measured_after and abs(budget.measured_after / budget.measured - 1) > 0.1
    )
    cores = (
        f"{budget.measured:.3g} of {budget.cores:.3g} cores were really ours"
        if budget.measured
        else f"{budget.cores:.3g} cores"
    )
    yield "cores", cores + (f", {budget.measured_after:.3g} at the end: unreliable" if moved else "")
    room = "" if budget.ram_bytes is None else f" of {budget.ram_bytes / 2**20:,.0f} MiB ({budget.ram_why})"
    yield (
        "memory",
        f"at most {budget.ram_peak / 2**20:,.0f} MiB by workers{room}; {budget.shm_peak / 2**20:,.0f} MiB of /dev/shm",
    )
    accuracy = (
        ""
        if result.accuracy is None
        else f"; the model was {result.accuracy:.0%} off (median) where it had not measured"
    )
    yield "trust", f"{result.confidence}{accuracy}, {result.seconds:.3g} s in all"
    for reason in (*result.reasons, *result.notes):
        yield "note", clean(reason)


def _wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> list[str]:
    return textwrap.wrap(text, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
