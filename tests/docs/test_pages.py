"""Each verb and each check has a page that says what the program says; links lead somewhere; code in guides runs."""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from wellfed.check import codes
from wellfed.cli.main import VERBS, cli

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
IDS = [str(page.relative_to(ROOT)) for page in PAGES]


def test_the_reference_is_what_the_program_says() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / ".ci" / "reference", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("verb", VERBS)
def test_each_verb_has_a_page(verb: str) -> None:
    assert f"## wellfed {verb}\n" in (ROOT / "docs/reference/cli.md").read_text(encoding="utf-8")


def test_each_check_has_a_page() -> None:
    text = (ROOT / "docs/reference/checks.md").read_text(encoding="utf-8")
    assert [code for code in codes() if f"### {code} " not in text] == []


def anchors(page: Path) -> set[str]:
    heads = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_lead_to_files_that_are_there(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if target.startswith(("http:", "https:", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def commands(page: Path) -> list[str]:
    """Lines of shell blocks and of code spans that call wellfed."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^ *```sh\n(.*?)^ *```$", text, re.M | re.S)
    lines = [line.split(" #")[0].strip() for block in blocks for line in block.splitlines()]
    spans = re.findall(r"`(wellfed [^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
    return [line for line in lines + spans if line.startswith("wellfed ")]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_commands_in_the_docs_are_commands_of_ours(page: Path) -> None:
    """Each is parsed by the verb itself: an option that is gone, or never was, is found here."""
    wrong = []
    for line in commands(page):
        words = shlex.split(line.split(">")[0])[1:]
        if words[0].startswith("-") or words[0].isupper():
            continue
        command = cli.get_command(click.Context(cli), words[0])
        if command is None:
            wrong.append(line)
        if command is None or not words[1:]:
            continue  # a verb that is only named
        try:
            command.make_context(words[0], words[1:], resilient_parsing=False).close()
        except click.exceptions.Exit:
            pass
        except click.ClickException as error:
            wrong.append(f"{line}: {error.format_message()}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_code_in_the_docs_is_code(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for indent, block in re.findall(r"^( *)```python\n(.*?)^ *```$", text, re.M | re.S):
        ast.parse("\n".join(line.removeprefix(indent) for line in block.splitlines()))
    for block in re.findall(r"^```toml\n(.*?)^```$", text, re.M | re.S):
        tomllib.loads(block)


def test_decisions_are_short_and_listed() -> None:
    index = (ROOT / "docs/decisions/index.md").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs/decisions").glob("0*.md")):
        text = page.read_text(encoding="utf-8")
        assert f"({page.name})" in index
        for part in ("**Context.**", "**Choice.**", "**What would change our mind.**"):
            assert part in text, page.name
        assert len(text.splitlines()) <= 16, f"{page.name}: ten lines or so"


def test_the_reading_tour_is_of_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tour = re.findall(r"^\d\. \[`([^`]+)`\]", text, re.M)
    assert len(tour) == 7
    assert [path for path in tour if not (ROOT / path).exists()] == []


def test_the_table_of_rooms_is_the_house() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = set(re.findall(r"\| `(\w+)(?:/|\.py)` \| \d \|", text))
    package = ROOT / "src/wellfed"
    there = {path.parent.name for path in package.glob("*/__init__.py")} | {"api"}
    assert rooms == there
