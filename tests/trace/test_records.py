"""Operation records in Parquet: what is read, and how files that are none are refused."""

import importlib
from pathlib import Path
from typing import Any

import pytest

from wellfed.ingest import records
from wellfed.model import WellfedError


@pytest.fixture
def parquet() -> Any:
    pytest.importorskip("pyarrow", reason="the extra `parquet` is not installed")
    return importlib.import_module("pyarrow.parquet")


def columns(**changed: Any) -> dict[str, Any]:
    table = {
        "dp_rank": [0, 1],
        "stage": [0, 1],
        "rank": [0, 3],
        "step": [7, 7],
        "optype": ["forward-compute", None],
        "start_ts": [0.5, None],
        "duration": [0.25, 0.25],
        "mc": [1, -1],
        **changed,
    }
    return {k: v for k, v in table.items() if v is not None}


def write(parquet: Any, path: Path, **changed: Any) -> Path:
    pyarrow = importlib.import_module("pyarrow")
    parquet.write_table(pyarrow.table(columns(**changed)), path)
    return path


def test_columns_come_over_and_nulls_are_marked(parquet: Any, tmp_path: Path) -> None:
    found = records.read_records(write(parquet, tmp_path / "a.parquet"))
    assert found.replica.tolist() == [0, 1]
    assert found.rank.tolist() == [0, 3]
    assert found.end_s[0] == 0.75
    assert found.start_s[1] != found.start_s[1]
    assert [found.kinds[k] for k in found.kind] == ["forward-compute", "unknown"]
    assert found.chunk.tolist() == [2, -1], "the second piece of stage 0 of two is the third of the model"


def test_no_columns_no_rows_and_no_file(parquet: Any, tmp_path: Path) -> None:
    with pytest.raises(WellfedError, match="no column duration"):
        records.read_records(write(parquet, tmp_path / "b.parquet", duration=None))
    with pytest.raises(WellfedError, match="not of numbers"):
        records.read_records(write(parquet, tmp_path / "c.parquet", start_ts=["x", "y"]))
    (tmp_path / "d.parquet").write_bytes(b"PAR1 nothing more")
    for name in ("d.parquet", "e.parquet"):
        with pytest.raises(WellfedError, match="can't read"):
            records.read_records(tmp_path / name)
    assert records.matches((tmp_path / "d.parquet").read_bytes())


def test_too_many_rows_are_refused_before_they_are_read(
    parquet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_ROWS", 1)
    with pytest.raises(WellfedError, match="2 rows"):
        records.read_records(write(parquet, tmp_path / "f.parquet"))


def test_without_pyarrow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def gone(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(records.importlib, "import_module", gone)
    with pytest.raises(WellfedError) as error:
        records.read_records(tmp_path / "a.parquet")
    assert error.value.hint is not None
    assert "wellfed[parquet]" in error.value.hint
