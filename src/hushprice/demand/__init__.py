"""Demand: generalized linear models of what a customer buys at a price, and the price that earns most."""

from __future__ import annotations

from typing import Any

from hushprice.demand.families import Family, Linear, Logistic, Poisson
from hushprice.demand.rules import Rules, Segments, Terms, fresh
from hushprice.errors import InvalidInput, unknown

FAMILIES: dict[str, type[Family]] = {cls.name: cls for cls in (Linear, Logistic, Poisson)}


def as_family(value: Any) -> Family:
    """A family from an instance, its class or its name.

    >>> as_family("logistic")
    Logistic()
    """
    if isinstance(value, Family) and hasattr(value, "code"):
        return value
    if isinstance(value, type) and issubclass(value, Family) and hasattr(value, "code"):
        return value()
    if isinstance(value, str):
        if value.lower() not in FAMILIES:
            raise unknown("demand family", value, FAMILIES)
        return FAMILIES[value.lower()]()
    raise InvalidInput(f"family must be a demand family such as hushprice.Logistic(), got {value!r}.")


__all__ = ["FAMILIES", "Family", "Linear", "Logistic", "Poisson", "Rules", "Segments", "Terms", "as_family", "fresh"]
