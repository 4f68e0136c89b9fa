"""What the catalogue says of an accelerator, a link and a price: typed, each number with its source."""

from typing import Literal

from wellfed.model import Value

NumberStatus = Literal["verified", "unverified"]
GpuStatus = Literal["ga", "legacy", "cloud-only", "announced", "announced/early"]
GpuKind = Literal["accelerator", "superchip", "rack"]


class Number(Value, frozen=True, kw_only=True, array_like=True):
    """One figure; its unit is in the name of the field that holds it. `verified`: read in the named source
    when the entry was written. `unverified`: from memory, conflicting, or derived; use it, say so."""

    value: float
    status: NumberStatus
    source: str


class GpuNumbers(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Peaks as the vendor prints them, decimal units (1 GB = 1e9 bytes, but see `memory_gb`). Tensor rates
    are dense, never sparse, with FP32 accumulation. None: not known, or the device has no such rate.

    `memory_gb` is the name on the box and holds about that many GiB; `memory_reported_mib` is what the
    driver reports. `link_bidir_gbs` is all scale-up links of one device, both directions together, and
    `link_domain_gpus` how many devices they reach. `achieved_*` are published measurements, not peaks;
    `achieved_memory_ratio` is of the memory peak. `sm_count` counts SMs or compute units."""

    memory_gb: Number
    memory_reported_mib: Number | None = None
    memory_bandwidth_gbs: Number | None = None
    fp64_tflops: Number | None = None
    fp64_tensor_tflops: Number | None = None
    fp32_tflops: Number | None = None
    tf32_tflops: Number | None = None
    bf16_tflops: Number | None = None
    fp16_tflops: Number | None = None
    fp8_tflops: Number | None = None
    fp6_tflops: Number | None = None
    fp4_tflops: Number | None = None
    int8_tops: Number | None = None
    sm_count: Number | None = None
    l2_mb: Number | None = None
    llc_mb: Number | None = None
    tdp_w: Number | None = None
    link_bidir_gbs: Number | None = None
    link_domain_gpus: Number | None = None
    pcie_gen: Number | None = None
    pcie_lanes: Number | None = None
    c2c_bidir_gbs: Number | None = None
    cpu_memory_gb: Number | None = None
    cpu_memory_bandwidth_gbs: Number | None = None
    achieved_bf16_tflops: Number | None = None
    achieved_fp8_tflops: Number | None = None
    achieved_memory_ratio: Number | None = None

    def known(self) -> dict[str, Number]:
        """The numbers that are known, by name, in the order above."""
        return {
            name: number for name in self.__struct_fields__ if (number := getattr(self, name)) is not None
        }


class GpuSpec(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One product. `names` are what the driver calls it, `device_ids` its PCI `vendor:device` pairs: it is
    found by these and by nothing else. `aliases` are what people write. `devices` is how many devices the
    operating system sees in one package (2 on MI250X: halve every number). `gpus` is set on a superchip or
    a rack, whose numbers are totals. `sparse` says how the vendor mixes sparse figures into its sheet."""

    key: str
    title: str
    vendor: str
    architecture: str
    compute_capability: str | None = None
    status: GpuStatus
    kind: GpuKind = "accelerator"
    memory_type: str | None = None
    link: str | None = None
    devices: int = 1
    gpus: int | None = None
    names: tuple[str, ...] = ()
    device_ids: tuple[str, ...] = ()
    device_ids_source: str | None = None
    aliases: tuple[str, ...] = ()
    sparse: str | None = None
    notes: tuple[str, ...] = ()
    numbers: GpuNumbers

    def value(self, name: str) -> float | None:
        """The number of that name (`bf16_tflops`), or None when it is not known."""
        number: Number | None = getattr(self.numbers, name)
        return None if number is None else number.value

    def memory_bytes(self) -> int:
        """What the driver reports where that is known, else the name's GB as 10^9 bytes: a lower bound."""
        if self.numbers.memory_reported_mib is not None:
            return int(self.numbers.memory_reported_mib.value) << 20
        return int(self.numbers.memory_gb.value * 1e9)


class LinkNumbers(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """GB/s of 1e9 bytes. `direction_gbs` is one direction of all `lanes` or `links` together, `link_gbs` one
    of several links, `achieved_gbs` a published measurement of one direction."""

    lane_gts: Number | None = None
    lanes: Number | None = None
    links: Number | None = None
    link_gbs: Number | None = None
    direction_gbs: Number
    bidir_gbs: Number | None = None
    achieved_gbs: Number | None = None

    def known(self) -> dict[str, Number]:
        """The numbers that are known, by name, in the order above."""
        return {
            name: number for name in self.__struct_fields__ if (number := getattr(self, name)) is not None
        }


class LinkSpec(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One kind of link: `pcie-5`, `nvlink-4`, `ib-ndr`."""

    key: str
    title: str
    family: str
    notes: tuple[str, ...] = ()
    numbers: LinkNumbers


class Price(Value, frozen=True, kw_only=True):
    """Rent of one GPU for one hour, in US dollars, as of `date` (`YYYY-MM`). `usd_gpu_h` is the figure to
    count with: the geometric mean of low and high. Offers spread over a factor of five and more, with most
    near the low end, and the geometric mean stays near the medians that have been published."""

    key: str
    date: str
    low_usd_gpu_h: float
    high_usd_gpu_h: float
    usd_gpu_h: float
    source: str
    note: str = ""
