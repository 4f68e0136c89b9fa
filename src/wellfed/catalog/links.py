"""Links by key, and the one computation that everybody needs of them."""

from wellfed.catalog.load import all_links
from wellfed.catalog.spec import LinkSpec


def links(family: str | None = None) -> tuple[LinkSpec, ...]:
    """All links, or those of one family (`pcie`, `nvlink`, `c2c`, `xgmi`, `infiniband`, `ethernet`)."""
    return tuple(spec for spec in all_links() if family in (None, spec.family))


def link(key: str) -> LinkSpec | None:
    """The link with that key (`pcie-5`), or None."""
    return next((spec for spec in all_links() if spec.key == key), None)


def pcie_gbs(generation: int, lanes: int) -> float | None:
    """GB/s that a PCIe link carries in one direction after line coding, before packet headers; None for a
    generation that is not in the catalogue."""
    spec = link(f"pcie-{generation}")
    if spec is None or spec.numbers.lanes is None:
        return None
    return spec.numbers.direction_gbs.value * lanes / spec.numbers.lanes.value
