"""Named steps at which a test may end this process. Nothing a user can set reaches this."""

from collections.abc import Callable

hook: Callable[[str], None] | None = None
"""Set by the crash tests only."""


def reached(name: str) -> None:
    """The step `name` has been done."""
    if hook is not None:
        hook(name)
