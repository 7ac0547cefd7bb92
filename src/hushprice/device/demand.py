"""Prices and scores of one customer, to the last bit as the kernels ``glm``, ``quote`` and ``score`` compute them.

A customer with context z has a = z.alpha and b = z.beta, theta = (alpha, beta) as published, and buys psi'(a - b p) on
average at price p.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hushprice.device.numbers import best_normal_margin, exp, log, log_normal_cdf, normal_cdf, omega

PHASES = ("explore", "exploit", "fixed")
LARGEST_RESIDUAL = 1e100  # one beyond it is cut before anything overflows


@dataclass(frozen=True)
class Demand:
    """What a device knows of a family of demand.

    mean: psi'(eta), the expected demand; log_mean: its logarithm, None where demand can be negative; best: the best of
    all prices for (a, b, cost) and b > 0; possible: whether an outcome can be; domain: what outcomes can be, in words.
    """

    mean: Callable[[float], float]
    log_mean: Callable[[float], float] | None
    best: Callable[[float, float, float], float]
    possible: Callable[[float], bool]
    domain: str


def _log_logistic(eta: float) -> float:
    return -(max(-eta, 0.0) + log(1.0 + exp(-abs(eta))))


FAMILIES: dict[str, Demand] = {
    "linear": Demand(
        mean=lambda eta: eta,
        log_mean=None,
        best=lambda a, b, cost: 0.5 * (a / b + cost),
        possible=lambda y: True,
        domain="a finite number",
    ),
    "logistic": Demand(
        mean=lambda eta: 1.0 / (1.0 + exp(-eta)),
        log_mean=_log_logistic,
        best=lambda a, b, cost: cost + (1.0 + omega(a - b * cost - 1.0)) / b,
        possible=lambda y: y in (0.0, 1.0),
        domain="0 or 1",
    ),
    "poisson": Demand(
        mean=exp,
        log_mean=lambda eta: eta,
        best=lambda a, b, cost: cost + 1.0 / b,
        possible=lambda y: y >= 0.0 and y == int(y),
        domain="a whole number of at least 0",
    ),
    "probit": Demand(
        mean=normal_cdf,
        log_mean=log_normal_cdf,
        best=lambda a, b, cost: cost + best_normal_margin(a - b * cost) / b,
        possible=lambda y: y in (0.0, 1.0),
        domain="0 or 1",
    ),
}


def mean(family: str, eta: float) -> float:
    """psi'(eta), the expected demand. A family that is unknown is a KeyError here and wherever else it is named."""
    return FAMILIES[family].mean(eta)


def utility(theta: Sequence[float], z: Sequence[float]) -> tuple[float, float]:
    """(a, b), summed in the order of the entries."""
    d = len(z)
    a, b = z[0] * theta[0], z[0] * theta[d]
    for j in range(1, d):
        a += z[j] * theta[j]
        b += z[j] * theta[d + j]
    return a, b


def _profit(family: str, a: float, b: float, p: float, cost: float) -> float:
    """(p - cost) psi'(a - b p)."""
    return (p - cost) * mean(family, a - b * p)


def _best_end(family: str, a: float, b: float, cost: float, low: float, high: float) -> float:
    """The better end of [low, high]; for b <= 0, where (p - cost) psi'(a - b p) has no interior maximum."""
    log_mean = FAMILIES[family].log_mean
    if log_mean is None:
        return high if _profit(family, a, b, high, cost) >= _profit(family, a, b, low, cost) else low
    if high >= cost:
        return high
    # log((cost - p) psi'(a - b p)) below cost, where psi' itself could overflow
    at_high, at_low = (log(cost - p) + log_mean(a - b * p) for p in (high, low))
    return high if at_high <= at_low else low


def best_price(family: str, a: float, b: float, cost: float, low: float, high: float) -> float:
    """The p in [low, high] that maximises (p - cost) psi'(a - b p).

    >>> round(best_price("logistic", 1.0, 1.0, 0.0, 0.0, 3.0), 3)
    1.567
    """
    if not b > 0.0:
        return _best_end(family, a, b, cost, low, high)
    return min(max(FAMILIES[family].best(a, b, cost), low), high)


def _neighbours(p: float, ladder: Sequence[float], first: int, last: int) -> tuple[float, float]:
    """The prices of the ladder's first .. last just below and above p."""
    above = min(max(bisect_left(ladder, p), first), last)
    return ladder[max(above - 1, first)], ladder[above]


def price_on_terms(
    phase: str,
    family: str,
    a: float,
    b: float,
    *,
    level: float,
    u: float,
    cost: float,
    low: float,
    high: float,
    ladder: Sequence[float] = (),
) -> float:
    """The price in [low, high], on the ladder if there is one.

    explore: uniform, from the uniform u; exploit: the best one; fixed: the one nearest to ``level``.

    >>> price_on_terms("explore", "logistic", 0.0, 0.0, level=0.0, u=0.5, cost=0.0, low=1.0, high=5.0)
    3.0
    """
    if phase == "explore":
        p = low + (high - low) * u
    else:
        p = level if phase == "fixed" else best_price(family, a, b, cost, low, high)
    p = min(max(p, low), high)
    if not ladder:
        return p
    first, last = bisect_left(ladder, low), bisect_right(ladder, high) - 1
    if phase == "explore":
        return ladder[first + min(math.floor(u * (last - first + 1)), last - first)]
    if phase == "fixed":
        below, above = _neighbours(p, ladder, first, last)
        return above if above - p < p - below else below
    # what is earned rises up to the best price and falls from there on; for b <= 0 an end of the range is best
    below, above = _neighbours(p, ladder, first, last) if b > 0.0 else (ladder[first], ladder[last])
    return above if _profit(family, a, b, above, cost) > _profit(family, a, b, below, cost) else below


def score(
    family: str, theta: Sequence[float], z: Sequence[float], price: float, y: float, *, shift: float, factor: float
) -> list[float]:
    """The score (y - psi'(a - b p)) (z, -f (p - c) z), c = shift and f = factor: what a report is about."""
    a, b = utility(theta, z)
    residual = y - mean(family, a - b * price)
    residual = min(max(residual, -LARGEST_RESIDUAL), LARGEST_RESIDUAL) if residual == residual else 0.0
    levels = [residual * x for x in z]
    return levels + [-factor * (price - shift) * x for x in levels]
