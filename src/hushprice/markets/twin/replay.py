"""Seen against predicted demand over groups of rows, with what the fit leaves free.

A group's gap between seen and predicted demand is r_g = sum of w (y - mu). With D = diag(sum of w v), v = phi psi'' the
variance of an outcome, and B_g = sum of w psi'' x, x = (z, -p z),

    Cov(r) = D - B S B'   where the model was fitted to these very rows, S the covariance of theta
    Cov(r) = D + B S B'   on other rows, as then the error of theta comes on top

and r' Cov(r)^- r is chi-squared with rank(Cov(r)) degrees of freedom. What the fit forces to agree (all rows together,
segments that are features) is therefore no evidence and does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import chdtrc

from hushprice.arrays import Array
from hushprice.fitting.diagnosis.segments import quantile_edges
from hushprice.markets.twin.rows import MAX_GROUPS_OF_ROWS, Names

TENTHS = 10
FORCED = 1e-3  # share of a gap's variance that the fit leaves free, below which it tells nothing
FEW_ROWS, FEW_EVENTS = 50.0, 5.0  # smaller groups are joined: chi-squared would not hold for them


@dataclass(frozen=True)
class Group:
    """Rows that belong together: how many (by weight), mean demand seen and predicted, and the gap in standard errors.

    z is None where the fit forces the two to agree.
    """

    name: str
    rows: float
    seen: float
    predicted: float
    z: float | None


@dataclass(frozen=True)
class Replay:
    """Seen and predicted demand over some groups, with chi-squared; p is None where the fit forces all to agree."""

    what: str
    groups: tuple[Group, ...]
    chi2: float
    df: int
    p: float | None

    @property
    def largest_gap(self) -> float:
        """The largest |seen / predicted - 1| over the groups."""
        return max((gap_of(g.seen, g.predicted) for g in self.groups), default=0.0)


def gap_of(value: float, reference: float) -> float:
    """|value / reference - 1|, and 0 where there is nothing to refer to."""
    return abs(value / reference - 1.0) if reference else 0.0


@dataclass(frozen=True, eq=False)
class Weighed:
    """Rows as sums take them: weights, outcomes, their means and variances, and w psi'' x."""

    w: Array
    y: Array
    mu: Array
    v: Array
    vx: Array


class Grouping:
    """Sums over groups that rows fall into by the edges of a number, or by a word where there are no edges."""

    def __init__(self, what: str, edges: Array | None, dim: int) -> None:
        self.what, self.edges = what, edges
        count = MAX_GROUPS_OF_ROWS if edges is None else len(edges) + 1
        self.names = Names(what.capitalize())
        self.w, self.y, self.mu, self.v = (np.zeros(count) for _ in range(4))
        self.B = np.zeros((count, 2 * dim))
        self.low, self.high = np.full(count, np.inf), np.full(count, -np.inf)

    def add(self, values: Any, rows: Weighed) -> None:
        """Take rows in."""
        if self.edges is None:
            index = self.names.index(values)
        else:
            index = np.searchsorted(self.edges, values, side="right")
            np.minimum.at(self.low, index, values)
            np.maximum.at(self.high, index, values)
        count, w = len(self.w), rows.w
        for total, part in ((self.w, w), (self.y, w * rows.y), (self.mu, w * rows.mu), (self.v, w * rows.v)):
            total += np.bincount(index, weights=part, minlength=count)
        for j in range(self.B.shape[1]):
            self.B[:, j] += np.bincount(index, weights=rows.vx[:, j], minlength=count)

    def compare(self, S: Array, sign: float, *, events: bool) -> Replay:
        """The test over its groups, the small ones joined."""
        members = self._members(events)
        w, y, mu, v = (
            np.array([total[rows].sum() for _, rows in members]) for total in (self.w, self.y, self.mu, self.v)
        )
        B = np.array([self.B[rows].sum(axis=0) for _, rows in members]).reshape(len(members), -1)
        root = np.sqrt(v)
        gap = (y - mu) / root
        # B sums psi'' x, so that for linear demand B S B' is in the units of D = phi n
        covariance = np.eye(len(v)) + sign * (B / root[:, None]) @ S @ (B / root[:, None]).T
        free = np.diag(covariance)
        z = [float(g / np.sqrt(f)) if f > FORCED else None for g, f in zip(gap, free, strict=True)]
        values, vectors = np.linalg.eigh(covariance)
        kept = values > FORCED
        chi2, df = float((((vectors.T @ gap)[kept]) ** 2 / values[kept]).sum()), int(kept.sum())
        groups = tuple(
            Group(name, float(n), float(seen / n), float(predicted / n), one)
            for (name, _), n, seen, predicted, one in zip(members, w, y, mu, z, strict=True)
        )
        return Replay(self.what, groups, chi2, df, float(chdtrc(df, chi2)) if df else None)

    def _members(self, events: bool) -> list[tuple[str, npt.NDArray[np.int64]]]:
        """Names of the groups, and the sums each is made of."""
        small = (self.w < FEW_ROWS) | ((self.v < FEW_EVENTS) if events else (self.v <= 0.0))
        if self.edges is None:
            named = sorted(self.names.places.items())
        else:
            spans = zip(self.low, self.high, strict=True)
            named = [
                (f"{low:.4g} to {high:.4g}" if len(self.edges) else "all", i) for i, (low, high) in enumerate(spans)
            ]
        large = [(name, np.array([i])) for name, i in named if not small[i]]
        rest = np.flatnonzero(small & (self.w > 0.0))
        if self.v[rest].sum() > 0.0:
            large.append(("(others)" if large else "all", rest))
        return large


def tenths(values: Array) -> Array:
    """What splits values into tenths, or into their different values if they are few."""
    distinct = np.unique(values)
    if len(distinct) <= TENTHS:
        return np.asarray(0.5 * (distinct[1:] + distinct[:-1]))
    return quantile_edges(values, TENTHS)
