"""Words of the command line into markets and policies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hushprice import markets, policies
from hushprice.errors import InvalidInput
from hushprice.markets import Market
from hushprice.policies import Policy


def market_from(name: str, dim: int, family: str) -> Market:
    """The market of that name."""
    return markets.get(name)(dim=dim, family=family)


def policies_from(words: Iterable[str], market: Market, horizon: int) -> dict[str, Policy]:
    """Policies for a market from words like ``mle-cycle:variant=original,ridge=0.1``, by word."""
    chosen: dict[str, Policy] = {}
    for word in words:
        if word in chosen:
            raise InvalidInput(f"The policy {word!r} is named twice.")
        chosen[word] = policy_from(word, market, horizon)
    return chosen


def policy_from(word: str, market: Market, horizon: int) -> Policy:
    """One policy; what the word leaves open comes from the market."""
    name, _, rest = word.partition(":")
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, value = item.partition("=")
        if not equals:
            raise InvalidInput(f"In {word!r}, {item!r} should read key=value, as in etc:ridge=0.1.")
        options[key.strip()] = _value(value.strip())
    cls = policies.get(name)
    given: dict[str, Any] = {
        "family": market.family,
        "dim": market.dim,
        "prices": market.prices,
        "cost": market.cost,
        "horizon": horizon,
        "theta": market.theta,
    }
    if cls is policies.FixedPrice and "price" not in options:
        given["price"] = market.best_fixed_price()
    return policies.build(name, **{**given, **options})


def _value(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
