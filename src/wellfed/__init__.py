"""wellfed: finds what starves a GPU and says what each cure is worth.

    import wellfed
    case = wellfed.trace("trace.json.gz")
    case.verdicts[0]

The functions are those of `wellfed.api`, imported when first used.
"""

import sys
from types import ModuleType

from wellfed._version import __version__

TYPE_CHECKING = False  # typing is a quarter of the time of `wellfed --help`
if TYPE_CHECKING:
    from wellfed.api import (
        WellfedError,
        ab,
        check,
        compare,
        doctor,
        inspect,
        load,
        measure,
        measured_before,
        pin_plan,
        read_ceilings,
        read_run,
        run,
        save,
        trace,
        tune_apply,
        tune_confirm,
        tune_export,
        tune_log,
        tune_plan,
        tune_status,
        tune_undo,
    )

__all__ = [
    "WellfedError", "__version__", "ab", "check", "compare", "doctor", "inspect", "load", "measure",
    "measured_before", "pin_plan", "read_ceilings", "read_run", "run", "save", "trace", "tune_apply", "tune_confirm", "tune_export", "tune_log",
    "tune_plan", "tune_status", "tune_undo",
]  # fmt: skip


def __getattr__(name: str) -> object:
    if name in __all__:
        from wellfed import api

        found: object = getattr(api, name)
        return found
    raise AttributeError(f"module 'wellfed' has no attribute '{name}'")


class _Package(ModuleType):
    """`wellfed.check` is the function, though a folder has that name too: importing `wellfed.check.x` would
    put the folder in its place. Modules of the folder are reached by `from wellfed.check import x`."""

    @property
    def check(self) -> object:
        return __getattr__("check")

    @check.setter
    def check(self, folder: ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package
