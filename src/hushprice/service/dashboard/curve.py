"""Estimated demand and revenue of a hypothetical customer over prices.

With a = z.alpha and b = z.beta, demand at price p is psi'(a - b p). The covariance of theta gives one of (a, b), two
numbers; a band is psi' of a - b p plus or minus 2.45 standard errors. So it stays within the range of demand and
contains the whole curve in 95 of 100 cases (see ``bands.py``). The best price and its gain over the baseline, one
number each, get intervals from draws of (a, b).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hushprice.arrays import Array, array
from hushprice.demand import Family
from hushprice.errors import LARGEST_VALUE
from hushprice.kernels import terms as kernel
from hushprice.service.dashboard.bands import LEVEL, WHOLE, Facts, spread

GRID_PRICES = 81
_DRAWS = 1_000
_ENDS = (0.5 * (1.0 - LEVEL), 0.5 * (1.0 + LEVEL))


def curve(facts: Facts, context: Sequence[float]) -> dict[str, Any]:
    """Compute what the page draws for a customer.

    Parameters
    ----------
    facts : Facts
        The state of the product's learner.
    context : sequence of float
        The customer's features.

    Returns
    -------
    dict
        Plain data: prices, demand, revenue, bands, the best price and the baseline.

    Raises
    ------
    InvalidInput
        If the context does not have the length of the product's.
    """
    definition = facts.definition
    z = array("the context", list(context), shape=(definition.dim,), limit=LARGEST_VALUE)
    theta, policy = facts.theta, definition.policy
    d, cost = definition.dim, policy.cost
    a, b = float(z @ theta[:d]), float(z @ theta[d:])
    prices = np.linspace(*policy.prices, GRID_PRICES)
    demand = policy.family.mean(a - b * prices)
    best = _best(facts, np.array([a]), np.array([b]))[0]
    answer: dict[str, Any] = {
        "product": definition.name,
        "version": facts.version,
        "seq": facts.seq,
        "context": z.tolist(),
        "learned": facts.estimated,
        "cost": cost,
        "prices": _plain(prices),
        "demand": _plain(demand),
        "revenue": _plain((prices - cost) * demand),
        "best": _at(policy.family, a, b, best, cost),
        "baseline": _at(policy.family, a, b, facts.baseline, cost),
    }
    precision = spread(facts)
    answer["bands"] = {"level": None if precision.covariance is None else LEVEL, "words": precision.words}
    if precision.covariance is not None:
        directions = np.zeros((2, 2 * d))
        directions[0, :d] = directions[1, d:] = z
        _bands(answer, facts, np.array([a, b]), directions @ precision.covariance @ directions.T)
    return answer


def _best(facts: Facts, a: Array, b: Array) -> Array:
    """The price with the largest revenue that the guardrails allow."""
    policy = facts.definition.policy
    limits, n = facts.limits, len(a)
    low, high = limits.prices
    prices = np.empty(n)
    kernel.best_prices_on_terms(
        policy.family.code, a, b, np.full(n, policy.cost), np.full(n, low), np.full(n, high),
        np.array(limits.rules.ladder), prices,
    )  # fmt: skip
    return prices


def _at(family: Family, a: float, b: float, price: float, cost: float) -> dict[str, float]:
    demand = float(family.mean(a - b * price))
    return {"price": float(price), "demand": demand, "revenue": (price - cost) * demand}


def _bands(answer: dict[str, Any], facts: Facts, centre: Array, covariance: Array) -> None:
    """Add bands to the curves, and intervals to the best price and its gain."""
    policy = facts.definition.policy
    family, cost, prices = policy.family, policy.cost, np.array(answer["prices"])
    x = np.column_stack([np.ones(len(prices)), -prices])
    width = WHOLE * np.sqrt(np.maximum(np.einsum("ij,jk,ik->i", x, covariance, x), 0.0))
    low, high = (family.mean(x @ centre + side * width) for side in (-1.0, 1.0))
    answer["demand_low"], answer["demand_high"] = _plain(low), _plain(high)
    ends = np.sort(np.stack([(prices - cost) * low, (prices - cost) * high]), axis=0)
    answer["revenue_low"], answer["revenue_high"] = _plain(ends[0]), _plain(ends[1])
    values, vectors = np.linalg.eigh(covariance)
    normal = np.random.default_rng(0).standard_normal((_DRAWS, 2))
    a, b = (centre + (normal * np.sqrt(np.maximum(values, 0.0))) @ vectors.T).T
    at_best, at_baseline = answer["best"]["price"], answer["baseline"]["price"]
    gain = family.revenue(at_best, a, b, cost=cost) - family.revenue(at_baseline, a, b, cost=cost)
    for name, draws in (("price", _best(facts, a, b)), ("more", gain)):
        answer["best"][f"{name}_low"], answer["best"][f"{name}_high"] = np.quantile(draws, _ENDS).tolist()


def _plain(values: Array) -> list[float]:
    """Round to the digits that a picture shows, for JSON."""
    return [float(f"{value:.6g}") for value in np.asarray(values, dtype=np.float64)]
