"""`wellfed --help` loads a table, not even click. Times are measured by benchmarks/startup.py; what is loaded can
be asserted exactly."""

import json
import subprocess
import sys

import pytest

HEAVY = {
    "rich",
    "msgspec",
    "numpy",
    "importlib.metadata",
    "yaml",
    "psutil",
    "pynvml",
    "vl_convert",
    "asyncio",
    "ctypes",
}


def loaded_by(*args: str) -> set[str]:
    """Modules that are loaded after one command line, in a fresh interpreter."""
    program = (
        "import sys, json, io, contextlib\n"
        "from wellfed.cli.main import run\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    run({list(args)!r})\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    return set(json.loads(done.stdout))


@pytest.mark.parametrize("args", [("--help",), ("--version",), ("nonsense",), ("check", "--help")])
def test_the_front_door_is_light(args: tuple[str, ...]) -> None:
    assert loaded_by(*args) & HEAVY == set()


def test_help_loads_no_room() -> None:
    rooms = {name for name in loaded_by("--help") if name.startswith("wellfed")}
    assert rooms == {"wellfed", "wellfed._version", "wellfed.cli", "wellfed.cli.main"}
    assert not loaded_by("--help") & {"click", "typing", "inspect"}


def test_help_is_the_same_by_every_way() -> None:
    from wellfed.cli.main import PAGE
    from wellfed.cli.verbs import cli

    with cli.make_context("wellfed", ["check"], resilient_parsing=True) as ctx:
        assert cli.get_help(ctx) == PAGE


def test_judging_a_machine_loads_no_numpy() -> None:
    assert (
        loaded_by("check", "--fail-on", "never") & {"numpy", "rich", "vl_convert", "yaml", "torch"} == set()
    )
