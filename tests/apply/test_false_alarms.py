"""What broke cures of other tools: F9 and F12 of tests/check/reported.py."""

import os
import subprocess
import sys
from pathlib import Path

import fake_host as m

from wellfed.apply.commands import COMMANDS
from wellfed.apply.journal import Journal
from wellfed.apply.kinds import KINDS
from wellfed.apply.root import Root
from wellfed.check.changes import KINDS as ASKED

APPLY = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import fake_host as m
from wellfed.apply import engine
done = engine.apply(m.make(Path(sys.argv[2])), m.THREE)
assert [one.outcome for one in done] == ["applied"] * 3
"""


def test_f09_no_helper_is_needed_and_the_boot_loader_is_left_alone() -> None:
    """tuned's profiles call programs that nobody installed, and one of them edited GRUB."""
    programs = {command.argv[0] for command in COMMANDS.values()}
    assert programs <= {"systemctl", "systemd-run", "ethtool", "nvidia-smi", "mount", "{python}"}, programs
    for kind in {*KINDS, *ASKED}:
        assert not any(word in kind for word in ("grub", "boot", "cmdline", "kernel-argument")), kind


def test_f12_the_end_of_the_process_takes_nothing_back(tmp_path: Path) -> None:
    """A service that went down took its settings back under running work: here only `undo` does."""
    here = str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", APPLY, here, str(tmp_path)], check=True, env=environment)
    assert m.values(Journal(Root(tmp_path))) == m.NEW
