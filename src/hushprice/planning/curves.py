"""What the model says about prices, with what the log leaves open: demand and revenue over the price, best prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hushprice.errors import Array
from hushprice.markets.twin import Twin

CUSTOMERS, DRAWS, PRICES = 2_000, 200, 41


@dataclass(frozen=True, eq=False)
class Curve:
    """A mean over customers at each price: by the fitted theta, and its 95% band over draws of theta."""

    price: Array
    mean: Array
    low: Array
    high: Array


def curves(twin: Twin, *, worth: float = 1.0, seed: int = 0) -> tuple[Curve, Curve]:
    """Demand and revenue a customer, if everyone were quoted the same price.

    Over at most 2 000 of the twin's customers and 200 draws of theta; without a covariance the bands have no width.
    """
    rng = np.random.default_rng(seed)
    n = len(twin.contexts.rows)
    who = np.arange(n) if n <= CUSTOMERS else np.sort(rng.choice(n, CUSTOMERS, replace=False))
    z, cost = twin.contexts.rows[who], twin.costs[who]
    price = np.linspace(*twin.prices, PRICES)
    thetas = [twin.theta, *(_draws(twin, rng))]
    demand, revenue = np.empty((len(thetas), PRICES)), np.empty((len(thetas), PRICES))
    for i, theta in enumerate(thetas):
        a, b = z @ theta[: twin.dim], z @ theta[twin.dim :]
        mean = twin.family.mean(a[:, None] - b[:, None] * price)
        demand[i] = mean.mean(axis=0)
        revenue[i] = worth * (mean * (price - cost[:, None])).mean(axis=0)
    return _curve(price, demand), _curve(price, revenue)


def _draws(twin: Twin, rng: np.random.Generator) -> list[Array]:
    return [] if twin.covariance is None else [twin.truth(rng).theta for _ in range(DRAWS)]


def _curve(price: Array, values: Array) -> Curve:
    drawn = values[1:] if len(values) > 1 else values
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return Curve(price, values[0], low, high)


@dataclass(frozen=True, kw_only=True)
class SegmentPrices:
    """Customers of a segment: their share, mean price today and by the model, demand and revenue a customer at both."""

    segment: str
    share: float
    today: float
    best: float
    best_low: float
    best_high: float
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
            "at an end": f"{self.at_end:.0%}",
            "demand today": self.demand_today,
            "demand then": self.demand_best,
            "revenue today": self.revenue_today,
            "revenue then": self.revenue_best,
        }


def segment_prices(twin: Twin, *, worth: float = 1.0) -> list[SegmentPrices]:
    """Today's prices and the model's best ones, by segment (or of everyone); nine of ten of these lie in a range."""
    index, best, today = twin.contexts.segments, twin.best_prices(), twin.today
    a, b = twin.contexts.rows @ twin.alpha, twin.contexts.rows @ twin.beta
    demand = {name: twin.family.mean(a - b * price) for name, price in (("today", today), ("best", best))}
    revenue = {name: worth * demand[name] * (price - twin.costs) for name, price in (("today", today), ("best", best))}
    lowest, highest = twin.ends()
    at_end = (best <= lowest) | (best >= highest)
    groups: dict[str, Any] = {"everyone": np.ones(len(best), dtype=bool)}
    if index is not None and len(twin.segments) > 1:
        groups |= {name: index == i for i, name in enumerate(twin.segments) if (index == i).any()}
    made = []
    for name, rows in groups.items():
        low, high = np.quantile(best[rows], [0.05, 0.95])
        made.append(
            SegmentPrices(
                segment=name, share=float(rows.mean()), today=float(today[rows].mean()), best=float(best[rows].mean()),
                best_low=float(low), best_high=float(high), at_end=float(at_end[rows].mean()),
                demand_today=float(demand["today"][rows].mean()), demand_best=float(demand["best"][rows].mean()),
                revenue_today=float(revenue["today"][rows].mean()), revenue_best=float(revenue["best"][rows].mean()),
            )
        )  # fmt: skip
    return made
