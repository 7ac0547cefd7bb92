"""Markets: the worlds policies sell in."""

from __future__ import annotations

from collections.abc import Callable

from hushprice.errors import unknown
from hushprice.markets.market import Block, Contexts, Market
from hushprice.markets.synthetic import s1, s2, wide

REGISTRY: dict[str, Callable[..., Market]] = {"s1": s1, "s2": s2, "wide": wide}


def get(name: str) -> Callable[..., Market]:
    """The maker of the market of that name.

    >>> get("s1")(dim=2).name
    's1'
    """
    if name not in REGISTRY:
        raise unknown("market", name, REGISTRY)
    return REGISTRY[name]


__all__ = ["REGISTRY", "Block", "Contexts", "Market", "get", "s1", "s2", "wide"]
