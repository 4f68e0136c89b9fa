"""Loaded by every Python process of a command under `wellfed run`; the `sitecustomize` that it hides is loaded too.

Nothing that goes wrong here may reach the user's program."""

import sys


def _next_sitecustomize() -> None:
    """Run the sitecustomize that would have been found without this folder, under its own name."""
    import importlib.machinery
    import importlib.util
    import os

    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib takes 5 ms to load
    paths = [path for path in sys.path if os.path.abspath(path or ".") != here]  # noqa: PTH100
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _begin() -> None:
    import os

    if not os.environ.get("WELLFED_RUN"):
        return
    import importlib.util

    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "inside")  # noqa: PTH100, PTH118, PTH120
    spec = importlib.util.spec_from_file_location(
        "_wellfed_run",
        os.path.join(folder, "__init__.py"),  # noqa: PTH118
        submodule_search_locations=[folder],
    )
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["_wellfed_run"] = module
    spec.loader.exec_module(module)
    module.begin()


try:
    _begin()
except Exception:  # noqa: BLE001 - the user's program goes on without us
    pass
_next_sitecustomize()
