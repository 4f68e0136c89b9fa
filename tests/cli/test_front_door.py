"""Verbs are found by a table, and every error is two lines and an exit code."""

import importlib
import subprocess
import sys
import types
from collections.abc import Callable

import click
import pytest

import wellfed
from wellfed.cli import main as front
from wellfed.model import WellfedError

Install = Callable[[Callable[[], None]], None]


@pytest.fixture
def verb(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a function the verb `try`."""

    def install(function: Callable[[], None]) -> None:
        module = types.ModuleType("wellfed.cli.try")
        module.command = click.command("try")(function)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "wellfed.cli.try", module)
        monkeypatch.setitem(front.VERBS, "try", "A verb of the test.")

    return install


@pytest.mark.parametrize("name", front.VERBS)
def test_each_verb_of_the_table_has_a_module_with_its_command(name: str) -> None:
    command = importlib.import_module(f"wellfed.cli.{name}").command
    assert isinstance(command, click.Command)
    assert command.name == name
    assert "Example: wellfed " + name in (command.epilog or ""), "one example in each help"


def test_help_lists_each_verb_on_one_line(run_cli) -> None:
    result = run_cli("--help")
    assert result.code == 0
    for name, line in front.VERBS.items():
        assert any(row.split(maxsplit=1) == [name, line] for row in result.out.splitlines()), name


def test_version(run_cli) -> None:
    assert run_cli("--version").out.strip() == f"wellfed, version {wellfed.__version__}"


def test_no_verb_shows_the_help_as_wrong_usage(run_cli) -> None:
    result = run_cli()
    assert (result.code, result.out) == (2, "")
    assert "Verbs:" in result.err


def test_a_mistyped_verb_gets_the_nearest(run_cli) -> None:
    result = run_cli("docter")
    assert result.code == 2
    assert result.err == "error: no verb `docter`; did you mean `doctor`?\nhint: wellfed --help\n"


def test_a_verb_like_no_other_gets_them_all(run_cli) -> None:
    assert "verbs: doctor, inspect" in run_cli("zzz").err


def test_a_wrong_option_points_to_the_help_of_its_verb(run_cli, verb: Install) -> None:
    verb(lambda: None)
    result = run_cli("try", "--wrong")
    assert result.code == 2
    assert result.err.startswith("error: ") and result.err.endswith("hint: wellfed try --help\n")


def test_so_does_an_option_without_its_value(run_cli) -> None:
    result = run_cli("inspect", "--host")
    assert (result.code, result.out) == (2, "")
    assert result.err.endswith("hint: wellfed inspect --help\n")


def test_an_error_for_the_user_is_a_message_and_a_hint(run_cli, verb: Install) -> None:
    def fail() -> None:
        raise WellfedError("x.json: not a trace", hint="wellfed trace --help")

    verb(fail)
    assert run_cli("try") == (2, "", "error: x.json: not a trace\nhint: wellfed trace --help\n")


def test_an_error_may_have_its_own_exit_code_and_no_hint(run_cli, verb: Install) -> None:
    def fail() -> None:
        raise WellfedError("drift", exit_code=1)

    verb(fail)
    assert run_cli("try") == (1, "", "error: drift\n")


def test_a_fault_of_ours_is_one_line_to_report(run_cli, verb: Install) -> None:
    def fail() -> None:
        raise ZeroDivisionError("division by zero")

    verb(fail)
    result = run_cli("try")
    assert result.code == 2
    assert result.err.startswith("error: unexpected ZeroDivisionError: division by zero (a fault of wellfed")
    assert "Traceback" not in result.err


def test_a_fault_of_ours_shows_where_when_asked(run_cli, verb: Install, monkeypatch) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    verb(fail)
    monkeypatch.setenv("WELLFED_DEBUG", "1")
    assert "Traceback" in run_cli("try").err


def test_an_interrupt_is_130_and_quiet(run_cli, verb: Install) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    verb(interrupt)
    result = run_cli("try")
    assert (result.code, result.out) == (130, "")
    assert result.err.split() == ["interrupted"]


def test_a_reader_that_leaves_early_is_no_error() -> None:
    program = (
        "import sys, types, click\n"
        "from wellfed.cli import main\n"
        "module = types.ModuleType('wellfed.cli.try')\n"
        "module.command = click.command('try')(lambda: [print('x' * 1000) for _ in range(5000)] and None)\n"
        "sys.modules['wellfed.cli.try'] = module\n"
        "main.VERBS['try'] = ''\n"
        "main.main(['try'])\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.read(10)
    writer.stdout.close()
    assert writer.stderr is not None
    assert writer.stderr.read() == b""
    writer.stderr.close()
    assert writer.wait(timeout=30) == 0


def test_python_m_wellfed_is_the_command() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "wellfed", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("wellfed, version ")
