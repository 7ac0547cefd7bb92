"""Weights that carry logged prices over to a target price.

A weight is w = L(p) / f(p | z): f is the propensity of the logged price p, and L spreads the target price t over prices
near it. L is chosen so that over all the prices that could have been drawn

    sum of L = 1   and   sum of L(p) (p - t) = 0,

by an integral over a range and a sum over a ladder. So E[w | z] = 1, and a demand that is a straight line near t is
carried over without bias, also at an end of the range, where targets often lie and where a plain kernel, even
renormalised, has a first-order bias. The remaining bias is of the order of h^2 times the curvature of demand.

References: Kallus & Zhou (2018), Policy Evaluation and Optimization with Continuous Treatments; Fan & Gijbels (1996),
Local Polynomial Modelling and Its Applications, 3.2 (the equivalent kernel and the boundary); Colangelo & Lee (2020),
Double Debiased Machine Learning Nonparametric Inference with Continuous Treatments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_CELLS = 2_000_000  # of a table of customers by ladder prices held at once
_EDGE, _LEAST, _MOST = 10, 0.01, 0.05  # see Range.observed
_ROUNDING = 1e-9


class Support(Protocol):
    """Prices that could have been drawn for some of the customers."""

    continuous: ClassVar[bool]  # whether no two prices are the same, so that only near ones can be compared

    @property
    def rows(self) -> Rows:
        """These customers, by their place in the log."""
        ...

    @property
    def ends(self) -> tuple[float, float]:
        """The lowest and the highest price."""
        ...

    @property
    def size(self) -> float:
        """The length of a range, the number of prices of a ladder."""
        ...

    def covers(self, target: Array) -> Mask:
        """Which target prices could have been drawn, or lie between two that could."""
        ...

    def contains(self, low: float, high: float) -> bool:
        """Whether every price from low to high could have been drawn."""
        ...

    def spread(self, price: Array, target: Array, h: float) -> Array:
        """L(p) for the logged price and the target price of each of the customers."""
        ...


@dataclass(frozen=True, kw_only=True, eq=False)
class Range:
    """Any price from low to high, drawn from a density.

    >>> every = Range(rows=np.arange(3), low=0.0, high=1.0)
    >>> every.spread(np.array([0.5, 0.55, 0.7]), np.array([0.5, 0.5, 0.5]), 0.1).round(3)
    array([7.5  , 5.625, 0.   ])
    """

    continuous: ClassVar[bool] = True
    rows: Rows
    low: float
    high: float
    beyond: tuple[float, float] = (0.0, 0.0)  # how far the range may go on below low and above high

    @classmethod
    def observed(cls, rows: Rows, price: Array) -> Range:
        """The range of the prices that these rows have, whose true ends lie a little further out.

        From the highest price seen it is no further to the end than to the 11th highest, but for once in 2^10 logs,
        whatever the density is: gaps between the highest of many prices are exponential and alike. It is taken to be
        1% of the range at least, so that a target at the true end is never refused, and 5% at most.
        """
        p = np.sort(price[rows])
        k = min(_EDGE, len(p) - 1)
        size = p[-1] - p[0]
        below, above = np.clip([p[k] - p[0], p[-1] - p[-1 - k]], _LEAST * size, _MOST * size)
        return cls(rows=rows, low=float(p[0]), high=float(p[-1]), beyond=(float(below), float(above)))

    @property
    def ends(self) -> tuple[float, float]:
        return self.low, self.high

    @property
    def size(self) -> float:
        return self.high - self.low

    def covers(self, target: Array) -> Mask:
        rounding = _ROUNDING * max(abs(self.low), abs(self.high))
        low, high = self.low - self.beyond[0] - rounding, self.high + self.beyond[1] + rounding
        return np.asarray((target >= low) & (target <= high))

    def contains(self, low: float, high: float) -> bool:
        return bool(self.covers(np.array([low, high])).all())

    def spread(self, price: Array, target: Array, h: float) -> Array:
        """The local-linear kernel on [low, high].

        L(p) = K(u) (M2 - M1 u) / (M0 M2 - M1^2) / b, u = (p - t) / b, K(u) = 3/4 (1 - u^2) on [-1, 1] and M_j the
        integral of K(u) u^j over the u that the range leaves. Inside, b = h, M = (1, 0, ..) and L is K. From the end
        of the range on a side there are prices on one side only, and b grows to 2 h, so that no fewer are used.
        """
        t = np.clip(target, self.low, self.high)
        b = widened(t, h, self.low, self.high)
        u, left, right = (price - t) / b, np.maximum(-1.0, (self.low - t) / b), np.minimum(1.0, (self.high - t) / b)
        m0, m1, m2 = (_moment(right, j) - _moment(left, j) for j in range(3))
        kernel: Array = 0.75 * np.maximum(1.0 - u * u, 0.0) * (m2 - m1 * u) / (m0 * m2 - m1 * m1) / b
        return kernel


def widened(t: Array, h: float, low: float, high: float) -> Array:
    """The bandwidth at t: h, growing to 2 h at an end of the range."""
    wide: Array = h + np.maximum(h - np.minimum(t - low, high - t), 0.0)
    return wide


def _moment(u: Array, j: int) -> Array:
    """The antiderivative of 3/4 (1 - u^2) u^j."""
    power = u
    for _ in range(j):
        power = power * u
    value: Array = 0.75 * power * (1.0 / (j + 1) - u * u / (j + 3))
    return value


@dataclass(frozen=True, kw_only=True, eq=False)
class Ladder:
    """One of a few prices; ``share`` is how often each was drawn, ``place`` which one each customer was quoted.

    >>> two = Ladder(rows=np.arange(2), points=np.array([1.0, 2.0]), share=np.array([0.5, 0.5]), place=np.array([0, 1]))
    >>> two.spread(np.array([1.0, 2.0]), np.array([1.25, 1.25]), 0.1).tolist()    # 1.25 is a quarter of the way
    [0.75, 0.25]
    """

    continuous: ClassVar[bool] = False
    rows: Rows
    points: Array
    share: Array
    place: Rows

    @property
    def ends(self) -> tuple[float, float]:
        return float(self.points[0]), float(self.points[-1])

    @property
    def size(self) -> float:
        return float(len(self.points))

    def covers(self, target: Array) -> Mask:
        slack = _ROUNDING * max(abs(self.points[0]), abs(self.points[-1]))
        return np.asarray((target >= self.points[0] - slack) & (target <= self.points[-1] + slack))

    def contains(self, low: float, high: float) -> bool:
        return False  # a ladder never holds all of a range

    def spread(self, price: Array, target: Array, h: float) -> Array:
        """The share of each ladder price in the stand-in for t.

        A price of the ladder stands for itself, and any other is put together from its two neighbours, in the
        proportions of a straight line. Only where h takes in more prices of a fine ladder are these used as well, by
        L(p_k) = s_k K(u_k) (S2 - S1 u_k) / (S0 S2 - S1^2), S_j = sum over k of s_k K(u_k) u_k^j, with s_k the share of
        the customers who were quoted p_k, so that a rare price does not get a large weight.
        """
        t = np.clip(target, self.points[0], self.points[-1])
        result = self._between(t)
        if h > 0.0 and len(self.points) > 2:
            step = max(1, _CELLS // len(self.points))
            for start in range(0, len(t), step):
                some = slice(start, start + step)
                near, value = self._window(t[some], self.place[some], h)
                result[some] = np.where(near, value, result[some])
        return result

    def _between(self, t: Array) -> Array:
        """Shares from the two neighbours."""
        if len(self.points) == 1:
            return np.ones(len(t))
        k = np.clip(np.searchsorted(self.points, t, side="right") - 1, 0, len(self.points) - 2)
        part = (t - self.points[k]) / (self.points[k + 1] - self.points[k])
        return np.where(self.place == k, 1.0 - part, np.where(self.place == k + 1, part, 0.0))

    def _window(self, t: Array, place: Rows, h: float) -> tuple[Mask, Array]:
        """Where the window holds three prices or more, on both sides of t, and the shares by it."""
        b = widened(t, h, self.points[0], self.points[-1])[:, None]
        u = (self.points[None, :] - t[:, None]) / b
        kernel = self.share * np.maximum(1.0 - u * u, 0.0)
        inside = kernel > 0.0
        near = (inside.sum(axis=1) >= 3) & (inside & (u <= 0.0)).any(axis=1) & (inside & (u >= 0.0)).any(axis=1)
        s0, s1, s2 = ((kernel * u**j).sum(axis=1) for j in range(3))
        own = np.arange(len(t)), place
        determinant = np.where(near, s0 * s2 - s1 * s1, 1.0)
        return near, kernel[own] * (s2 - s1 * u[own]) / determinant
