"""How to record, and what a recording lacks: the printed lines are programs, and each lack names its option."""

import ast
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from trace_builder import Event, event, simulate, write

from wellfed import api
from wellfed.cli.main import run
from wellfed.model import Verdict
from wellfed.report.recipes import RECIPES, recipe

PYTHON, SHELL = ("torch", "jax", "memory"), ("nsys", "hang")


# -- the lines --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", PYTHON)
def test_python_recipes_are_programs(how: str) -> None:
    ast.parse(recipe(how))


@pytest.mark.parametrize("how", SHELL)
def test_shell_recipes_are_programs(how: str) -> None:
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("no bash")
    assert subprocess.run([shell, "-n"], input=recipe(how).encode(), check=False).returncode == 0


def test_the_lines_are_narrow_and_plain() -> None:
    assert set(RECIPES) == {*PYTHON, *SHELL}
    for text in RECIPES.values():
        assert text.isascii() and text.endswith("\n") and max(map(len, text.splitlines())) <= 115


def test_the_torch_lines_record_what_they_say() -> None:
    """Of the call that is printed: both activities, shapes on, nothing dear, and the steps that its comment counts."""
    calls = {
        ast.unparse(node.func): node
        for node in ast.walk(ast.parse(recipe("torch")))
        if isinstance(node, ast.Call)
    }
    asked: dict[str, Any] = {k.arg: ast.unparse(k.value) for k in calls["profile"].keywords if k.arg}
    assert "ProfilerActivity.CPU" in asked["activities"] and "ProfilerActivity.CUDA" in asked["activities"]
    assert asked["record_shapes"] == "True"
    assert not {"with_stack", "profile_memory", "with_flops"} & asked.keys()
    schedule = {k.arg: ast.literal_eval(k.value) for k in calls["schedule"].keywords}
    quiet = schedule["skip_first"] + schedule["wait"] + schedule["warmup"]
    assert schedule[
        "active"
    ] >= 3 and f"# steps {quiet} to {quiet + schedule['active'] - 1} are kept" in recipe("torch")
    assert f"must call prof.step() {quiet + schedule['active']} times" in recipe("torch")


def test_how_needs_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    for how in RECIPES:
        assert run(["trace", "--how", how]) == 0
        assert capsys.readouterr().out == recipe(how)
    assert run(["trace", "--how", "perf"]) == 2
    assert run(["trace"]) == 2


# -- what is missing --------------------------------------------------------------------------------------


def said(path: Path, **more: Any) -> Verdict:
    (verdict,) = (v for v in api.trace(path, **more).verdicts if v.code == "T010")
    return verdict


def lacks(verdict: Verdict) -> dict[str, str]:
    assert verdict.severity == "info"
    return {evidence.at or "": evidence.text for evidence in verdict.evidence}


def shaped(events: list[Event]) -> list[Event]:
    """With an operator that tells its arguments."""
    more = event(
        "cpu_op",
        "aten::mm",
        1001.0,
        2.0,
        **{"Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]},
    )
    return [*events, more]


def test_a_good_recording_lacks_nothing(tmp_path: Path) -> None:
    good = said(write(tmp_path / "t_rank0.json", shaped(simulate().events)))
    assert good.verdict == "pass" and good.evidence == ()


def test_each_lack_names_the_option(tmp_path: Path) -> None:
    whole = shaped(simulate().events)

    def of(name: str, events: list[Event], **more: Any) -> dict[str, str]:
        return lacks(said(write(tmp_path / f"{name}.json", events, **more)))

    gpu = of("cpu", [e for e in whole if e["cat"] != "kernel"])
    assert list(gpu) == ["no-gpu-events"] and "ProfilerActivity.CUDA" in gpu["no-gpu-events"]
    launches = of("launches", [e for e in whole if e["cat"] != "cuda_runtime"])
    assert "why the GPU was idle" in launches["no-launches"]
    steps = of("steps", [e for e in whole if e["cat"] != "user_annotation"])
    assert list(steps) == ["no-steps"] and "prof.step()" in steps["no-steps"]
    shapes = of("shapes", [*simulate().events, event("cpu_op", "aten::mm", 1001.0, 2.0)], record_shapes=0)
    assert list(shapes) == ["no-shapes"] and "record_shapes=True" in shapes["no-shapes"]
    few = of("few", shaped(simulate(steps=2).events))
    assert list(few) == ["few-steps"] and "active=4" in few["few-steps"]
    operators = of("gpu", [e for e in whole if e["cat"] in ("kernel", "cuda_runtime")])
    assert {"no-operators", "no-steps"} <= operators.keys()


def test_what_was_cut_on_purpose_is_no_lack(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", shaped(simulate(steps=6).events))
    assert said(path, window=(0, 5_000_000)).verdict == "pass"
    assert not [v for v in api.trace(path, steps=(1, 1)).verdicts if v.code == "T010"]


def test_stacks_are_asked_for_only_where_the_host_is_silent(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", shaped(simulate(steps=5, silence_us=5_000.0).events))
    assert "with_stack=True" in lacks(said(path))["no-stacks"]


def test_a_first_step_that_takes_longer_is_warm_up(tmp_path: Path) -> None:
    first = simulate(steps=6).events
    cut = sorted(e["ts"] for e in first if e["cat"] == "user_annotation")[1] - 1.0
    # all but the first step come 20 ms later
    late = [{**e, "ts": e["ts"] + (20_000.0 if e["ts"] > cut else 0.0)} for e in first]
    mark = min((e for e in late if e["cat"] == "user_annotation"), key=lambda e: e["ts"])
    mark["dur"] += 20_000.0
    found = lacks(said(write(tmp_path / "t.json", shaped(late))))
    assert "skip_first=10" in found["warm-up"]
