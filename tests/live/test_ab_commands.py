"""`wellfed ab` with real commands, tiny ones."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from wellfed.live.ab import Order, compare_commands, measure_once, read_metric
from wellfed.model import WellfedError

PYTHON = f"'{sys.executable}' -S -c"


def _silent(_: str) -> None:
    pass


def _order(**changes: object) -> Order:
    return Order(pairs=12, warmup=0)._replace(**changes)  # type: ignore[arg-type]


def test_runs_are_in_turn_and_the_difference_is_seen(tmp_path: Path) -> None:
    log = tmp_path / "order"
    a, b = (f"echo {name} >> '{log}'; echo took {value} ms" for name, value in (("A", 10), ("B", 12)))
    result = compare_commands(a, b, _order(shell=True, warmup=1, metric=r"regex:took (\d+)"), _silent)
    assert log.read_text().split() == ["A", "B"] + ["A", "B", "B", "A"] * 5, (
        "warm-up, then until it was decided"
    )
    assert result.decision.verdict == "worse" and result.decision.ratio == pytest.approx(1.2)
    assert [run.which for run in result.warmup] == ["A", "B"] and len(result.runs) == 20
    faster = compare_commands(
        a, b, _order(shell=True, metric=r"regex:took (\d+)", higher_is_better=True), _silent
    )
    assert faster.decision.verdict == "better"


def test_a_budget_ends_it_after_a_whole_pair() -> None:
    result = compare_commands("true", "true", _order(budget_s=1e-9), _silent)
    assert len(result.runs) == 2 and result.stopped == "the budget was spent"
    assert result.decision.verdict == "undecided" and result.decision.low is None


@pytest.mark.parametrize(
    ("command", "changes", "says"),
    [
        ("sh -c 'echo oh; exit 3'", {}, "ended with exit code 3: oh"),
        ("sh -c 'kill -9 $$'", {}, "was ended by signal 9"),
        ("no-such-program", {}, "No such file"),
        ("", {}, "empty command"),
        ("echo 'unclosed", {}, "No closing quotation"),
        ("sleep 20", {"timeout_s": 0.1}, "did not end within 0.1 s"),
        ("echo nothing", {"metric": r"regex:(\d+)"}, "has nothing like"),
        ("echo -5", {"metric": r"regex:(-?\d+)"}, "positive numbers"),
        ("echo 0", {"metric": r"regex:(\d+)"}, "positive numbers"),
        ("echo nan", {"metric": r"regex:(\w+)"}, "is no number"),
        ("echo hello", {"metric": "json:a"}, "no JSON"),
        ("echo '{\"a\": {}}'", {"metric": "json:a.b"}, "nothing at b"),
        ("echo '{\"a\": true}'", {"metric": "json:a"}, "is no number"),
        ("true", {"prepare": "false"}, "--prepare ended with exit code 1"),
    ],
)
def test_what_goes_wrong_is_said(command: str, changes: dict[str, object], says: str) -> None:
    with pytest.raises(WellfedError, match=says.replace("(", r"\(")):
        compare_commands(command, command, _order(**changes), _silent)


@pytest.mark.parametrize("metric", ["", "time", "regex:", "regex:(", r"regex:\d+", "regex:(a)(b)", "json:"])
def test_a_metric_that_is_none_is_refused_before_anything_runs(metric: str, tmp_path: Path) -> None:
    with pytest.raises(WellfedError):
        compare_commands(f"touch '{tmp_path}/ran'", "true", _order(metric=metric), _silent)
    assert not list(tmp_path.iterdir())


def test_the_last_json_of_the_output_is_read() -> None:
    text = 'warming up\n{"a": 1}\n{"a": {"b": [4, {"c": 2.5}]}}\nbye\n'
    assert read_metric("json:a.b[1].c", text) == 2.5
    assert read_metric("json:a.b[-2]", text) == 4
    assert read_metric("json:[1]", "[1, 2]") == 2
    assert read_metric(r"regex:^x (\S+)$", "x 1\nx 2e3\n") == 2000


def test_children_do_not_outlive_a_timeout(tmp_path: Path) -> None:
    command = f"sleep 30 & echo $! > '{tmp_path}/pid'; wait"
    with pytest.raises(WellfedError, match="did not end"):
        measure_once(command, _order(shell=True, timeout_s=0.3))
    time.sleep(0.1)
    assert not _runs((tmp_path / "pid").read_text().strip())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_what_runs_does_not_outlive_us(number: signal.Signals, tmp_path: Path) -> None:
    """A batch system ends a job by SIGTERM: the command must not keep the GPU."""
    code = f"echo $$ > '{tmp_path}/pid'; sleep 60"
    argv = [sys.executable, "-m", "wellfed", "ab", code, code, "--shell", "--anyway"]
    process = subprocess.Popen(
        argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=_default_signals
    )
    until = time.monotonic() + 20
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(number)
    assert process.wait(20) != 0
    assert not _runs((tmp_path / "pid").read_text().strip())


def _default_signals() -> None:
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL if number != signal.SIGINT else signal.default_int_handler)


def _runs(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_the_verb(run_cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from wellfed.live import ab

    monkeypatch.setattr(ab, "disturbed", lambda: "9 of 2 CPUs are busy already")
    refused = run_cli("ab", "echo 5", "echo 5", "--metric", r"regex:(\d)")
    assert (
        refused.code == 2 and "too noisy to compare on: 9 of 2" in refused.err and "--anyway" in refused.err
    )
    args = ("ab", "echo 5", "echo 5", "--metric", r"regex:(\d)", "--runs", "40", "--anyway")
    text = run_cli(*args)
    assert text.code == 0 and text.out.startswith("no difference: 5% or more is ruled out")
    assert "(1.000 to 1.000 at 98%, this look alone)" in text.out, (
        "a verdict shows the interval that it stands on"
    )
    said = json.loads(run_cli(*args, "--format", "json").out)["ab"]
    assert said["decision"]["verdict"] == "no difference" and said["metric"] == r"regex:(\d)"
    assert {"which", "value", "seconds", "at_s"} == set(said["runs"][0])
