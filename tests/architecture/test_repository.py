"""What must never be in the repository: addresses of registries, paths of one machine, secrets, and words
about how the work was organised."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Written in pieces, so that this file does not hold what it looks for.
FORBIDDEN = {
    "a registry host": re.compile(
        "|".join(
            [
                r"files\.python" + r"hosted\.org",
                r"pypi\.o" + "rg",
                r"registry\.npm" + "js",
                r"deb\.deb" + "ian",
                r"proxy\.gol" + "ang",
            ]
        )
    ),
    "a path of one machine": re.compile(
        "|".join(
            ["/wo" + "rk/", "/tm" + r"p/v\b", "/ro" + r"ot/\.pyenv", "/opt/py" + "pi", "/opt/wh" + "eels"]
        )
    ),
    "a token": re.compile(
        r"\bghp_[A-Za-z0-9]{36}\b|-----BEGIN (?:RSA |EC )?PRIV" + "ATE KEY-----\n[A-Za-z0-9+/]{40}"
    ),
    "a word about who wrote it": re.compile(
        r"\b(?:Cla" + r"ude|Anthr" + r"opic|Chat" + r"GPT|CE" + r"O\b|sub-?ag" + r"ent)", re.IGNORECASE
    ),
}


LEFT_OVERS = {"__pycache__", "build", "dist", "site", "shared"}


def tracked() -> list[Path]:
    """The files that git tracks; in a copy without git, all that are no left-overs of tools."""
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False)
    if done.returncode == 0 and done.stdout:
        return [ROOT / name for name in done.stdout.decode().split("\0") if name]
    return [
        path
        for path in ROOT.rglob("*")
        if not any(
            part in LEFT_OVERS
            or part.endswith(".egg-info")
            or (part.startswith(".") and part not in (".ci", ".gitignore"))
            for part in path.relative_to(ROOT).parts
        )
    ]


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    found = {}
    for path in tracked():
        if not path.is_file():
            continue
        data = path.read_bytes()
        if b"\0" not in data[:8192]:
            found[str(path.relative_to(ROOT))] = data.decode("utf-8", "replace")
    assert "pyproject.toml" in found and len(found) > 50
    return found


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_holds(what: str, texts: dict[str, str]) -> None:
    found = [
        f"{name}:{text.count(chr(10), 0, match.start()) + 1}: {match[0]}"
        for name, text in texts.items()
        for match in FORBIDDEN[what].finditer(text)
    ]
    assert found == []


def test_no_tracked_file_is_large() -> None:
    large = [str(p.relative_to(ROOT)) for p in tracked() if p.is_file() and p.stat().st_size > 2 << 20]
    assert large == []


def test_nothing_is_left_to_do(texts: dict[str, str]) -> None:
    marks = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X)\b")
    assert [name for name, text in texts.items() if name.endswith(".py") and marks.search(text)] == []
