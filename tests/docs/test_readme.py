"""The README's commands work, and what it shows is what they print, in structure."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(mark: str, text: str = README) -> str:
    """The fenced block after `<!-- mark -->`."""
    found = re.search(rf"^<!-- {re.escape(mark)} -->\n```\w*\n(.*?)^```$", text, re.M | re.S)
    assert found, f"no block is marked {mark!r}"
    return found[1]


def shape(text: str) -> list[str]:
    """The words of each line, numbers taken off: two runs of one command differ in numbers only."""
    lines = (line.strip() for line in text.splitlines())
    return [re.sub(r"[\d.,]+", "#", line) for line in lines if line not in ("", "...")]


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


def test_the_finding_that_the_docs_explain_is_the_demos(run_cli) -> None:
    shown = shape(block("output: demo", (ROOT / "docs/concepts/report.md").read_text(encoding="utf-8")))
    printed = iter(shape(run_cli("doctor", "--demo", "--no-measure").out))
    assert [line for line in shown if line not in printed] == []


@pytest.mark.parametrize("line", [line for line in block("command: run").split("&&") if "pip" in line])
def test_the_install_needs_no_extra(line: str) -> None:
    assert shlex.split(line)[-1] == "."


def test_the_promise_stands_on_the_first_screen() -> None:
    first = "\n".join(README.splitlines()[:60])
    assert "Read-only" in first and "sends nothing over a network" in first
