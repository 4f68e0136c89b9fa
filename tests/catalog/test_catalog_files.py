"""The one test of the catalogue's files: whoever adds a file is already covered by it."""

import math
import tomllib
from importlib.resources import files

import pytest

from wellfed import catalog
from wellfed.catalog.load import all_prices, heads

ALL = {spec.key: spec for spec in catalog.gpus()}
DEVICES = [spec for spec in ALL.values() if spec.kind == "accelerator"]
SOLD = [spec for spec in DEVICES if spec.status in ("ga", "legacy")]

# The most dense bf16 (fp16 before Ampere) TFLOPS one SM or compute unit of an architecture reaches, from the
# fastest part of each at its boost clock. A sparse figure is twice as much and fails.
DENSE_PER_SM = {
    "Pascal": 0.4,
    "Volta": 1.6,
    "Turing": 1.7,
    "Ampere": 3.0,
    "Ada": 2.7,
    "Hopper": 7.6,
    "Blackwell": 17.0,
    "Blackwell Ultra": 17.0,
    "CDNA2": 1.8,
    "CDNA3": 4.4,
    "CDNA4": 10.0,
}


def _names(folder: str, suffix: str) -> list[str]:
    return sorted(
        entry.name
        for entry in files("wellfed.catalog").joinpath(folder).iterdir()
        if entry.name.endswith(suffix)
    )


@pytest.mark.parametrize("name", _names("gpu", ".toml"))
def test_gpu_file(name: str) -> None:
    raw = tomllib.loads(files("wellfed.catalog").joinpath("gpu", name).read_text(encoding="utf-8"))
    spec = ALL[raw["key"]]
    assert name == spec.key.replace("-", "_") + ".toml"
    used = {short for _, _, short in raw["numbers"].values()} | {raw.get("device_ids_source")} - {None}
    assert used == set(raw["sources"]), "each source is named once and used"
    assert all(text.strip() for text in raw["sources"].values())
    for field, number in spec.numbers.known().items():
        assert math.isfinite(number.value) and number.value > 0, field
        assert number.source.strip(), field
        if "as remembered" in number.source:
            assert number.status == "unverified", field
    assert bool(spec.device_ids) == bool(spec.device_ids_source)


@pytest.mark.parametrize("spec", SOLD, ids=lambda spec: spec.key)
def test_peaks_are_in_order_and_dense(spec: catalog.GpuSpec) -> None:
    chain = [spec.value(f"{name}_tflops") for name in ("fp64", "fp32", "bf16", "fp8", "fp4")]
    known = [value for value in chain if value is not None]
    assert known == sorted(known)
    tf32, bf16 = spec.value("tf32_tflops"), spec.value("bf16_tflops")
    assert tf32 is None or bf16 is None or tf32 <= bf16
    fp8 = spec.value("fp8_tflops")
    if spec.vendor == "NVIDIA" and bf16 and fp8:
        assert 1.9 <= fp8 / bf16 <= 2.1, "one of the two is sparse"
    sms, half = spec.value("sm_count"), bf16 or spec.value("fp16_tflops")
    if spec.architecture in DENSE_PER_SM and sms and half:
        assert half / sms <= DENSE_PER_SM[spec.architecture], "more than an SM can do: is this figure sparse?"
    for rate in ("bf16_tflops", "fp8_tflops"):
        achieved, peak = spec.value(f"achieved_{rate}"), spec.value(rate)
        assert achieved is None or (peak is not None and 0.4 * peak < achieved < peak)


@pytest.mark.parametrize("spec", DEVICES, ids=lambda spec: spec.key)
def test_memory_and_links_are_plausible(spec: catalog.GpuSpec) -> None:
    bandwidth = spec.value("memory_bandwidth_gbs")
    assert bandwidth is not None and 200 <= bandwidth <= 25_000, "in GB/s"
    memory = spec.numbers.memory_gb.value
    assert 8 <= memory <= 512
    reported = spec.value("memory_reported_mib")
    assert reported is None or 0.9 <= reported / 1024 / memory <= 1.02
    assert memory * 0.9e9 <= spec.memory_bytes() <= memory * 1.08e9
    for ours in catalog.links("nvlink"):
        if spec.link == ours.key.replace("nvlink-", "NVLink") and ours.numbers.bidir_gbs:
            assert spec.value("link_bidir_gbs") == ours.numbers.bidir_gbs.value


@pytest.mark.parametrize(
    ("key", "of"), [("gb200-superchip", "gb200"), ("gb200-nvl72", "gb200"), ("gb300-nvl72", "gb300")]
)
def test_a_system_is_the_sum_of_its_gpus(key: str, of: str) -> None:
    system, part = ALL[key], ALL[of]
    assert system.gpus is not None
    for name in ("memory_bandwidth_gbs", "bf16_tflops", "fp8_tflops"):
        total, one = system.value(name), part.value(name)
        assert total is not None and one is not None
        assert total == pytest.approx(system.gpus * one, rel=0.01), name


def test_a_device_has_one_entry() -> None:
    names = [name.casefold() for spec in ALL.values() for name in spec.names]
    ids = [device_id for spec in ALL.values() for device_id in spec.device_ids]
    keys = [word for spec in ALL.values() for word in (spec.key, *spec.aliases)]
    for words in (names, ids, keys):
        assert len(words) == len(set(words))
    for device_id in ids:
        assert catalog.normal_device_id(device_id) == device_id


def test_every_device_is_found_by_its_own_names_and_ids() -> None:
    for spec in ALL.values():
        memory = int(spec.numbers.memory_gb.value * 2**30 / spec.devices)
        for name in spec.names:
            assert catalog.find_gpu(name=name) is spec
            assert catalog.find_gpu(name=name.upper(), memory_bytes=memory) is spec
        for device_id in spec.device_ids:
            assert catalog.find_gpu(device_id=device_id) is spec
        for word in (spec.key, *spec.aliases):
            assert catalog.gpu(word) is spec
            assert catalog.gpu(word.upper().replace("-", "_")) is spec


@pytest.mark.parametrize("name", _names("link", ".toml"))
def test_link_file(name: str) -> None:
    raw = tomllib.loads(files("wellfed.catalog").joinpath("link", name).read_text(encoding="utf-8"))
    assert name == raw["family"] + ".toml"
    used = {short for link in raw["link"] for _, _, short in link["numbers"].values()}
    assert used == set(raw["sources"])
    specs = catalog.links(raw["family"])
    assert [spec.key for spec in specs] == [link["key"] for link in raw["link"]]
    for spec in specs:
        numbers = {field: number.value for field, number in spec.numbers.known().items()}
        assert all(value > 0 for value in numbers.values())
        assert numbers.get("achieved_gbs", 0) < numbers["direction_gbs"]
        if "bidir_gbs" in numbers:
            assert numbers["bidir_gbs"] == pytest.approx(2 * numbers["direction_gbs"])
        if "link_gbs" in numbers:
            assert numbers["direction_gbs"] == pytest.approx(numbers["links"] * numbers["link_gbs"])
        if "lane_gts" in numbers:
            coded = numbers["lane_gts"] * numbers["lanes"] / 8
            assert 0.93 * coded < numbers["direction_gbs"] <= coded
    assert len({spec.key for spec in catalog.links()}) == len(catalog.links())


def test_price_file() -> None:
    for key, price in all_prices().items():
        assert key in heads(), "a price of something that is not in the catalogue"
        assert 0.1 < price.low_usd_gpu_h <= price.usd_gpu_h <= price.high_usd_gpu_h < 50
        assert len(price.date) == 7 and price.date[4] == "-"
        assert price.source.strip()


def test_the_parts_people_rent_are_verified() -> None:
    for key in ("a100-sxm4-80", "h100-sxm-80", "h200-sxm-141", "b200-sxm-180", "mi300x", "l4", "l40s", "a10"):
        numbers = ALL[key].numbers
        for field in ("memory_gb", "memory_bandwidth_gbs", "bf16_tflops", "tdp_w"):
            assert getattr(numbers, field).status == "verified", (key, field)
