"""Imports point down. The import contract in pyproject.toml says the same and is checked by lint-imports in
CI; this reads the sources in a fraction of a second, and its words say what to do."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "wellfed"

FLOORS = [
    ["model"],
    ["catalog"],
    ["predict"],
    ["analyze"],
    ["check", "place"],
    ["report"],
    ["host", "bench", "ingest", "apply"],
    ["live"],
    ["api"],
    ["cli"],
]
"""From the ground up."""
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}

ONE_IMPORTER = {
    "vl_convert": "report/draw.py",
    "pynvml": "host/nvml.py",
    "isal": "ingest/source.py",
    "zstandard": "ingest/source.py",
}
"""Heavy or rare libraries: the one module that imports them."""

AWAITED = {"yaml", "rich"}
"""Declared by the design for rooms that are still to come."""

PURE = {"model", "catalog", "predict", "analyze", "check", "place", "report"}
IMPURE_MODULES = {"subprocess", "socket", "urllib", "http", "requests", "psutil", "pynvml", "multiprocessing"}


INSIDE = PACKAGE / "live" / "run" / "inside"


class Import:
    """One import statement: the top name and the whole one, and whether a function or module holds it."""

    def __init__(self, name: str, line: int) -> None:
        self.name, self.line = name, line
        self.top = name.partition(".")[0]


def imports_of(path: Path) -> list[Import]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level and INSIDE in path.parents:
            continue  # loaded by another name into programs that have no wellfed
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write it out"
            found.append(Import(node.module, node.lineno))
            if node.module == "wellfed":
                found += [Import(f"wellfed.{alias.name}", node.lineno) for alias in node.names]
    return found


MODULES = sorted(PACKAGE.rglob("*.py"))
IDS = [str(path.relative_to(PACKAGE)) for path in MODULES]


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def test_every_room_has_a_floor() -> None:
    rooms = {room_of(path) for path in MODULES} - {"__init__", "__main__", "_version"}
    assert rooms <= LEVEL.keys(), "a new room: give it a floor here and in pyproject.toml"


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_imports_point_down(path: Path) -> None:
    room = room_of(path)
    if room in ("__init__", "__main__", "_version"):
        return
    wrong = []
    for found in imports_of(path):
        parts = found.name.split(".")
        if parts[0] != "wellfed" or len(parts) < 2 or parts[1] not in LEVEL or parts[1] == room:
            continue
        if LEVEL[parts[1]] >= LEVEL[room]:
            wrong.append(f"line {found.line}: {room}/ may not import {found.name}")
    assert wrong == []


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_each_heavy_library_has_one_importing_module(path: Path) -> None:
    name = str(path.relative_to(PACKAGE))
    wrong = [
        f"line {found.line}: {found.top} belongs to {ONE_IMPORTER[found.top]}"
        for found in imports_of(path)
        if found.top in ONE_IMPORTER and ONE_IMPORTER[found.top] != name
    ]
    assert wrong == []


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_what_is_pure_opens_no_process_and_no_network(path: Path) -> None:
    if room_of(path) in PURE:
        assert [f"line {i.line}: {i.name}" for i in imports_of(path) if i.top in IMPURE_MODULES] == []


@pytest.mark.parametrize("path", MODULES, ids=IDS)
def test_only_the_command_line_prints(path: Path) -> None:
    if room_of(path) == "cli":
        return
    calls = [
        f"line {node.lineno}"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert calls == []


def test_every_dependency_is_imported_and_every_import_is_a_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {"pyyaml": "yaml", "nvidia-ml-py": "pynvml", "vl-convert-python": "vl_convert"}
    optional = {"torch", "numba", "llvmlite"}  # llvmlite comes with numba
    declared = set()
    for line in project["dependencies"]:
        name = line.split(">")[0].split("=")[0].strip().lower()
        declared.add(names.get(name, name))
    used = {i.top for path in MODULES for i in imports_of(path)} - set(sys.stdlib_module_names) - {"wellfed"}
    assert used - optional <= declared, "imported, but not in pyproject.toml"
    assert declared - used <= AWAITED, "in pyproject.toml, but never imported"
