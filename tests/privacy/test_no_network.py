"""Nothing goes over a network: each verb runs in a process where opening a socket is an error, and as root
also in a network namespace that has no interface."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from wellfed.cli.main import VERBS

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "src" / "wellfed" / "demo"

LINES = {
    "doctor": ["doctor", "--demo", "--no-measure", "-o", "x.md", "--save", "x.case"],
    "inspect": ["inspect", "--record", "box.tar"],
    "check": ["check", "--fail-on", "never"],
    "explain": ["explain", "CPU01"],
    "measure": ["measure", "--budget", "2"],
    "tune": ["tune", "plan"],
    "pin": ["pin", "plan", "--mode", "exclusive"],
    "trace": ["trace", str(DEMO / "trace.json.gz"), "-o", "x.html"],
    "compare": ["compare", str(DEMO / "trace.json.gz"), str(DEMO / "trace.json.gz"), "-o", "x.html"],
    "catalog": ["catalog"],
    "run": ["run", "--quiet", "--format", "json", "--", "true"],
    "ab": ["ab", "true", "true", "--runs", "2", "--anyway"],
}

NOT_TRIED = {
    "attach": "asks the job over a UNIX socket: test_attach.py",
    "loader": "needs torch; its processes talk over pipes",
}

# An audit hook sees what patching socket.socket would miss: C code and names imported before.
GUARD = """
import sys

def refuse(event, args):
    if event.startswith("socket.") or event.startswith("urllib."):
        raise RuntimeError(f"tried to use the network: {event} {args[1:]}")

sys.addaudithook(refuse)
from wellfed.cli.main import run
sys.exit(run(sys.argv[1:]))
"""


def test_every_verb_is_tried() -> None:
    assert LINES.keys() | NOT_TRIED.keys() == VERBS.keys()


def run_guarded(
    args: list[str], folder: Path, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "WELLFED_DEBUG": "1"}
    return subprocess.run(
        [*prefix, sys.executable, "-c", GUARD, *args],
        cwd=folder,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@pytest.mark.parametrize("verb", LINES)
def test_a_verb_opens_no_socket(verb: str, tmp_path: Path) -> None:
    done = run_guarded(LINES[verb], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.root
@pytest.mark.parametrize("verb", LINES)
def test_a_verb_works_without_any_network(verb: str, tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if (
        unshare is None
        or subprocess.run([unshare, "-n", "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("no network namespace can be made here")
    done = run_guarded(LINES[verb], tmp_path, prefix=(unshare, "-n"))
    assert done.returncode == 0, done.stderr


def test_the_guard_works(tmp_path: Path) -> None:
    program = GUARD.replace(
        "from wellfed.cli.main import run\nsys.exit(run(sys.argv[1:]))", "import socket; socket.socket()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "tried to use the network" in done.stderr
