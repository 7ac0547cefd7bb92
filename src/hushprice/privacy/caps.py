"""Spherical caps: how well the directions of a seed can agree with a vector. The theory behind L2Ball and PrivUnit.

t = v.u, the product of a uniform direction and a fixed one, has t^2 ~ Beta(1/2, (n-1)/2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache

import numpy as np
import scipy
from scipy.special import betainc, betaincinv, gammaln

from hushprice.arrays import Array

LARGEST_PAIRS = 1024
ERROR_RATIO = 1.05  # largest squared error of a default PrivUnit, relative to the ideal cap


def cap_mass(gamma: float, n: int) -> float:
    """Return P(t >= gamma) for gamma in [0, 1]: the cap's share of the sphere, I_{1 - gamma^2}((n-1)/2, 1/2) / 2.

    Examples
    --------
    >>> cap_mass(0.5, 2)   # a third of the circle
    0.3333333333333333
    """
    return 0.5 * float(betainc(0.5 * (n - 1), 0.5, 1.0 - gamma * gamma))


def cap_moment(gamma: float, n: int) -> float:
    """Return E[t 1(t >= gamma)] = (1 - gamma^2)^((n-1)/2) Gamma(n/2) / ((n - 1) sqrt(pi) Gamma((n-1)/2))."""
    log = gammaln(0.5 * n) - gammaln(0.5 * (n - 1)) - 0.5 * math.log(math.pi) - math.log(n - 1)
    return float((1.0 - gamma * gamma) ** (0.5 * (n - 1)) * math.exp(log))


@dataclass(frozen=True)
class Cap:
    """The ideal PrivUnit: it reports from the cap t >= gamma with e^epsilon times the odds of the cap's mass.

    Attributes
    ----------
    gamma : float
        Threshold of the cap.
    mass : float
        P(t >= gamma).
    squared_length : float
        B^2 for a clip of 1: the squared error at g = 0.
    """

    gamma: float
    mass: float
    squared_length: float


@lru_cache(maxsize=256)
def ideal_cap(epsilon: float, n: int) -> Cap:
    """Return the cap with the least squared error, with exact masses.

    Notes
    -----
    B = (e^epsilon mass + 1 - mass) / ((e^epsilon - 1) E[t; cap]). Bhowmick et al. (2018) give sufficient conditions on
    gamma instead. They are loose, and at n = 2 not sufficient; nothing here depends on them.

    Examples
    --------
    >>> cap = ideal_cap(4.0, 12)
    >>> round(cap.mass, 4), round(cap.squared_length, 3)
    (0.0739, 5.538)
    """
    e = math.exp(-epsilon)

    def length(gamma: float) -> float:
        mass = cap_mass(gamma, n)
        return (mass + e * (1.0 - mass)) / ((1.0 - e) * cap_moment(gamma, n))

    minimum = scipy.optimize.minimize_scalar(
        length, bounds=(0.0, 1.0 - 1e-12), method="bounded", options={"xatol": 1e-12}
    )
    gamma = float(minimum.x)
    return Cap(gamma, cap_mass(gamma, n), length(gamma) ** 2)


@cache
def _quadrature() -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights. They take half a second to compute, so they are computed on first use."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    return nodes, weights


@lru_cache(maxsize=4096)
def top_products(pairs: int, top: int, n: int) -> float:
    """Return E[sum of the ``top`` largest of ``pairs`` independent |t|].

    Notes
    -----
    For one pair, E|t| = Gamma(n/2) / (sqrt(pi) Gamma((n+1)/2)). In general it is
    J int_0^1 q(s) P(Binomial(J - 1, s) < m) ds, where |t| exceeds q(s) with probability s.
    """
    if top == pairs:
        return pairs * math.exp(gammaln(0.5 * n) - gammaln(0.5 * (n + 1))) / math.sqrt(math.pi)
    nodes, weights = _quadrature()
    v = 0.5 * (nodes + 1.0)
    s = v * v * (3.0 - 2.0 * v)  # more nodes where the integrand bends, at both ends
    slope = 6.0 * v * (1.0 - v)
    values = np.sqrt(betaincinv(0.5, 0.5 * (n - 1), 1.0 - s)) * betainc(pairs - top, top, 1.0 - s)
    return pairs * float(np.sum(0.5 * weights * slope * values))


@lru_cache(maxsize=1024)
def mean_product(epsilon: float, n: int, pairs: int) -> tuple[float, int]:
    """Return (E[t of a report], m) for the m that maximises it. B, the length of a decoded report, is C / E[t]."""
    e = math.exp(-epsilon)

    def product(top: int) -> float:
        others = 2 * pairs - top
        q = top / (top + e * others)
        return top_products(pairs, top, n) * (q / top - (1.0 - q) / others)

    low, high = 1, pairs  # the product rises, then falls
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if product(middle) < product(middle + 1) else (low, middle)
    return product(low), low


@lru_cache(maxsize=256)
def best_cap(epsilon: float, n: int) -> tuple[int, int]:
    """Return (J, m) with the smallest power of two J whose squared error is near the ideal cap's; J is at most 1024."""
    ideal = ideal_cap(epsilon, n).squared_length
    pairs = 1
    while True:
        product, top = mean_product(epsilon, n, pairs)
        if product**-2 <= ERROR_RATIO * ideal or pairs == LARGEST_PAIRS:
            return pairs, top
        pairs *= 2
