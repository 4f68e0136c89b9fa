"""wellfed: finds what starves a GPU and says what each cure is worth.

    import wellfed
    case = wellfed.trace("trace.json.gz")
    case.verdicts[0]

The functions are those of `wellfed.api`, imported when first used.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from wellfed.api import check, doctor, inspect, load, measure, trace

__all__ = ["__version__", "check", "doctor", "inspect", "load", "measure", "trace"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from wellfed import api

        return getattr(api, name)
    raise AttributeError(f"module 'wellfed' has no attribute '{name}'")
