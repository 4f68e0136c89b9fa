"""Ceilings that other tools measured: one file a tool, each with `matches(head, name)` and `read(path)`.

Ids and units are ours, so that a figure of nvbandwidth stands beside one of `measure`; where a tool counts otherwise it is
converted and the method says so. The hardware is not known: a result file seldom tells all of it. What of a file could
not be read is counted in `environment["left_out"]`. Readers are found by folder; there is no list to edit.
"""

import importlib
import os
import pkgutil
from pathlib import Path
from types import ModuleType

from wellfed.ingest.ceilings.common import HEAD_BYTES, read_text
from wellfed.model import Ceiling, WellfedError

__all__ = ["read_ceilings"]

TOOLS = "nvbandwidth, nccl-tests, fio (JSON), perftest, Intel MLC, SuperBench (jsonl), TransferBench"


def read_ceilings(path: str | os.PathLike[str]) -> list[Ceiling]:
    """The ceilings in a result file of another tool, packed (gzip, zstd) or not. Raises WellfedError when the file is of
    no tool that is known, or holds no result."""
    file = Path(path)
    head = read_text(file, HEAD_BYTES).text
    for reader in _readers():
        if reader.matches(head, file.name):
            found: list[Ceiling] = reader.read(file)
            if found:
                return found
            raise WellfedError(f"{file.name} holds no result", hint="look into it: did the run fail?")
    raise WellfedError(f"{file.name} is of no tool that can be read: {TOOLS}", hint="wellfed measure --help")


def _readers() -> list[ModuleType]:
    names = sorted(m.name for m in pkgutil.iter_modules(__path__))
    modules = [importlib.import_module(f"{__name__}.{name}") for name in names]
    return [module for module in modules if hasattr(module, "matches") and hasattr(module, "read")]
