"""`wellfed catalog` as a user sees it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

RunCli = Callable[..., Any]


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize(
    "names", [(), ("h200",), ("h100-", "mi300x"), ("nvlink", "pcie-5"), ("mi250x",), ("a10g",)]
)
def test_lines_fit(
    run_cli: RunCli, monkeypatch: pytest.MonkeyPatch, columns: int, names: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    result = run_cli("catalog", *names)
    assert result.code == 0
    for line in result.out.splitlines():
        assert len(line) <= columns or " " not in line.strip(), line


def test_the_list_has_everything(run_cli: RunCli) -> None:
    out = run_cli("catalog").out
    for word in ("h200-sxm-141", "mi300x", "tpu-v5p", "nvlink-4", "ib-ndr", "not verified"):
        assert word in out


def test_one_gpu_shows_its_sources_and_neighbours(run_cli: RunCli) -> None:
    out = run_cli("catalog", "H100").out
    assert out.startswith("NVIDIA H100 SXM5 80 GB  (h100-sxm-80)\n")
    flat = " ".join(out.split())
    assert "bf16 989.4 TFLOP/s [" in flat
    assert "fp64 tensor 67? TFLOP/s" in flat, "what is not verified is marked"
    assert "[1] " in out and "lightning" in out.lower()
    assert "`NVIDIA H100 80GB HBM3`, 10de:2330" in out
    assert "h100-nvl-94" in out
    assert "USD an hour (1.47 to 6.88, 2026-05)" in out


def test_what_is_never_matched_says_so(run_cli: RunCli) -> None:
    assert "never matched to a device" in run_cli("catalog", "h100-96-hbm2e").out
    assert "2 devices in one package" in " ".join(run_cli("catalog", "mi250x").out.split())
    assert "72 GPUs" in run_cli("catalog", "gb200-nvl72").out


def test_a_part_of_a_name_compares_all_that_have_it(run_cli: RunCli) -> None:
    out = run_cli("catalog", "a100-pcie-").out
    assert "a100-pcie-40  a100-pcie-80" in out
    assert "1,935" in out


def test_an_unknown_name_is_an_error_with_a_hint_that_works(run_cli: RunCli) -> None:
    result = run_cli("catalog", "h20000")
    assert result.code == 2 and result.out == ""
    assert "nothing is known of 'h20000'" in result.err
    hint = result.err.split("hint: wellfed ")[1].split()
    assert run_cli(*hint).code == 0
    assert "hint: wellfed catalog\n" in run_cli("catalog", "qqqqqqqq").err


def test_json_keeps_value_status_and_source(run_cli: RunCli) -> None:
    result = json.loads(run_cli("catalog", "h200", "pcie-4", "--format", "json").out)
    assert set(result) == {"schema", "gpus", "links"} and result["schema"] == 1
    (gpu,), (link,) = result["gpus"], result["links"]
    assert set(gpu["numbers"]["bf16_tflops"]) == {"value", "status", "source"}
    assert gpu["numbers"]["bf16_tflops"]["value"] == 989.4
    assert gpu["device_ids_source"].startswith("pciutils/pciids")
    assert set(gpu["price"]) == {
        "key",
        "date",
        "low_usd_gpu_h",
        "high_usd_gpu_h",
        "usd_gpu_h",
        "source",
        "note",
    }
    assert link["key"] == "pcie-4" and link["numbers"]["direction_gbs"]["value"] == 31.5
    everything = json.loads(run_cli("catalog", "--format", "json").out)
    assert len(everything["gpus"]) > 50 and len(everything["links"]) > 20


def test_output_file(run_cli: RunCli, tmp_path: Any) -> None:
    assert run_cli("catalog", "l4", "-o", tmp_path / "l4.json").code == 0
    assert json.loads((tmp_path / "l4.json").read_text())["gpus"][0]["key"] == "l4"
