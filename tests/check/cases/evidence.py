"""Cases of checks that go by files handed over."""

from typing import Any


def _log(result: str) -> dict[str, Any]:
    return {"diagnostics": [{"tool": "fabricmanager", "test": "log", "result": result, "detail": "9 lines"}]}


CASES: dict[str, Any] = {"NVL10": (_log("fatal"), _log("Pass"), "warning")}
WORDS = {"tool": ("dcgm", "fabricmanager")}
