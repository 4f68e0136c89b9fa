"""From `MODULE:FACTORY` to a dataset and the arguments of its DataLoader, and from a setting to a loader. Runs in children
only; torch is imported here, never at the top."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

ARGUMENTS = ("collate_fn", "worker_init_fn", "generator", "timeout", "drop_last")
"""Of a DataLoader, what is kept as the user has it whatever is tuned."""


class Unfit(Exception):
    """What the user named can't be tuned: `hint` says what can."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Spec(NamedTuple):
    """`kind` is map or iterable; `batches` gives lists of indices without end (map style with batches), `indices` single
    ones (map style without); `batch_size` the nominal one, 1 when the dataset gives whole batches or single samples.
    `current` are the loader arguments as the user has them now, None where only a dataset was given."""

    dataset: Any
    kind: str
    batch_size: int | None
    sampler: Any
    batch_sampler: Any
    kept: dict[str, Any]
    current: dict[str, Any] | None
    notes: tuple[str, ...] = ()


class Cycle:
    """The same sampler over and over, so that no epoch ends in the middle of a measurement."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __iter__(self) -> Iterator[Any]:
        while True:
            empty = True
            for item in self.inner:
                empty = False
                yield item
            if empty:
                return

    def __len__(self) -> int:
        return 1 << 40


def load(target: str) -> Any:
    """The factory that `module:name` or `path/to/file.py:name` names."""
    where, _, name = target.rpartition(":")
    if not where or not name:
        raise Unfit(f"{target!r} is not MODULE:FACTORY", "wellfed loader train.py:make_loader")
    found: Any = _module(where)
    for part in name.split("."):
        if not hasattr(found, part):
            public = [
                key for key, value in vars(found).items() if callable(value) and not key.startswith("_")
            ]
            raise Unfit(f"{where} has no {part!r}; it has {', '.join(public[:12]) or 'no functions'}")
        found = getattr(found, part)
    return found


def _module(where: str) -> ModuleType:
    if not where.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(where)
        except ModuleNotFoundError as error:
            if error.name and (where == error.name or where.startswith(error.name + ".")):
                raise Unfit(
                    f"no module {where!r} from here", f"wellfed loader path/to/{where}.py:FACTORY"
                ) from error
            raise
    path = Path(where).resolve()
    if not path.is_file():
        raise Unfit(f"{where}: no such file")
    # Importable by name, so that what it defines can be pickled for spawned workers.
    sys.path.insert(0, str(path.parent))
    if path.stem not in sys.modules and path.stem.isidentifier():
        found = importlib.util.find_spec(path.stem)
        if found is not None and found.origin is not None and Path(found.origin).resolve() == path:
            return importlib.import_module(path.stem)
    spec = importlib.util.spec_from_file_location(f"wellfed_user_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def build(target: str, batch_size: int | None) -> Spec:
    """Call the factory and read what it gives: a DataLoader, a dataset, or (dataset, arguments)."""
    made = load(target)
    if isinstance(made, type) or (
        callable(made) and not _is_loader(made) and not hasattr(made, "__getitem__")
    ):
        made = made()
    return read(made, batch_size)


def read(made: Any, batch_size: int | None) -> Spec:
    from torch.utils.data import DataLoader

    notes: list[str] = []
    stages = getattr(made, "pipeline", None)
    if (
        not isinstance(made, DataLoader)
        and isinstance(stages, list)
        and stages
        and isinstance(stages[0], DataLoader)
    ):
        notes.append(
            f"{type(made).__name__}: its DataLoader is tuned; {len(stages) - 1} stages after it run in the main process"
        )
        made = stages[0]
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[1], dict):
        arguments = dict(made[1])
        if batch_size is not None:
            arguments["batch_size"] = batch_size
        made = _with_arguments(made[0], arguments)
    elif not isinstance(made, DataLoader):
        if batch_size is None:
            raise Unfit(
                f"the factory gave a {type(made).__name__}, which has no batch size", "add `--batch-size 32`"
            )
        made = _with_arguments(made, {"batch_size": batch_size})
    elif batch_size is not None and made.batch_size not in (None, batch_size):
        notes.append(f"--batch-size is for datasets; the DataLoader's own {made.batch_size} is used")
    return _of_loader(made, tuple(notes))


def _with_arguments(dataset: Any, arguments: dict[str, Any]) -> Any:
    from torch.utils.data import DataLoader, IterableDataset

    if not isinstance(dataset, IterableDataset) and not (
        hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    ):
        raise Unfit(
            f"a {type(dataset).__name__} is neither a map-style dataset (__getitem__ and __len__) nor an IterableDataset",
            "derive it from torch.utils.data.Dataset or IterableDataset",
        )
    return DataLoader(dataset, **arguments)


def _is_loader(made: Any) -> bool:
    from torch.utils.data import DataLoader

    return isinstance(made, DataLoader)


def _of_loader(loader: Any, notes: tuple[str, ...]) -> Spec:
    from torch.utils.data import IterableDataset

    iterable = isinstance(loader.dataset, IterableDataset)
    context = loader.multiprocessing_context
    current = {
        "num_workers": loader.num_workers,
        "prefetch_factor": loader.prefetch_factor,
        "pin_memory": bool(loader.pin_memory),
        "persistent_workers": bool(loader.persistent_workers),
        "multiprocessing_context": getattr(context, "_name", None) if context is not None else None,
        "in_order": bool(getattr(loader, "in_order", True)),
    }
    kept = {name: getattr(loader, name) for name in ARGUMENTS}
    return Spec(
        dataset=loader.dataset,
        kind="iterable" if iterable else "map",
        batch_size=loader.batch_size
        if loader.batch_size is not None or loader.batch_sampler is None
        else None,
        sampler=None if iterable else loader.sampler,
        batch_sampler=None if iterable else loader.batch_sampler,
        kept=kept,
        current=current,
        notes=notes,
    )


def make_loader(spec: Spec, setting: dict[str, Any]) -> Any:
    """A DataLoader of the user's dataset with a setting of ours, without end when it is map style."""
    from torch.utils.data import DataLoader

    workers = int(setting["num_workers"])
    arguments: dict[str, Any] = {
        **spec.kept,
        "num_workers": workers,
        "pin_memory": setting.get("pin_memory", False),
    }
    drop_last = arguments.pop("drop_last")
    if workers:
        arguments["prefetch_factor"] = setting.get("prefetch_factor") or 2
        arguments["persistent_workers"] = True
        if setting.get("multiprocessing_context"):
            arguments["multiprocessing_context"] = setting["multiprocessing_context"]
        if not setting.get("in_order", True):
            arguments["in_order"] = False
    if spec.kind == "iterable":
        return DataLoader(spec.dataset, batch_size=spec.batch_size, drop_last=drop_last, **arguments)
    if spec.batch_sampler is not None:
        return DataLoader(spec.dataset, batch_sampler=Cycle(spec.batch_sampler), **arguments)
    return DataLoader(spec.dataset, batch_size=None, sampler=Cycle(spec.sampler), **arguments)
