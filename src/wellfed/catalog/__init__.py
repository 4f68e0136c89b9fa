"""Facts as data, each number with its source: `gpu/*.toml`, `link/*.toml`, `price/*.csv`.

from wellfed import catalog

spec = catalog.find_gpu(name="NVIDIA H200", memory_bytes=150_754_820_096)
spec.value("bf16_tflops")  # 989.4, dense
spec.numbers.bf16_tflops.source
"""

from wellfed.catalog.links import link, links, pcie_gbs
from wellfed.catalog.match import find_gpu, gpu, gpus, normal_device_id, search_gpus
from wellfed.catalog.prices import price
from wellfed.catalog.spec import GpuNumbers, GpuSpec, LinkNumbers, LinkSpec, Number, Price

__all__ = [
    "GpuNumbers",
    "GpuSpec",
    "LinkNumbers",
    "LinkSpec",
    "Number",
    "Price",
    "find_gpu",
    "gpu",
    "gpus",
    "link",
    "links",
    "normal_device_id",
    "pcie_gbs",
    "price",
    "search_gpus",
]
