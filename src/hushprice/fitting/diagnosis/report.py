"""The report of a fitted demand model: coefficients, elasticities by segment, calibration and held-out fit.

All sums are accumulated batch by batch in one pass, so that the log need not fit into memory.

The elasticity of a segment's total demand D = sum w psi'(eta) when all logged prices rise by one percent is

    E = -N / D,    N = sum w p b psi''(eta),    eta = z.alpha - p z.beta,  b = z.beta,

and its standard error follows by the delta method from the covariance of (alpha, beta), with

    dN/dalpha = sum w p b psi''' z        dN/dbeta = sum w (p psi'' - p^2 b psi''') z
    dD/dalpha = sum w psi'' z             dD/dbeta = -sum w p psi'' z
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.demand import Family
from hushprice.kernels import glm as kernel

Index = npt.NDArray[np.intp]


@dataclass(frozen=True, kw_only=True)
class Coefficient:
    """Effects of one entry of z on utility (alpha) and on price sensitivity (beta), with standard errors.

    Attributes
    ----------
    name : str
        The entry of z.
    alpha, alpha_se : float
        Effect on utility; the standard error is infinite if the log does not identify it.
    beta, beta_se : float or None
        Effect on price sensitivity; None if it is fixed at 0.
    """

    name: str
    alpha: float
    alpha_se: float
    beta: float | None
    beta_se: float | None


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One segment of customers. Means are weighted; shares are shares of the weight.

    Attributes
    ----------
    name : str
        Name of the segment.
    rows, weight : int, float
        Its rows and their total weight.
    low, high, mean_price : float
        Range and mean of the logged prices.
    demand, predicted : float
        Mean demand observed and predicted at the logged prices.
    elasticity, elasticity_se : float
        Elasticity of its total demand at the logged prices.
    best_price : float
        Mean over its customers of the best price in the range of ``prices``.
    at_low, at_high : float
        Shares of customers whose best price is the low or the high end of the range.
    rising : float
        Share of customers whose demand does not fall with the price.
    """

    name: str
    rows: int
    weight: float
    low: float
    high: float
    mean_price: float
    demand: float
    predicted: float
    elasticity: float
    elasticity_se: float
    best_price: float
    at_low: float
    at_high: float
    rising: float


@dataclass(frozen=True, kw_only=True)
class Tenth:
    """Held-out rows with similar predicted demand.

    Attributes
    ----------
    rows : int
        Number of rows.
    predicted, seen : float
        Mean demand predicted and observed.
    low, high : float
        95% interval of the observed mean.
    """

    rows: int
    predicted: float
    seen: float
    low: float
    high: float

    @property
    def agrees(self) -> bool:
        """Whether the prediction lies in the interval."""
        return self.low <= self.predicted <= self.high


@dataclass(frozen=True, kw_only=True)
class Score:
    """How well one model predicts held-out rows.

    Attributes
    ----------
    model : str
        "with price", "without price" or "mean alone".
    loglik : float
        Log-likelihood per row.
    explained : float
        Share of the deviance explained.
    auc : float or None
        Area under the ROC curve; None unless demand is logistic.
    """

    model: str
    loglik: float
    explained: float
    auc: float | None


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """How well the model predicts rows that its training excluded.

    Attributes
    ----------
    rows, trained_on : int
        Numbers of held-out rows and of training rows.
    scores : tuple of Score
        The scores of the model, of the model without the price, and of the mean alone.
    calibration : tuple of Tenth
        Predicted and observed demand in tenths of predicted demand.
    """

    rows: int
    trained_on: int
    scores: tuple[Score, ...]
    calibration: tuple[Tenth, ...]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Mean demand of a segment's customers if all are quoted the same price.

    Attributes
    ----------
    name : str
        The segment.
    prices, demand, demand_se : tuple of float
        Prices, and the mean demand at each with its standard error.
    """

    name: str
    prices: tuple[float, ...]
    demand: tuple[float, ...]
    demand_se: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Side:
    """Demand of the average customer before or after a change.

    Attributes
    ----------
    demand : float
        Mean demand at the mean price.
    sensitivity : float
        Price sensitivity.
    best_price : float
        The best price in the range of the model, at no cost.
    """

    demand: float
    sensitivity: float
    best_price: float


@dataclass(frozen=True, kw_only=True)
class Constancy:
    """The test that demand did not change in the course of the log, whose rows are taken to be in order of time.

    Attributes
    ----------
    p_value : float
        Probability of a larger fluctuation if demand never changed.
    first, row, rows : int
        First row of the test, the row near which a change is most likely, and the rows of the log.
    what : tuple of str
        What changed most surely, in words.
    mean_price : float
        The mean price.
    before, after : Side
        The average customer before and after that row.
    loss : float
        Share of the revenue that the best price from before loses afterwards.
    """

    p_value: float
    first: int
    row: int
    rows: int
    what: tuple[str, ...]
    mean_price: float
    before: Side
    after: Side
    loss: float


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of :func:`hushprice.fit`.

    Attributes
    ----------
    coefficients : tuple of Coefficient
        One per entry of z.
    by : str
        What defines the segments.
    everyone : Segment
        All customers.
    segments : tuple of Segment
        The segments; empty if there is only one.
    curves : tuple of Curve
        Demand curves, the first of all customers.
    held_out : HeldOut or None
        Held-out scores; None if the log has too few rows.
    sensitivity, sensitivity_se : float
        Mean price sensitivity of the customers.
    effective : float or None
        With a half-life, the number of rows of equal weight that tell as much.
    constancy : Constancy or None
        Whether demand changed in the course of the log; None if there are too few rows to tell.
    """

    coefficients: tuple[Coefficient, ...]
    by: str
    everyone: Segment
    segments: tuple[Segment, ...]
    curves: tuple[Curve, ...]
    held_out: HeldOut | None
    sensitivity: float
    sensitivity_se: float
    effective: float | None = None
    constancy: Constancy | None = None


def coefficients(
    names: Sequence[str], theta: Array, covariance: Array, sensitive: npt.NDArray[np.bool_]
) -> tuple[Coefficient, ...]:
    """The table of coefficients, on the standardised scale of z."""
    d = len(names)
    se = standard_errors(covariance)
    return tuple(
        Coefficient(
            name=name,
            alpha=float(theta[j]),
            alpha_se=float(se[j]),
            beta=float(theta[d + j]) if sensitive[j] else None,
            beta_se=float(se[d + j]) if sensitive[j] else None,
        )
        for j, name in enumerate(names)
    )


def standard_errors(covariance: Array) -> Array:
    """Roots of the diagonal; infinite where a coefficient is not identified."""
    variance = np.diag(covariance)
    return np.sqrt(np.where(np.isfinite(variance), np.maximum(variance, 0.0), np.inf))


def spread(gradient: Array, covariance: Array) -> float:
    """Standard error of a function with this gradient, by the delta method; infinite if it is not identified."""
    used = gradient != 0.0
    variance = float(gradient[used] @ covariance[np.ix_(used, used)] @ gradient[used])
    return math.sqrt(max(variance, 0.0)) if math.isfinite(variance) else math.inf


def utility(z: Array, theta: Array) -> tuple[Array, Array]:
    """(z.alpha, z.beta) of every row. Not by BLAS, whose threads would compete with those of the pass."""
    a, b = np.empty(len(z)), np.empty(len(z))
    kernel.utility(np.ascontiguousarray(z), theta, a, b)
    return a, b


class SegmentSums:
    """Sums over the rows of each segment, from which the :class:`Segment` objects are computed."""

    COUNTS = (
        "rows", "weight", "price", "demand", "predicted", "slope", "best", "at_low", "at_high", "rising", "misses",
    )  # fmt: skip

    def __init__(self, names: Sequence[str], family: Family, theta: Array, prices: tuple[float, float]) -> None:
        self.names = tuple(names)
        self.family, self.theta, self.prices = family, theta, prices
        d = theta.size // 2
        self.sums = np.zeros((len(names), len(self.COUNTS)))
        self.gradients = np.zeros((len(names), 4, d))
        self.mean_z = np.zeros(d)
        self.low, self.high = np.full(len(names), np.inf), np.full(len(names), -np.inf)

    def add(self, z: Array, price: Array, y: Array, w: Array, index: Index) -> None:
        """Add a block of rows; ``index`` holds the segment of each."""
        if len(self.names) > 1:
            order = np.argsort(index, kind="stable")
            z, price, y, w, index = z[order], price[order], y[order], w[order], index[order]
        family = self.family
        a, b = utility(z, self.theta)
        eta = a - b * price
        mean, first, second = family.mean(eta), family.curvature(eta), family.skewness(eta)
        low, high = self.prices
        best = family.optimal_price(a, b, self.prices) if low < high else np.full(len(z), low)
        columns = np.array(
            [np.ones(len(z)), w, w * price, w * y, w * mean, w * price * b * first,
             w * best, w * (best <= low), w * (best >= high), w * (b <= 0.0), w * (y - mean) ** 2]
        )  # fmt: skip
        pull = w * np.array([price * b * second, price * (first - price * b * second), first, -price * first])
        starts = np.flatnonzero(np.r_[True, index[1:] != index[:-1]])
        here = index[starts]
        self.sums[here] += np.add.reduceat(columns, starts, axis=1).T
        self.low[here] = np.minimum(self.low[here], np.minimum.reduceat(price, starts))
        self.high[here] = np.maximum(self.high[here], np.maximum.reduceat(price, starts))
        self.mean_z += np.einsum("i,ij->j", w, z)
        for s, start, end in zip(here, starts, [*starts[1:], len(z)], strict=True):
            self.gradients[s] += np.einsum("ki,ij->kj", pull[:, start:end], z[start:end])

    def empty(self) -> SegmentSums:
        """Sums for the same segments over no rows."""
        return SegmentSums(self.names, self.family, self.theta, self.prices)

    def merge(self, other: SegmentSums) -> None:
        """Add the sums over other rows."""
        self.sums += other.sums
        self.gradients += other.gradients
        self.mean_z += other.mean_z
        self.low, self.high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)

    def sensitivity(self, covariance: Array) -> tuple[float, float]:
        """The mean price sensitivity of customers, and its standard error."""
        d = self.mean_z.size
        mean = self.mean_z / self.sums[:, 1].sum()
        return float(mean @ self.theta[d:]), spread(np.concatenate([np.zeros(d), mean]), covariance)

    def dispersion(self) -> float:
        """Ratio of squared residuals to predicted demand: sum w (y - psi')^2 / sum w psi'.

        This is the ratio of the sandwich variance to the model variance for the constant of a Poisson model. It is 1
        for Poisson demand, and rows with hardly any demand affect it less than Pearson's statistic.
        """
        total = dict(zip(self.COUNTS, self.sums.sum(axis=0).tolist(), strict=True))
        return float(total["misses"] / total["predicted"]) if total["predicted"] > 0.0 else math.nan

    def everyone(self, covariance: Array) -> Segment:
        """All segments together."""
        return self._segment(
            "everyone", self.sums.sum(axis=0), self.gradients.sum(axis=0), self.low.min(), self.high.max(), covariance
        )

    def segments(self, covariance: Array) -> tuple[Segment, ...]:
        """The segments that have rows."""
        parts = zip(self.names, self.sums, self.gradients, self.low, self.high, strict=True)
        return tuple(self._segment(*part, covariance) for part in parts if part[1][0] > 0)

    def _segment(self, name: str, sums: Array, pull: Array, low: float, high: float, covariance: Array) -> Segment:
        total = dict(zip(self.COUNTS, sums.tolist(), strict=True))
        weight, top, bottom = total["weight"], total["slope"], total["predicted"]
        elasticity, se = math.nan, math.inf
        if bottom != 0.0:
            top_slope, bottom_slope = np.concatenate(pull[:2]), np.concatenate(pull[2:])
            elasticity = -top / bottom
            se = spread(-(top_slope - top / bottom * bottom_slope) / bottom, covariance)
        return Segment(
            name=name, rows=int(total["rows"]), weight=weight, low=float(low), high=float(high),
            mean_price=total["price"] / weight, demand=total["demand"] / weight, predicted=bottom / weight,
            elasticity=elasticity, elasticity_se=se, best_price=total["best"] / weight,
            at_low=total["at_low"] / weight, at_high=total["at_high"] / weight, rising=total["rising"] / weight,
        )  # fmt: skip


def curves(
    names: Sequence[str], family: Family, theta: Array, covariance: Array, z: Array, w: Array, index: Index, grid: Array
) -> tuple[Curve, ...]:
    """Demand curves of all customers and of each segment, from a sample; standard errors by the delta method.

    D(p) = sum w psi'(eta) / sum w,    dD/dalpha = sum w psi'' z / sum w,    dD/dbeta = -p dD/dalpha
    """
    d = z.shape[1]
    groups = {"everyone": np.ones(len(z), dtype=np.bool_), **{n: index == s for s, n in enumerate(names)}}
    result = []
    for name, of in groups.items():
        if not of.any():
            continue
        share = w[of] / w[of].sum()
        a, b = z[of] @ theta[:d], z[of] @ theta[d:]
        eta = a - np.outer(grid, b)
        slope = (share * family.curvature(eta)) @ z[of]
        demand = (family.mean(eta) @ share).tolist()
        ses = [spread(np.concatenate([s, -p * s]), covariance) for s, p in zip(slope, grid, strict=True)]
        result.append(Curve(name=name, prices=tuple(grid.tolist()), demand=tuple(demand), demand_se=tuple(ses)))
    return tuple(result)
