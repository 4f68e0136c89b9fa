"""What runs inside the user's Python processes. Standard library only, Python 3.8 and later; loaded as `_wellfed_run`.

A hook that fails is counted and switched off; the program never sees it. Until torch (or what else is waited for) is
imported, nothing is done but looking at the names of imports."""

from __future__ import annotations


def begin() -> None:
    """Start watching imports in this process."""
    from . import process

    process.begin()
