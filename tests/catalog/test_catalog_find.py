"""Finding a device: exact or not at all."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wellfed import catalog
from wellfed.catalog.load import body, heads

GIB = 2**30
KNOWN = {" ".join(name.casefold().split()) for head in heads().values() for name in head.names}
KNOWN |= {name.removeprefix("nvidia ").removeprefix("amd ") for name in KNOWN}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("NVIDIA H200", "h200-sxm-141"),
        ("NVIDIA H200 NVL", "h200-nvl-141"),
        ("NVIDIA H20", "h20-96"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80"),
        ("NVIDIA H100 PCIe", "h100-pcie-80"),
        ("NVIDIA H100 NVL", "h100-nvl-94"),
        ("NVIDIA GH200 480GB", "gh200-96"),
        ("NVIDIA GH200 144G HBM3e", "gh200-144"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA B200", "b200-sxm-180"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80"),
        ("A100-SXM4-40GB", "a100-sxm4-40"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("Tesla V100-SXM2-32GB", "v100-sxm2-32"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_neighbours_are_told_apart(name: str, key: str) -> None:
    spec = catalog.find_gpu(name=name)
    assert spec is not None and spec.key == key


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        "NVIDIA",
        "NVIDIA H",
        "NVIDIA H100",
        "NVIDIA A100",
        "NVIDIA H200X",
        "NVIDIA RTX 6000 Ada Generation",
        "NVIDIA GeForce RTX 4090 D",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition",
        "Graphics Device",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "GRID A100-40C",
        "AMD Instinct MI300A",
        "AMD Instinct MI250X / MI250",
        "NVIDIA L20",
        "NVIDIA B300",
    ],
)
def test_near_misses_are_not_guessed(name: str) -> None:
    assert catalog.find_gpu(name=name) is None


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=40))
def test_an_unknown_name_is_nobody(name: str) -> None:
    spec = catalog.find_gpu(name=name)
    assert spec is None or " ".join(name.casefold().split()) in KNOWN


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(KNOWN)), st.integers(0, 60), st.sampled_from("0123456789abgls "))
def test_one_changed_letter_is_another_name(name: str, place: int, letter: str) -> None:
    changed = name[: place % len(name)] + letter + name[place % len(name) + 1 :]
    spec = catalog.find_gpu(name=changed)
    assert spec is None or " ".join(changed.split()) in KNOWN


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_an_unknown_device_id_is_nobody(combined: int) -> None:
    spec = catalog.find_gpu(device_id=combined)
    assert spec is None or catalog.normal_device_id(combined) in spec.device_ids


def test_device_ids_come_in_three_spellings() -> None:
    for spelling in ("10de:2335", "10DE:2335", "0x233510DE", 0x233510DE):
        spec = catalog.find_gpu(device_id=spelling)
        assert spec is not None and spec.key == "h200-sxm-141"
    assert catalog.find_gpu(device_id="2335") is None, "without its vendor an id says nothing"


def test_memory_settles_what_the_name_leaves_open() -> None:
    assert catalog.find_gpu(name="NVIDIA H20", memory_bytes=97871 << 20) is not None
    assert catalog.find_gpu(name="NVIDIA H20", memory_bytes=141 * GIB) is None, "another product of that name"
    assert catalog.find_gpu(name="NVIDIA A10G", memory_bytes=23028 << 20) is not None, "ECC takes a sixteenth"
    assert catalog.find_gpu(name="NVIDIA A100-SXM4-80GB", memory_bytes=20 * GIB) is None, (
        "a slice, not the GPU"
    )
    assert catalog.find_gpu(name="AMD Instinct MI250X", memory_bytes=64 * GIB) is not None, (
        "one of two devices"
    )


def test_name_and_id_must_agree() -> None:
    assert catalog.find_gpu(name="NVIDIA H200", device_id="10de:2335") is not None
    assert catalog.find_gpu(name="NVIDIA H200", device_id="10de:2330") is None
    by_id = catalog.find_gpu(name="Graphics Device", device_id="10de:2335", memory_bytes=143771 << 20)
    assert by_id is not None and by_id.key == "h200-sxm-141", "an id is enough"
    assert catalog.find_gpu(name="NVIDIA H200 MIG 1g.18gb", device_id="10de:2335") is None


def test_finding_one_reads_one() -> None:
    body.cache_clear()
    assert catalog.find_gpu(name="NVIDIA H200") is not None
    assert body.cache_info().currsize == 1


def test_search_is_for_people() -> None:
    assert {"h100-sxm-80", "h100-pcie-80", "h100-nvl-94"} <= set(catalog.search_gpus("h100"))
    assert catalog.search_gpus("no such thing") == ()
    assert catalog.gpu("no such thing") is None


def test_price_is_dated_and_between_its_bounds() -> None:
    price = catalog.price("H100")
    assert price is not None and price.key == "h100-sxm-80"
    assert price.usd_gpu_h == pytest.approx((price.low_usd_gpu_h * price.high_usd_gpu_h) ** 0.5, abs=0.01)
    assert catalog.price("l4") is None
    assert catalog.price("no such thing") is None


def test_pcie_scales_with_lanes() -> None:
    assert catalog.pcie_gbs(4, 16) == pytest.approx(31.5)
    assert catalog.pcie_gbs(4, 4) == pytest.approx(31.5 / 4)
    assert catalog.pcie_gbs(9, 16) is None
    assert catalog.link("pcie-5") in catalog.links("pcie")
    assert catalog.link("pcie") is None


def test_numbers_that_are_not_known_are_none() -> None:
    spec = catalog.gpu("v100")
    assert spec is not None and spec.value("bf16_tflops") is None and spec.value("fp8_tflops") is None
    with pytest.raises(AttributeError):
        spec.value("no_such_number")
