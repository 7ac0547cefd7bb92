"""Demand and revenue over the price, with their uncertainty, and best prices by segment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.fitting.diagnosis.findings import at_ends
from hushprice.fitting.diagnosis.report import spread
from hushprice.markets.twin.twin import Twin
from hushprice.plots.planning import Band

PLAN_CUSTOMERS, PLAN_PRICES = 10_000, 41
NAMED = 5  # largest number of segments in a text


def curves(twin: Twin, *, worth: float = 1.0) -> tuple[Band, Band]:
    """Demand and revenue per customer if all are quoted the same price, over at most 10 000 of the customers.

    Bands of the mean of c psi'(eta), with c = 1 or worth (p - cost), are by the delta method, as in a fit:

        d/dalpha = mean of c psi'' z,    d/dbeta = -p d/dalpha

    Without a covariance they have no width.
    """
    n = len(twin.contexts.rows)
    who = np.sort(np.random.default_rng(0).permutation(n)[:PLAN_CUSTOMERS])
    price, z = np.linspace(*twin.prices, PLAN_PRICES), twin.contexts.rows[who]
    margin = worth * (price - twin.costs[who, None])
    return _band(twin, z, price, np.ones_like(margin)), _band(twin, z, price, margin)


def _band(twin: Twin, z: Array, price: Array, each: Array) -> Band:
    """The mean over customers of ``each`` times demand."""
    eta = (z @ twin.alpha)[:, None] - (z @ twin.beta)[:, None] * price
    mean = (each * twin.family.mean(eta)).mean(axis=0)
    slope = (each * twin.family.curvature(eta)).T @ z / len(z)
    S = np.zeros((2 * twin.dim, 2 * twin.dim)) if twin.covariance is None else twin.covariance
    reach = 1.96 * np.array([spread(row, S) for row in np.hstack([slope, -price[:, None] * slope])])
    return Band(price, mean, mean - reach, mean + reach)


def allowed_prices(twin: Twin) -> str:
    """Description of the allowed prices."""
    ranges = twin.ranges()
    if len(ranges) == 1:
        text = "{:g} to {:g}".format(*next(iter(ranges.values())))
    else:
        text = ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in list(ranges.items())[:NAMED])
    more = f" and {len(ranges) - NAMED} more segments" if len(ranges) > NAMED else ""
    ladder = f", on a ladder of {len(twin.rules.ladder)} prices" if twin.rules and twin.rules.ladder else ""
    step = twin.rules.largest_step if twin.rules else None
    return f"{text}{more}{ladder}{'' if step is None else f', in steps of at most {step:g}'}"


@dataclass(frozen=True, kw_only=True)
class SegmentPrices:
    """A segment: its share of customers, today's, best and allowed prices, and demand and revenue per customer."""

    segment: str
    share: float
    today: float
    best: float
    best_low: float
    best_high: float
    lowest: float
    highest: float
    at_end: float
    demand_today: float
    demand_best: float
    revenue_today: float
    revenue_best: float

    def row(self) -> dict[str, Any]:
        """For a table."""
        return {
            "segment": self.segment,
            "customers": f"{self.share:.0%}",
            "price today": self.today,
            "model's price": self.best,
            "nine of ten": f"{self.best_low:.4g} to {self.best_high:.4g}",
            "allowed": f"{self.lowest:.4g} to {self.highest:.4g}",
            "at an end": f"{self.at_end:.0%}",
            "demand today": self.demand_today,
            "demand then": self.demand_best,
            "revenue today": self.revenue_today,
            "revenue then": self.revenue_best,
        }


def segment_prices(twin: Twin, *, worth: float = 1.0) -> list[SegmentPrices]:
    """Today's prices and the model's best prices by segment; nine of ten best prices lie in best_low to best_high."""
    index, best, today = twin.contexts.segments, twin.best_prices(), twin.today
    a, b = twin.contexts.rows @ twin.alpha, twin.contexts.rows @ twin.beta
    demand = {name: twin.family.mean(a - b * price) for name, price in (("today", today), ("best", best))}
    revenue = {name: worth * demand[name] * (price - twin.costs) for name, price in (("today", today), ("best", best))}
    lowest, highest = twin.ends()
    groups: dict[str, Any] = {"everyone": np.ones(len(best), dtype=bool)}
    if index is not None and len(twin.segments) > 1:
        groups |= {name: index == i for i, name in enumerate(twin.segments) if (index == i).any()}
    result = []
    for name, rows in groups.items():
        low, high = np.quantile(best[rows], [0.05, 0.95])
        result.append(
            SegmentPrices(
                segment=name, share=float(rows.mean()), today=float(today[rows].mean()), best=float(best[rows].mean()),
                best_low=float(low), best_high=float(high),
                lowest=float(lowest[rows].min()), highest=float(highest[rows].max()),
                at_end=sum(at_ends(best[rows], lowest[rows], highest[rows])),
                demand_today=float(demand["today"][rows].mean()), demand_best=float(demand["best"][rows].mean()),
                revenue_today=float(revenue["today"][rows].mean()), revenue_best=float(revenue["best"][rows].mean()),
            )
        )  # fmt: skip
    return result
