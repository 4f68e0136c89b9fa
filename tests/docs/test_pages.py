"""Each verb and each check has a page that says what the program says; links lead somewhere; code in guides runs."""

import ast
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import wellfed
from wellfed.check import codes, require_code
from wellfed.cli.main import VERBS
from wellfed.cli.verbs import cli
from wellfed.report.story import REASONS

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


def _commands(group: click.Group, context: click.Context) -> Iterator[tuple[click.Context, click.Command]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        yield inner, command
        if isinstance(command, click.Group):
            yield from _commands(command, inner)


def test_help_is_whole_and_names_what_an_option_takes() -> None:
    wrong = []
    for context, command in _commands(cli, click.Context(cli, info_name="wellfed")):
        path = context.command_path
        if (
            isinstance(command, click.Group)
            and "...\n" in command.get_help(context).partition("Commands:")[2]
        ):
            wrong.append(f"{path}: the line of a sub-verb is cut")
        if not command.epilog:
            wrong.append(f"{path}: no example")
        for option in command.params:
            if isinstance(option, click.Option):
                told = option.make_metavar(context)
                if not option.help or "RANGE" in told or told in ("TEXT", "PATH"):
                    wrong.append(f"{path} {option.opts[0]}: {told}")
    assert wrong == []


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


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_what_the_docs_set_aside_are_checks(page: Path) -> None:
    for block in re.findall(r"^```toml\n(.*?)^```$", page.read_text(encoding="utf-8"), re.M | re.S):
        for code in tomllib.loads(block).get("ignore", {}):
            require_code(code)


def test_every_page_is_in_the_navigation() -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    listed = set(re.findall(r": (\S+\.md)$", config, re.M))
    assert {page for page in pages ^ listed if not page.startswith("decisions/0")} == set()


TRACE = "src/wellfed/demo/trace.json.gz"
HOST = "tests/hosts/h200-vm.tar"
PRINTS = {
    "check": [["check", "--host", HOST]],
    "trace": [["trace", TRACE]],
    "doctor": [["doctor", "--no-measure", "--host", HOST, "--trace", TRACE]],
    "measure": [["measure", "--only", "os-noise", "--budget", "0.2"]],
    "inspect": [["inspect", "--host", HOST]],
    "explain": [["explain", "CPU07", "--host", HOST], ["explain", "T110"]],
    "compare": [["compare", TRACE, TRACE]],
    "catalog": [["catalog", "h200"], ["catalog", "pcie-5"]],
    "pin plan": [["pin", "plan", "--host", HOST]],
    "tune plan": [["tune", "plan", "--host", HOST]],
    "tune status": [["tune", "status", "--journal", "JOURNAL"]],
}
"""What prints the keys of a row of the table in report.md; `apply`, `undo`, `confirm` and `log` are in test_tune.py."""


def test_the_json_keys_in_the_docs_are_those_that_are_printed(run_cli, tmp_path: Path) -> None:
    page = (ROOT / "docs/concepts/report.md").read_text(encoding="utf-8")
    table = page.partition("| command | keys |")[2].partition("\n\n")[0]
    told: dict[str, list[str]] = {}
    for command, cell in re.findall(r"^\| `([^`]+)`[^|]* \| (.*) \|$", table, re.M):
        more = re.findall(r"`(\w+)`", re.sub(r"\([^)]*\)", "", cell.partition(";")[0]))
        told[command] = (told[[*told][-1]] if cell.startswith("the same") else []) + more
    assert told.keys() - {"tune apply", "tune undo"} == PRINTS.keys()
    for command, ways in PRINTS.items():
        for words in ways:
            paths = {"JOURNAL": tmp_path / "journal", TRACE: ROOT / TRACE, HOST: ROOT / HOST}
            done = run_cli(*[paths.get(word, word) for word in words], "--format", "json")
            assert sorted(json.loads(done.out)) == sorted(told[command]), command


def test_the_count_of_checks_in_the_docs_is_that_of_the_program() -> None:
    of_hosts = sum(not re.fullmatch(r"T\d+", code) for code in codes())
    wrong = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        wrong += [
            f"{page.name}: {n}" for n in re.findall(r"(\d{3}) checks\b(?! could)", text) if int(n) != of_hosts
        ]
    assert wrong == []


def test_each_function_of_the_library_is_in_its_guide() -> None:
    guide = (ROOT / "docs/guides/library.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(?:wellfed\.)?(\w+)\(", guide))
    functions = {name for name in wellfed.__all__ if name[0].islower()}
    assert named - {"wellfed"} == functions


def test_the_reasons_in_the_docs_are_those_that_reports_have_words_for() -> None:
    text = (ROOT / "docs/concepts/verdicts.md").read_text(encoding="utf-8")
    table = text.partition("## Reasons of")[2].partition("\n## ")[0]
    listed = {
        slug for row in re.findall(r"^\| (`.*?) \|", table, re.M) for slug in re.findall(r"`([\w-]+)`", row)
    }
    assert listed == REASONS.keys() - {""}


def test_decisions_are_short_and_listed() -> None:
    index = (ROOT / "docs/decisions/index.md").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs/decisions").glob("0*.md")):
        text = page.read_text(encoding="utf-8")
        assert f"({page.name})" in index
        for part in ("**Context.**", "**Choice.**", "**What would change our mind.**"):
            assert part in text, page.name
        prose = text.partition("\n## ")[0]  # tables that a script writes may follow
        assert len(prose.splitlines()) <= 16, f"{page.name}: ten lines or so"


def test_the_reading_tour_is_of_files_that_exist() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    tour = re.findall(r"^\d\. \[`([^`]+)`\]", text, re.M)
    assert len(tour) == 7
    assert [path for path in tour if not (ROOT / path).exists()] == []


def test_the_table_of_rooms_is_the_house() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    rooms = set(re.findall(r"\| `(\w+)(?:/|\.py)` \| \d+ \|", text))
    package = ROOT / "src/wellfed"
    there = {path.parent.name for path in package.glob("*/__init__.py")} | {"api"}
    assert rooms == there


PROCESSES = {"subprocess", "ctypes", "multiprocessing", "socket"}
"""Of the standard library, what a row must name."""


def test_the_table_of_rooms_says_what_each_may_import() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    wrong = []
    for room, allowed in re.findall(r"\| `(\w+)(?:/|\.py)` \| \d+ \| (.*?) ?\|", text):
        said = {word.replace("-", "_") for word in re.findall(r"[\w-]+", re.sub(r"`[^`]*`", "", allowed))}
        home = ROOT / "src/wellfed" / room
        for module in sorted(home.rglob("*.py")) or [home.with_suffix(".py")]:
            used = {
                name.partition(".")[0]
                for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
                for name in (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom) and not node.level
                    else []
                )
            }
            free = (sys.stdlib_module_names - PROCESSES) | {"wellfed", "msgspec"}
            wrong += [f"{module.relative_to(ROOT)}: {name}" for name in sorted(used - free - said)]
    assert wrong == [], "import something else, or say so in the table"
