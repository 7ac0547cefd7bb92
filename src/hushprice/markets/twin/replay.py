"""Observed and predicted demand by groups of rows, and a test that accounts for the fit.

The gap of a group is r_g = sum of w (y - mu), observed minus predicted demand. With D = diag(sum of w v), v = phi psi''
the variance of an outcome, and B_g = sum of w psi'' x, x = (z, -p z),

    Cov(r) = D - B S B'   on the rows that the model was fitted to, S the covariance of theta
    Cov(r) = D + B S B'   on other rows, where the error of theta adds to the gap

With rows that are discounted by factors f, as in a fit with a half-life, r_g = sum of w f (y - mu) and

    Cov(r) = D - C A B' - B A C' + B S B'   on the rows of the fit
    Cov(r) = D + B S B'                     on other rows

with D = diag(sum of w f^2 v), B_g = sum of w f psi'' x, C_g = sum of w f^2 psi'' x and A the inverse of
sum of w f psi'' x x' / phi. Without a discount C = B and A = S.

r' Cov(r)^- r is chi-squared with rank(Cov(r)) degrees of freedom. Groups whose gap the fit forces to 0 (all rows
together, segments that are features) are no evidence and do not count.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from scipy.special import chdtrc

from hushprice.arrays import Array
from hushprice.fitting.diagnosis.segments import quantile_edges
from hushprice.markets.twin.rows import MAX_GROUPS_OF_ROWS, Names, TwinRows

TENTHS = 10
VALUES_OF = "values of "
FORCED = 1e-3  # a gap with a smaller share of free variance is forced by the fit
FEW_ROWS, FEW_EVENTS = 50.0, 5.0  # smaller groups are joined, for chi-squared to be valid


@dataclass(frozen=True)
class Group:
    """A group of rows.

    Attributes
    ----------
    name : str
        Name of the group.
    rows : float
        Number of rows, by weight.
    seen, predicted : float
        Mean observed and predicted demand.
    z : float or None
        The gap in standard errors; None if the fit forces it to 0.
    low, high : float or None
        The smallest and the largest value in the group; None for a group of words or of rows without a value.
    """

    name: str
    rows: float
    seen: float
    predicted: float
    z: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Replay:
    """Observed and predicted demand by group.

    Attributes
    ----------
    what : str
        How rows are grouped.
    groups : tuple of Group
        The groups.
    chi2, df : float, int
        The statistic and its degrees of freedom.
    p : float or None
        The p-value; None if the fit forces all gaps to 0.
    where : str
        What a sentence about some of the groups calls them: "prices", "values of age", "the segment". Empty for all
        rows together.
    ranges : bool
        Whether groups are ranges of numbers.
    """

    what: str
    groups: tuple[Group, ...]
    chi2: float
    df: int
    p: float | None
    where: str = ""
    ranges: bool = False

    @property
    def of_feature(self) -> bool:
        """Whether groups are values of a feature."""
        return self.where.startswith(VALUES_OF)

    @property
    def largest_gap(self) -> float:
        """The largest |seen / predicted - 1| over the groups."""
        return max((gap_of(g.seen, g.predicted) for g in self.groups), default=0.0)


def gap_of(value: float, reference: float) -> float:
    """|value / reference - 1|; 0 for a reference of 0."""
    return abs(value / reference - 1.0) if reference else 0.0


@dataclass(frozen=True, eq=False)
class Weighed:
    """Rows with their weights w, outcomes y, means mu and variances v of the outcomes, w psi'' x, and discounts.

    ``w`` has the discount once and ``v`` once more.
    """

    w: Array
    y: Array
    mu: Array
    v: Array
    vx: Array
    factor: Array


class Grouping:
    """Sums by group. Rows are grouped by a number with ``edges``, or without edges by a word.

    Parameters
    ----------
    what, where : str
        Those of :class:`Replay`.
    values : callable
        The number or word of each row, from rows and their predicted demand. Rows whose number is NaN are a group.
    edges : ndarray or None
        Lowest numbers of the groups but the first.
    dim : int
        Dimension of z.
    """

    def __init__(
        self, what: str, values: Callable[[TwinRows, Array], Any], edges: Array | None, dim: int, where: str = ""
    ) -> None:
        self.what, self.where, self.values, self.edges = what, where, values, edges
        count = MAX_GROUPS_OF_ROWS if edges is None else len(edges) + 2  # the last one is of rows without a value
        self.names = Names(what.capitalize())
        self.w, self.y, self.mu, self.v = (np.zeros(count) for _ in range(4))
        self.B, self.C = np.zeros((count, 2 * dim)), np.zeros((count, 2 * dim))
        self.low, self.high = np.full(count, np.inf), np.full(count, -np.inf)

    def add(self, batch: TwinRows, rows: Weighed) -> None:
        """Add rows."""
        values = self.values(batch, rows.mu)
        if self.edges is None:
            index = self.names.index(values)
        else:
            index = np.searchsorted(self.edges, values, side="right")
            index[np.isnan(values)] = len(self.edges) + 1
            np.fmin.at(self.low, index, values)
            np.fmax.at(self.high, index, values)
        count, w = len(self.w), rows.w
        for total, part in ((self.w, w), (self.y, w * rows.y), (self.mu, w * rows.mu), (self.v, w * rows.v)):
            total += np.bincount(index, weights=part, minlength=count)
        members: Any = csr_array((np.ones(len(index)), index, np.arange(len(index) + 1)), shape=(len(index), count)).T
        self.B += members @ rows.vx
        if (rows.factor != 1.0).any():
            self.C += members @ (rows.factor[:, None] * rows.vx)

    def compare(self, S: Array, sign: float, *, events: bool, inverse: Array | None = None) -> Replay:
        """The test over the groups, with small groups joined; ``inverse`` is A where the rows are discounted."""
        members = self._members(events)
        ends = [(self.low[rows].min(), self.high[rows].max()) for _, rows in members]
        w, y, mu, v = (
            np.array([total[rows].sum() for _, rows in members]) for total in (self.w, self.y, self.mu, self.v)
        )
        B = np.array([self.B[rows].sum(axis=0) for _, rows in members]).reshape(len(members), -1)
        root = np.sqrt(v)
        gap = (y - mu) / root
        # B sums psi'' x, so that for linear demand B S B' is in the units of D = phi n
        covariance = np.eye(len(v)) + sign * (B / root[:, None]) @ S @ (B / root[:, None]).T
        if inverse is not None:
            C = np.array([self.C[rows].sum(axis=0) for _, rows in members]).reshape(len(members), -1)
            across = (C / root[:, None]) @ inverse @ (B / root[:, None]).T
            covariance = np.eye(len(v)) - across - across.T + (B / root[:, None]) @ S @ (B / root[:, None]).T
        free = np.diag(covariance)
        z = [float(g / np.sqrt(f)) if f > FORCED else None for g, f in zip(gap, free, strict=True)]
        values, vectors = np.linalg.eigh(covariance)
        free_axes = values > FORCED
        chi2 = float((((vectors.T @ gap)[free_axes]) ** 2 / values[free_axes]).sum())
        df = int(free_axes.sum())
        groups = tuple(
            Group(name, float(n), float(seen / n), float(predicted / n), one, *_finite(*between))
            for (name, _), n, seen, predicted, one, between in zip(members, w, y, mu, z, ends, strict=True)
        )
        p = float(chdtrc(df, chi2)) if df else None
        return Replay(self.what, groups, chi2, df, p, self.where, self.edges is not None)

    def _members(self, events: bool) -> list[tuple[str, npt.NDArray[np.int64]]]:
        """Name of each group, and the indices of its sums."""
        small = (self.w < FEW_ROWS) | ((self.v < FEW_EVENTS) if events else (self.v <= 0.0))
        if self.edges is None:
            named = sorted(self.names.places.items())
        else:
            ends = enumerate(zip(self.low[:-1], self.high[:-1], strict=True))
            named = [(f"{low:.4g} to {high:.4g}" if len(self.edges) else "all", i) for i, (low, high) in ends]
            named.append(("(missing)", len(self.edges) + 1))
        large = [(name, np.array([i])) for name, i in named if not small[i]]
        rest = np.flatnonzero(small & (self.w > 0.0))
        if self.v[rest].sum() > 0.0:
            large.append(("(others)" if large else "all", rest))
        return large


def _finite(low: float, high: float) -> tuple[float | None, float | None]:
    """The ends of a range; None where there is none."""
    return (float(low), float(high)) if np.isfinite(low) and np.isfinite(high) else (None, None)


def tenths(values: Array) -> Array:
    """Edges between tenths of the values, or between distinct values if they are few."""
    distinct = np.unique(values)
    if len(distinct) <= TENTHS:
        return np.asarray(0.5 * (distinct[1:] + distinct[:-1]))
    return quantile_edges(values, TENTHS)
