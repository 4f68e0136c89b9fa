"""Running two commands in turn: A B, B A, A B, ... each in a process group of its own, until it is decided or enough."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

from wellfed.bench import noise
from wellfed.bench.setup import allowed_cpus
from wellfed.model import WellfedError
from wellfed.model.ab import AbResult, Decision, Run
from wellfed.predict import two_commands
from wellfed.predict.statistics import percentile

Which = Literal["A", "B"]
MAX_OUTPUT = 64 << 20
"""Bytes of a command's output in which a metric is looked for: the last ones."""
MAX_STEAL_PCT, MAX_THROTTLED_PCT = 3.0, 1.0
_STEP = re.compile(r"([^.\[\]]+)|\[(-?\d+)\]")


class Order(NamedTuple):
    """How a comparison is run. `pairs` at most, `budget_s` at most (a pair that began is ended), `warmup` runs of each that do not count,
    `timeout_s` for one run. `prepare` is run before each. With `shell` commands go through sh."""

    metric: str = "wall"
    higher_is_better: bool = False
    pairs: int = 60
    budget_s: float | None = None
    warmup: int = 1
    timeout_s: float | None = None
    prepare: str | None = None
    shell: bool = False
    least: float = two_commands.LEAST
    confidence: float = two_commands.CONFIDENCE


def compare_commands(a: str, b: str, order: Order, say: Callable[[str], None]) -> AbResult:
    """Raises WellfedError when a command can't be run, fails, or does not show the metric."""
    with ending_what_runs():
        return _compared(a, b, order, say)


def _compared(a: str, b: str, order: Order, say: Callable[[str], None]) -> AbResult:
    check_metric(order.metric)
    before, began = noise.read_counters(), time.monotonic()
    commands: dict[Which, str] = {"A": a, "B": b}

    def one(which: Which) -> Run:
        at_s = time.monotonic() - began
        if order.prepare:
            _run(order.prepare, order, "--prepare")
        value, seconds = measure_once(commands[which], order)
        return Run(which=which, value=value, seconds=seconds, at_s=at_s)

    warmup = [one(which) for _ in range(order.warmup) for which in ("A", "B")]
    runs: list[Run] = []
    decision, stopped = None, f"{order.pairs} pairs were run"
    ends = two_commands.looks(order.pairs)
    for pair in range(1, order.pairs + 1):
        turn: tuple[Which, Which] = ("A", "B") if pair % 2 else ("B", "A")
        runs += [one(which) for which in turn]
        decision = _decide(runs, order)
        say(_estimate(decision))
        if pair in ends and decision.verdict != "undecided":
            stopped = "it was decided"
            break
        if order.budget_s is not None and time.monotonic() - began >= order.budget_s:
            stopped = "the budget was spent"
            break
    assert decision is not None
    decision = two_commands.with_bootstrap(decision, *_values(runs))
    values_a, values_b = _values(runs)
    return AbResult(
        a=a, b=b, metric=order.metric, unit="s" if order.metric == "wall" else "ms" if order.metric == "step" else "",
        higher_is_better=order.higher_is_better, decision=decision,
        median_a=median(values_a), median_b=median(values_b),
        spread_pct=(_spread(values_a), _spread(values_b)),
        runs=tuple(runs), warmup=tuple(warmup), noise=noise.disturbance(before, noise.read_counters()),
        seconds=round(time.monotonic() - began, 3), stopped=stopped,
    )  # fmt: skip


@contextmanager
def ending_what_runs() -> Iterator[None]:
    """SIGTERM and SIGHUP become an exit of ours, so that the command that runs, which is in a group of its own, is ended too.
    What `nohup` has put aside stays aside."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    watched = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {one: signal.signal(one, leave) for one in watched}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def disturbed(seconds: float = 0.5) -> str | None:
    """Why this machine can't compare anything now; None when nothing stands against it. Watches it for so long."""
    before = noise.read_counters()
    busy = _busy_cpus(seconds)
    seen = noise.disturbance(before, noise.read_counters())
    cpus = len(allowed_cpus())
    reasons = []
    if seen.get("steal_pct", 0.0) > MAX_STEAL_PCT:
        reasons.append(f"the hypervisor takes {seen['steal_pct']:.2g} % of the CPU time")
    if seen.get("throttled_pct", 0.0) > MAX_THROTTLED_PCT:
        reasons.append(f"a CPU quota stops us for {seen['throttled_pct']:.2g} % of the time")
    if busy is not None and busy > max(0.5, cpus - 1):
        reasons.append(f"{busy:.2g} of {cpus} CPUs are busy already")
    return ", ".join(reasons) or None


def _busy_cpus(seconds: float) -> float | None:
    """How many CPUs were at work, on average, while this process slept."""
    import psutil

    before = psutil.cpu_times()
    time.sleep(seconds)
    after = psutil.cpu_times()
    idle = sum(
        getattr(after, name, 0.0) - getattr(before, name, 0.0)
        for name in ("idle", "iowait", "steal", "guest")
    )
    total = sum(after) - sum(before)
    return (os.cpu_count() or 1) * max(1 - idle / total, 0.0) if total > 0 else None


def _decide(runs: Sequence[Run], order: Order) -> Decision:
    return two_commands.decide(
        *_values(runs),
        pairs=order.pairs,
        higher_is_better=order.higher_is_better,
        confidence=order.confidence,
        least=order.least,
    )


def _values(runs: Sequence[Run]) -> tuple[list[float], list[float]]:
    return [r.value for r in runs if r.which == "A"], [r.value for r in runs if r.which == "B"]


def _estimate(decision: Decision) -> str:
    return f"{decision.n} pairs: B is {decision.ratio:.3f} of A so far"


def _spread(values: Sequence[float]) -> float:
    """The middle 80 % over the median, in %."""
    return round(100 * (percentile(values, 90) - percentile(values, 10)) / median(values), 2)


# -- one run -----------------------------------------------------------------------------------------------


def measure_once(command: str, order: Order) -> tuple[float, float]:
    """The metric of one run, and its wall seconds."""
    if order.metric == "step":
        return _steps(command, order)
    text, seconds = _run(command, order, f"`{_short(command)}`", capture=order.metric != "wall")
    value = seconds if order.metric == "wall" else read_metric(order.metric, text)
    if not value > 0 or value == float("inf"):
        raise WellfedError(
            f"`{_short(command)}` gave {value:g} for {order.metric}: ratios need positive numbers",
            hint="--metric 'json:PATH' or 'regex:WORDS ([0-9.]+)'",
        )
    return value, seconds


def check_metric(metric: str) -> None:
    """Raises WellfedError unless it is one that can be read."""
    kind, _, rest = metric.partition(":")
    if metric in ("wall", "step") or (kind == "json" and rest):
        return
    if kind == "regex" and rest:
        try:
            groups = re.compile(rest).groups
        except re.error as error:
            raise WellfedError(f"--metric {metric}: {error}", hint=_LIKELY) from error
        if groups == 1:
            return
        raise WellfedError(f"--metric {metric} has {groups} groups, not one: the number", hint=_LIKELY)
    raise WellfedError(f"no metric {metric!r}: wall, step, regex:PATTERN or json:PATH", hint=_LIKELY)


_LIKELY = "wellfed ab A B --metric 'regex:throughput: ([0-9.]+)'"


def read_metric(metric: str, text: str) -> float:
    """The last number that the pattern finds, or the number at the path in the last line or text that is JSON."""
    kind, _, rest = metric.partition(":")
    if kind == "regex":
        found = re.findall(rest, text, flags=re.MULTILINE)
        if not found:
            raise WellfedError(f"the output has nothing like {rest!r}", hint=_LIKELY)
        return _number(found[-1], metric)
    return _number(_at_path(_json_of(text), rest), metric)


def _number(value: Any, metric: str) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else float("nan")
    except (TypeError, ValueError):
        number = float("nan")
    if number != number:
        raise WellfedError(f"--metric {metric}: {str(value)[:80]!r} is no number", hint=_LIKELY)
    return number


def _json_of(text: str) -> Any:
    for candidate in (text, *reversed(text.splitlines()[-1000:])):
        if candidate.lstrip()[:1] in ("{", "["):
            with suppress(ValueError, RecursionError):
                return json.loads(candidate)
    raise WellfedError("the output holds no JSON", hint=_LIKELY)


def _at_path(tree: Any, path: str) -> Any:
    for name, index in _STEP.findall(path):
        try:
            tree = tree[int(index)] if index else tree[name]
        except (KeyError, IndexError, TypeError) as error:
            raise WellfedError(
                f"the JSON has no {path}: nothing at {name or f'[{index}]'}", hint=_LIKELY
            ) from error
    return tree


def _steps(command: str, order: Order) -> tuple[float, float]:
    """The median step in ms, of the ranks' medians, under `wellfed run`."""
    with tempfile.TemporaryDirectory(prefix="wellfed-ab-") as folder:
        file = Path(folder) / "run.json"
        argv = [
            sys.executable,
            "-m",
            "wellfed",
            "run",
            "--quiet",
            "-o",
            str(file),
            "--",
            *_argv(command, order),
        ]
        _, seconds = _run(shlex.join(argv), order._replace(shell=False), f"`{_short(command)}`")
        try:
            ranks = json.loads(file.read_bytes())["run"]["ranks"]
            steps = [rank["step_ms"]["median"] for rank in ranks if rank.get("step_ms")]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise WellfedError(
                f"`wellfed run` told no steps of `{_short(command)}`", hint="--metric wall"
            ) from error
    if not steps:
        raise WellfedError(f"no step was seen in `{_short(command)}`", hint="--metric wall")
    return float(median(steps)), seconds


def _argv(command: str, order: Order) -> list[str]:
    if order.shell:
        return ["/bin/sh", "-c", command]
    try:
        argv = shlex.split(command)
    except ValueError as error:
        raise WellfedError(
            f"`{_short(command)}`: {error}", hint="wellfed ab --shell 'CMD A' 'CMD B'"
        ) from error
    if not argv:
        raise WellfedError("an empty command can't be run", hint="wellfed ab 'CMD A' 'CMD B'")
    return argv


def _run(command: str, order: Order, what: str, *, capture: bool = False) -> tuple[str, float]:
    """Run it to its end; its output (when it is wanted) and wall seconds. It and its children are ended when it takes too long and
    when we are interrupted."""
    argv = _argv(command, order)
    with tempfile.TemporaryFile() as output:
        start = time.perf_counter()
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            raise WellfedError(
                f"can't run {what}: {error.strerror}", hint="wellfed ab --shell 'CMD A' 'CMD B'"
            ) from error
        try:
            code = process.wait(order.timeout_s)
            seconds = time.perf_counter() - start
        except subprocess.TimeoutExpired as error:
            raise WellfedError(
                f"{what} did not end within {order.timeout_s:g} s",
                hint="wellfed ab --timeout 600 'CMD A' 'CMD B'",
            ) from error
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        size = output.seek(0, os.SEEK_END)
        if code != 0 or capture:
            output.seek(max(size - MAX_OUTPUT, 0))
            text = output.read().decode(errors="replace")
        else:
            text = ""
    if code != 0:
        said = [line for line in text.splitlines() if line.strip()]
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise WellfedError(
            f"{what} {how}" + (f": {said[-1][:200]}" if said else ""), hint="run it alone first"
        )
    return text, seconds


def _short(command: str) -> str:
    return command if len(command) <= 60 else command[:57] + "..."
