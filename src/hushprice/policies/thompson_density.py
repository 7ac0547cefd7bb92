"""The propensity of a price of Thompson sampling.

The device draws (a', b') = (z.alpha, z.beta) from a normal distribution and quotes p* = p*(a', b'). For each b' the
best price rises with a', so that P(p* <= p | b') is a normal distribution function at the a' whose best price is p:

    b' > 0     Family.best_utility; for Poisson demand p* = c + 1 / b' whatever a' is
    b' <= 0    the better end of the range: Family.end_utility

The density is its derivative in p, averaged over b' by Gauss-Legendre quadrature. Prices at the ends of the range and
prices on a ladder have probabilities instead.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.special import ndtr

from hushprice.arrays import Array
from hushprice.demand import Family, Terms
from hushprice.kernels import confidence as kernel
from hushprice.kernels.quote import window
from hushprice.policies.base import Policy
from hushprice.policies.exchange import Bounds, Propensity

TAIL_CUT = 9.0  # standard deviations of b' to integrate over
PANEL_NODES = 32  # quadrature nodes per panel
MOST_PANELS = 4000


def propensity(policy: Policy, bounds: Bounds, z: Array, price: Array, terms: Terms | None) -> Propensity:
    """The propensity of each price under the published bounds.

    Parameters
    ----------
    policy : Policy
        A policy in the phase SAMPLE.
    bounds : Bounds
        The published bounds.
    z : ndarray of shape (n, d)
        Contexts.
    price : ndarray of shape (n,)
        Quoted prices.
    terms : Terms, optional
        The terms before the quotes.
    """
    quoted = policy.plain_terms(len(z)) if terms is None else terms.before()
    value, discrete = np.empty(len(z)), np.empty(len(z), dtype=np.bool_)
    d, theta, work = policy.dim, bounds.theta[0], np.empty(4 * policy.dim)
    for i, p in enumerate(price):
        s = quoted.segment[i]
        low, high = window(quoted.low[i], quoted.high[i], quoted.last[s], quoted.step)
        r2, vertex, q2 = kernel.forms(bounds.root[0], z[i], work)
        sampled = Sampled(
            family=policy.family, a=float(z[i] @ theta[:d]), b=float(z[i] @ theta[d:]), vertex=vertex,
            spread_a=bounds.alpha * np.sqrt(r2), spread_b=bounds.alpha * np.sqrt(q2), cost=quoted.cost[i],
            low=low, high=high,
        )  # fmt: skip
        value[i], discrete[i] = sampled.propensity(float(p), quoted.ladder)
        quoted.last[s] = p
    return Propensity(value, discrete)


class Sampled:
    """The distribution of one customer's price: b' = b + spread_b N, a' = a + vertex (b' - b) + spread_a N."""

    def __init__(
        self, *, family: Family, a: float, b: float, vertex: float, spread_a: float, spread_b: float, cost: float,
        low: float, high: float,
    ) -> None:  # fmt: skip
        self.family, self.a, self.b, self.vertex = family, a, b, vertex
        self.spread_a, self.spread_b = max(spread_a, 1e-300), max(spread_b, 1e-300)
        self.cost, self.low, self.high = cost, low, high

    def propensity(self, p: float, ladder: Array) -> tuple[float, bool]:
        """(density, False), or (probability, True)."""
        if self.low >= self.high:
            return 1.0, True
        if ladder.size:
            return self._rung(p, ladder), True
        if p <= self.low:
            return self.below(self.low), True
        if p >= self.high:
            return 1.0 - self.below(self.high), True
        return self.density(p), False

    def _rung(self, p: float, ladder: Array) -> float:
        """P(p is the price of the ladder nearest to p*), among those in the range."""
        rungs = ladder[(ladder >= self.low) & (ladder <= self.high)]
        k = int(np.searchsorted(rungs, p))
        lower = 0.0 if k == 0 else self.below(0.5 * (rungs[k - 1] + rungs[k]))
        upper = 1.0 if k == len(rungs) - 1 else self.below(0.5 * (rungs[k] + rungs[k + 1]))
        return upper - lower

    def below(self, p: float) -> float:
        """P(p* <= p) for p in [low, high); at p = high, P(p* < high)."""
        family, margin = self.family, p - self.cost
        if family.positive and self.cost > self.high:
            return self._least_loss()
        if family.positive and margin <= 0.0:
            return 0.0
        if not family.price_depends_on_level:
            return float(1.0 - ndtr((1.0 / margin - self.b) / self.spread_b))
        slopes, weights = self._slopes(family.least_slope(margin), np.inf)
        total = weights @ ndtr((family.best_utility(slopes, p, self.cost)[0] - self._mean(slopes)) / self.spread_a)
        if family.positive:
            return float(total)
        rising, weights = self._slopes(-np.inf, 0.0)
        edge = family.end_utility(rising, self.low, self.high, self.cost)
        return float(total + weights @ ndtr((edge - self._mean(rising)) / self.spread_a))

    def _least_loss(self) -> float:
        """P(p* = low) if every sale makes a loss.

        The lower end loses less if demand rises enough with the price, that is if
        (c - l) psi'(a' - b' l) < (c - h) psi'(a' - b' h).
        """
        steepest = self.family.end_slope(self.low, self.high, self.cost)
        if not self.family.price_depends_on_level:
            return float(ndtr((steepest - self.b) / self.spread_b))
        slopes, weights = self._slopes(-np.inf, steepest)
        edge = self.family.end_utility(slopes, self.low, self.high, self.cost)
        return float(weights @ ndtr((edge - self._mean(slopes)) / self.spread_a))

    def density(self, p: float) -> float:
        """The derivative of :meth:`below`."""
        family, margin = self.family, p - self.cost
        if family.positive and margin <= 0.0:
            return 0.0
        if not family.price_depends_on_level:
            z = (1.0 / margin - self.b) / self.spread_b
            return float(_normal(z)) / (self.spread_b * margin * margin)
        slopes, weights = self._slopes(family.least_slope(margin), np.inf)
        edge, slant = family.best_utility(slopes, p, self.cost)
        return float(weights @ (_normal((edge - self._mean(slopes)) / self.spread_a) * slant)) / self.spread_a

    def _mean(self, slopes: Array) -> Array:
        return self.a + self.vertex * (slopes - self.b)

    def _slopes(self, low: float, high: float) -> tuple[Array, Array]:
        """Nodes b' in [low, high] and their weights under the normal distribution of b'."""
        start = max(low, self.b - TAIL_CUT * self.spread_b)
        stop = min(high, self.b + TAIL_CUT * self.spread_b)
        if start >= stop:
            return np.empty(0), np.empty(0)
        # Panels that are short relative to the range of b' in which the distribution function of a' goes from 0 to 1.
        steepness = abs(self.vertex) + self.high + abs(self.cost)
        panels = int(np.clip(np.ceil((stop - start) * steepness / (3.0 * self.spread_a)), 16, MOST_PANELS))
        half = 0.5 * (stop - start) / panels
        nodes, weights = _quadrature()
        middles = start + half * (2.0 * np.arange(panels) + 1.0)
        slopes = (middles[:, None] + half * nodes).ravel()
        density = _normal((slopes - self.b) / self.spread_b) / self.spread_b
        return slopes, half * np.tile(weights, panels) * density


@cache
def _quadrature() -> tuple[Array, Array]:
    nodes, weights = np.polynomial.legendre.leggauss(PANEL_NODES)
    return nodes, weights


def _normal(x: Array | float) -> Array:
    return np.asarray(np.exp(-0.5 * np.square(x)) / np.sqrt(2.0 * np.pi))
