"""Demand: generalized linear models of what a customer buys at a price, and the price that earns most."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from hushprice.demand import families
from hushprice.demand.families import *  # noqa: F403 - every family of that file
from hushprice.demand.family import DOMAINS, FAMILIES, BinaryFamily, Family, missing_parts, register
from hushprice.demand.rules import Rules, Segments, Terms, fresh
from hushprice.errors import InvalidInput, unknown


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


def family_config(family: Family) -> dict[str, Any]:
    """A family as plain data; :func:`family_from` reads it back.

    >>> from hushprice.demand import Linear
    >>> family_config(Linear(sigma=2.0))
    {'name': 'linear', 'sigma': 2.0}
    """
    return {"name": family.name, **{f.name: getattr(family, f.name) for f in fields(family)}}


def family_from(config: Any) -> Family:
    """A family from the plain data of :func:`family_config`, checked.

    >>> family_from({"name": "linear", "sigma": 2.0})
    Linear(sigma=2.0)
    """
    if not isinstance(config, Mapping) or not isinstance(config.get("name"), str):
        raise InvalidInput(f"A demand family must be given with its name, as {{'name': 'logistic'}}, got {config!r}.")
    options = dict(config)
    name = options.pop("name")
    if name not in FAMILIES:
        raise unknown("demand family", name, FAMILIES)
    known = {f.name for f in fields(FAMILIES[name])}
    if set(options) != known:
        raise InvalidInput(f"{name} demand has {', '.join(sorted(known)) or 'no options'}, got {', '.join(options)}.")
    return FAMILIES[name](**options)


__all__ = [
    "DOMAINS", "FAMILIES", "BinaryFamily", "Family", "Rules", "Segments", "Terms", "as_family", "family_config",
    "family_from", "fresh", "missing_parts", "register",
]  # fmt: skip
__all__ += families.__all__
