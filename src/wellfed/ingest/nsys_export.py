"""Reports of Nsight Systems exported by `nsys`, where it is installed: only it can read them."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from wellfed.model import WellfedError

EXPORT_LIMIT_S = 900.0
"""A report of a gigabyte takes some minutes."""


@contextmanager
def exported(path: Path, how: str) -> Iterator[Path]:
    """The report as SQLite, in a folder of its own that is removed again. `how` is the command to run by hand, told
    when there is no `nsys` here, it fails, or it takes too long (WellfedError)."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise WellfedError(f"{path.name} is a report that only nsys can open, and nsys is not here", hint=how)
    with tempfile.TemporaryDirectory(prefix="wellfed-nsys-") as folder:
        target = Path(folder) / "export.sqlite"
        argv = [nsys, "export", "--type", "sqlite", "--output", str(target), str(path.absolute())]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=EXPORT_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise WellfedError(
                f"nsys did not export {path.name} in {EXPORT_LIMIT_S:.0f} s", hint=how
            ) from error
        except OSError as error:
            raise WellfedError(f"nsys can't be run: {error.strerror}", hint=how) from error
        if done.returncode or not target.is_file():
            said = (done.stderr or done.stdout).decode("utf-8", "replace").strip().splitlines()
            why = said[-1].strip()[:200] if said else f"exit code {done.returncode}"
            raise WellfedError(f"nsys can't export {path.name}: {why}", hint=how)
        yield target
