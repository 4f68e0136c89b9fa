"""What an hour of a GPU costs, as of a date."""

from wellfed.catalog.load import all_prices
from wellfed.catalog.match import gpu
from wellfed.catalog.spec import Price


def price(key: str) -> Price | None:
    """The newest known rent of that GPU (key or alias), or None. A list price of a market that moves: show
    the date with it, and let the user give their own."""
    spec = gpu(key)
    return None if spec is None else all_prices().get(spec.key)
