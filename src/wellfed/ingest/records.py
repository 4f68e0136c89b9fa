"""Operation records of pipeline-parallel jobs (Parquet): one row an operation of a rank.

The columns are those of the public straggler data sets (ByteDance-Seed/StragglerAnalysis): `dp_rank`, `stage`,
`rank`, `step`, `optype`, `start_ts` and `duration` (seconds), and where present `gmc` (the piece
of the model) and `mc` (the piece within the stage; stages hold every P-th piece).
"""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from wellfed.analyze.pipeline import OpRecords
from wellfed.model import WellfedError

MAGIC = b"PAR1"
NEEDED = ("dp_rank", "stage", "rank", "step", "optype", "start_ts", "duration")
MAX_ROWS = 20_000_000
"""About 1.2 GB of columns; more is refused rather than read."""
_MAX_KINDS = 30_000


def matches(head: bytes) -> bool:
    """Whether a file with this beginning is Parquet."""
    return head.startswith(MAGIC)


def is_records(path: Path) -> bool:
    """Whether a file is Parquet; False where it cannot be opened: its reader says why."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return matches(file.read(len(MAGIC)))
    except OSError:
        return False


def read_records(path: Path) -> OpRecords:
    """The records of one file. Raises WellfedError when it can't be read or lacks a needed column."""
    parquet = _pyarrow("pyarrow.parquet")
    errors = _pyarrow("pyarrow").ArrowException
    try:
        with parquet.ParquetFile(str(path)) as file:
            names = set(file.schema_arrow.names)
            lacking = [name for name in NEEDED if name not in names]
            if lacking:
                raise WellfedError(
                    f"{path.name} holds no operation records: no column {', '.join(lacking)}",
                    hint="the columns are " + ", ".join(NEEDED),
                )
            if file.metadata.num_rows > MAX_ROWS:
                raise WellfedError(
                    f"{path.name} has {file.metadata.num_rows} rows; {MAX_ROWS} is the most that is read",
                    hint="cut it to fewer steps",
                )
            table = file.read(columns=[*NEEDED, *(name for name in ("gmc", "mc") if name in names)])
    except (OSError, errors) as error:
        raise WellfedError(f"can't read {path}: {error}", hint=f"ls -l {path}") from error
    kinds, kind = _kinds(table["optype"], path)
    start = _floats(table, "start_ts", path)
    stage = _ints(table, "stage", path)
    chunk, piece = (
        _ints(table, name, path) if name in table.column_names else np.full(len(start), -1, np.int64)
        for name in ("gmc", "mc")
    )
    told = (chunk < 0) & (piece >= 0)
    chunk = np.where(told, piece * (stage.max(initial=0) + 1) + stage, chunk)
    return OpRecords(
        step=_ints(table, "step", path),
        replica=_ints(table, "dp_rank", path).astype(np.int32),
        stage=stage.astype(np.int32),
        rank=_ints(table, "rank", path).astype(np.int32),
        kind=kind,
        kinds=kinds,
        start_s=start,
        end_s=start + _floats(table, "duration", path),
        chunk=chunk.astype(np.int32),
        source=path.name,
    )


def _pyarrow(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise WellfedError(
            "reading Parquet needs pyarrow, which is not installed",
            hint="pip install 'wellfed[parquet]'",
        ) from error


def _floats(table: Any, name: str, path: Path) -> np.ndarray[Any, np.dtype[np.float64]]:
    """A column as doubles; nulls become NaN, which the analysis leaves out and counts."""
    try:
        return np.asarray(table[name].to_numpy(), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise WellfedError(
            f"{path.name}: column {name} is not of numbers", hint="the columns are " + ", ".join(NEEDED)
        ) from error


def _ints(table: Any, name: str, path: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A column as integers; nulls and what 32 bits can't count become -1."""
    values = _floats(table, name, path)
    limit = 2.0**53 if name == "step" else 2.0**31
    return np.where(np.abs(values) < limit, values, -1).astype(np.int64)


def _kinds(column: Any, path: Path) -> tuple[tuple[str, ...], np.ndarray[Any, np.dtype[np.int16]]]:
    encoded = column.combine_chunks()
    if not hasattr(encoded, "indices"):
        encoded = encoded.dictionary_encode()
    kinds = tuple(str(k) for k in encoded.dictionary.to_pylist())
    if len(kinds) > _MAX_KINDS:
        raise WellfedError(f"{path.name} names {len(kinds)} types of operation", hint="is `optype` a type?")
    index = encoded.indices.fill_null(len(kinds)).to_numpy()
    return (*kinds, "unknown"), np.asarray(index, dtype=np.int16)
