"""Markets: the worlds policies sell in."""

from hushprice.markets.market import Block, Contexts, Market
from hushprice.markets.synthetic import s1, s2, wide

MARKETS = {"s1": s1, "s2": s2, "wide": wide}

__all__ = ["MARKETS", "Block", "Contexts", "Market", "get", "s1", "s2", "wide"]

from collections.abc import Callable

from hushprice.errors import unknown


def get(name: str) -> Callable[..., Market]:
    """The maker of the market of that name.

    >>> get("s1")(dim=2).name
    's1'
    """
    if name not in MARKETS:
        raise unknown("market", name, MARKETS)
    return MARKETS[name]
