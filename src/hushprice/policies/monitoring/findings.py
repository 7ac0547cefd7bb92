"""What is found while sales come in: that demand has changed, and where it does not follow the model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.demand.misfit import ADVICE, gap_text, runs, span


@dataclass(frozen=True, kw_only=True)
class Change:
    """The last change of demand that was found.

    Parameters
    ----------
    found : int
        Number of outcomes known when it was found.
    began : int
        Number of outcomes known when it began, by the best estimate.
    odds : float
        Odds that demand has changed, when it was found.
    count : int
        Number of changes found so far, this one included.
    before, after : ndarray of shape (2 d,)
        The estimate before the change was found, and the present one.
    """

    found: int
    began: int
    odds: float
    count: int
    before: Array = field(repr=False, compare=False)
    after: Array = field(repr=False, compare=False)

    @property
    def probability(self) -> float:
        """Probability that demand has changed, when the change was found."""
        return self.odds / (1.0 + self.odds)

    def __str__(self) -> str:
        return (
            f"Demand changed after about {self.began:,} outcomes. This was found after {self.found:,}, with a "
            f"probability of {self.probability:.0%}."
        )

    def config(self) -> dict[str, Any]:
        """The change as plain data."""
        return {"found": self.found, "began": self.began, "odds": self.odds, "count": self.count}


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """A range of prices, or of a feature, in which outcomes differ from what the model expects.

    Parameters
    ----------
    feature : int or None
        Number of the feature, from 0; None for the price.
    low, high : float
        The range, without its lower end; infinite if it has no end. Both are NaN for all customers whose feature is
        not 0.
    outcomes : float
        Number of outcomes in the range, of which old ones count less.
    bought, expected : float
        What these customers bought on average, and what the model expected.
    """

    feature: int | None
    low: float
    high: float
    outcomes: float
    bought: float
    expected: float

    def where(self, names: Sequence[str] = ()) -> str:
        """The range in words.

        Parameters
        ----------
        names : sequence of str
            Names of the features.

        Examples
        --------
        >>> Misfit(feature=None, low=4.1, high=math.inf, outcomes=900, bought=0.3, expected=0.2).where()
        'prices above 4.1'
        """
        if self.feature is None:
            what = "prices"
        else:
            known = self.feature < len(names)
            name = names[self.feature] if known else f"feature {self.feature + 1}"
            if math.isnan(self.low):
                return f"customers with {name}"
            what = f"values of {name}"
        return span(what, self.low, self.high)

    def text(self, names: Sequence[str] = ()) -> str:
        """The finding in words, with what to do.

        Parameters
        ----------
        names : sequence of str
            Names of the features.
        """
        return f"{gap_text(self.where(names), self.bought, self.expected)} {ADVICE}"

    def __str__(self) -> str:
        return self.text()

    def config(self) -> dict[str, Any]:
        """The finding as plain data; infinite ends are None."""

        def end(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return {
            "feature": self.feature,
            "low": end(self.low),
            "high": end(self.high),
            "outcomes": self.outcomes,
            "bought": self.bought,
            "expected": self.expected,
        }


def misfits_of(edges: Array, evidence: Array, sums: Array, least: float) -> tuple[Misfit, ...]:
    """The misfits in cells of enough evidence; neighbours that err in the same direction are one.

    Parameters
    ----------
    edges, evidence, sums : ndarray
        As in ``hushprice.kernels.state.MisfitCells``.
    least : float
        The evidence that a cell needs.
    """
    found = []
    for row in range(len(edges)):
        if np.isnan(edges[row, 0]):
            continue
        whole = np.isinf(edges[row, 0])
        ends = np.array([np.nan, np.nan]) if whole else np.concatenate([[-np.inf], edges[row], [np.inf]])
        alarming = evidence[row, : len(ends) - 1] >= least
        n, bought, expected = sums[:, row]
        for run in runs(alarming, bought[: len(alarming)] - expected[: len(alarming)]):
            total = float(n[run].sum())
            found.append(
                Misfit(
                    feature=None if row == 0 else row - 1,
                    low=float(ends[run.start]),
                    high=float(ends[run.stop]),
                    outcomes=total,
                    bought=float(bought[run].sum()) / total,
                    expected=float(expected[run].sum()) / total,
                )
            )
    return tuple(found)
