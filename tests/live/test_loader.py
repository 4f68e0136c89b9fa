"""`wellfed loader` on loaders whose best setting is known by how they were made; and on those that can't be tuned."""

import importlib.util
import json
from pathlib import Path

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None

SETS = """
import os, time
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset

class Waits(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, i):
        time.sleep(0.004)
        return torch.zeros(8)

class All(IterableDataset):
    def __iter__(self):
        for i in range(10000):
            time.sleep(0.001)
            yield torch.full((4,), float(i))

class Dies(Dataset):
    def __len__(self):
        return 4000
    def __getitem__(self, i):
        os._exit(3)

class Empty(Dataset):
    def __len__(self):
        return 0
    def __getitem__(self, i):
        raise IndexError(i)

def waits(): return DataLoader(Waits(), 8)
def all_of_it(): return DataLoader(All(), 8)
def dies(): return DataLoader(Dies(), 8)
def empty(): return DataLoader(Empty(), 8)
def raises(): raise RuntimeError("no data here")
def nothing(): return 5
"""


@pytest.fixture
def sets(tmp_path: Path) -> Path:
    file = tmp_path / "sets.py"
    file.write_text(SETS)
    return file


@pytest.mark.skipif(HAS_TORCH, reason="torch is here")
def test_without_torch_it_says_what_to_install(run_cli, sets: Path) -> None:
    result = run_cli("loader", f"{sets}:waits")
    assert result.code == 2 and "has no torch" in result.err and "pip install" in result.err


def test_two_ways_to_say_the_same_are_refused(run_cli) -> None:
    assert run_cli("loader", "a:b", "--step-ms", "1", "--target", "2").code == 2


@pytest.mark.torch
def test_a_loader_that_waits_gets_workers(run_cli, sets: Path) -> None:
    result = run_cli("loader", f"{sets}:waits", "--budget", "4", "--format", "json")
    assert result.code == 0, result.err
    said = json.loads(result.out)
    loader = said["loader"]
    assert set(said) == {"schema", "loader", "verdicts"}
    assert loader["chosen"]["num_workers"] >= 2 and loader["rate"] > 1.5 * loader["current_rate"]
    measured = [probe for probe in loader["probes"] if probe["state"] == "measured"]
    assert 2 <= len(measured) <= 6 and loader["budget"]["ram_peak"] <= loader["budget"]["ram_bytes"]
    assert loader["stages"]["sleep_s"] > 0.5 * loader["stages"]["fetch_s"]


@pytest.mark.torch
def test_a_loader_that_is_fast_enough_is_left_alone(run_cli, sets: Path) -> None:
    result = run_cli("loader", f"{sets}:waits", "--step-ms", "2000", "--budget", "3")
    assert result.code == 0 and "num_workers=0" in result.out.splitlines()[0]


@pytest.mark.torch
def test_data_that_all_workers_read_whole_are_named(run_cli, sets: Path) -> None:
    result = run_cli("loader", f"{sets}:all_of_it", "--budget", "3")
    assert result.code == 0 and "unsharded-iterable" in result.out


@pytest.mark.torch
@pytest.mark.parametrize("factory", ["dies", "raises", "nothing"])
def test_what_cannot_be_tuned_is_said(run_cli, sets: Path, factory: str) -> None:
    result = run_cli("loader", f"{sets}:{factory}", "--budget", "2")
    assert result.code == 2 and result.err.startswith("error: ") and "Traceback" not in result.err
    assert "hint:" in result.err
