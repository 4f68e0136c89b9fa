"""What all tests share: the command line in process, the corpus, and who is skipped where, with the reason."""

import fcntl
import importlib.util
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import hypothesis
import pytest

# The same examples each run, and nothing left in the working tree.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, database=None, max_examples=60)
hypothesis.settings.load_profile("house")
os.environ["WELLFED_CACHE"] = "0"  # tests leave nothing in the user's cache folder
os.environ["WELLFED_HISTORY"] = "0"

ROOT = Path(__file__).resolve().parent.parent


class Result(NamedTuple):
    code: int
    out: str
    err: str


RunCli = Callable[..., Result]


@pytest.fixture
def run_cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> RunCli:
    """Runs one command line in this process, in an empty folder, 80 columns, no colour: (code, out, err)."""
    from wellfed.cli.main import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.delenv("WELLFED_DEBUG", raising=False)

    def run_one(*args: str | Path) -> Result:
        capsys.readouterr()
        code = run([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return run_one


@pytest.fixture(autouse=True)
def _one_at_a_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests that change this very machine wait for each other, in whichever process they run."""
    if request.node.get_closest_marker("xdist_group") is None:
        yield
        return
    lock = Path(tempfile.gettempdir()) / f"wellfed-tests-{os.getuid()}.lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The public corpus (traces, recorded hosts). It is not in the repository: WELLFED_CORPUS names it."""
    folder = os.environ.get("WELLFED_CORPUS")
    if not folder:
        pytest.skip("WELLFED_CORPUS does not name the corpus folder")
    path = Path(folder)
    if not path.is_dir():
        pytest.fail(f"WELLFED_CORPUS={folder} is no folder")
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = {name: reason for name, reason in _missing().items() if reason}
    for item in items:
        for name, reason in missing.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))


def _missing() -> dict[str, str]:
    """Marker -> why tests with it can't run here; empty when they can."""
    has_torch = importlib.util.find_spec("torch") is not None
    has_gpu = Path("/proc/driver/nvidia/version").exists()
    has_browser = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    has_selenium = importlib.util.find_spec("selenium") is not None
    is_root = sys.platform == "linux" and os.geteuid() == 0
    return {
        "torch": "" if has_torch else "PyTorch is not installed",
        "gpu": "" if has_gpu else "no NVIDIA driver here",
        "browser": "" if has_browser and has_selenium else "Chromium or selenium is not installed",
        "root": "" if is_root else "needs root",
        "corpus": ""
        if os.environ.get("WELLFED_CORPUS")
        else "WELLFED_CORPUS does not name the corpus folder",
    }
