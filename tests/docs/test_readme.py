"""The README's commands work, and what it shows is what they print, in structure."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(mark: str) -> str:
    """The fenced block after `<!-- mark -->`."""
    found = re.search(rf"^<!-- {re.escape(mark)} -->\n```\w*\n(.*?)^```$", README, re.M | re.S)
    assert found, f"README.md has no block marked {mark!r}"
    return found[1]


def shape(text: str) -> list[str]:
    """The words of each line, numbers taken off: two runs of one command differ in numbers only."""
    lines = (re.sub(r"[\d.,]+", "#", line).strip() for line in text.splitlines())
    return [line for line in lines if line and line != "..."]


def test_there_are_exactly_two_commands_to_start_with() -> None:
    assert re.findall(r"^<!-- command: (\w+) -->$", README, re.M) == ["run", "test"]
    for name in ("run", "test"):
        command = block(f"command: {name}")
        assert command.count("\n") == 1, "one line to paste"
        assert "pip install" in command and command.startswith("python3 -m venv .venv && ")
    assert block("command: run").rstrip().endswith("wellfed doctor --demo")


def test_the_shown_output_is_what_the_command_prints(run_cli) -> None:
    """Every line shown is printed, in this order. `...` stands for what is left out."""
    shown = shape(block("output: run"))
    assert len(shown) >= 8, "show the real output"
    printed = iter(shape(run_cli("doctor", "--demo", "--no-measure").out))
    missing = [line for line in shown if line not in printed]
    assert missing == []


@pytest.mark.parametrize("line", [line for line in block("command: run").split("&&") if "pip" in line])
def test_the_install_needs_no_extra(line: str) -> None:
    assert shlex.split(line)[-1] == "."


def test_the_promise_stands_on_the_first_screen() -> None:
    first = "\n".join(README.splitlines()[:60])
    assert "Read-only" in first and "sends nothing over a network" in first
