"""Statistics of a product for the dashboard: counts and their history, folded from the log.

They do not affect prices. For private products there are only counts. For plain products the last closed offers are
retained, to compare their earnings with the baseline.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from hushprice.arrays import Array
from hushprice.policies.loop import FAR
from hushprice.service.definition import Definition

POINTS = 300  # of the history, at most
MINUTES = 60
RECENT, RECENT_NUMBERS = 1_000, 200_000  # closed offers retained, and the numbers that their contexts may have
LARGEST_SHOWN = 64  # coefficients; longer estimates are left out of the history

COUNTS = (
    "customers", "experiments", "far", "learned", "reports", "silent", "unasked", "stale", "outcomes", "late",
    "expired",
)  # fmt: skip
SUMS = ("price_sum", "deviation", "quantity", "revenue", "profit")


class Closed(NamedTuple):
    """An offer with its outcome, of a plain product."""

    z: Array
    price: float
    y: float
    cost: float


class Point(NamedTuple):
    """The counts and sums so far, after some customer."""

    at: float
    seq: int
    phase: int  # published for this customer
    counts: tuple[int, ...]  # in the order of COUNTS
    sums: tuple[float, ...]  # in the order of SUMS
    theta: tuple[float, ...]  # the policy's estimate then; empty if it is long

    @property
    def customers(self) -> int:
        return self.counts[0]


class ProductStatistics:
    """Counts, sums, a history thinned to at most 300 points, customers per minute, and the last closed offers.

    Attributes
    ----------
    customers, experiments : int
        Customers served; those at experimental prices (private: while experiments were requested).
    far : int
        Customers of a plain product whose price was more than a tenth of the price range away from the best known one.
    learned : int
        Outcomes or reports learned from.
    reports, silent : int
        Private customers with and without a report.
    unasked, stale : int
        Reports not learned from: none was requested, or the version was too old.
    outcomes, late, expired : int
        Outcomes in time, outcomes too late, and offers that expired.
    price_sum : float
        Sum of the prices of all customers.
    deviation : float
        Sum of their distances from the best known prices, in price ranges. In shadow mode, of the prices that the
        policy would have quoted.
    quantity, revenue, profit : float
        Sums over outcomes.
    """

    def __init__(self, definition: Definition) -> None:
        self.customers = self.experiments = self.far = self.learned = 0
        self.reports = self.silent = self.unasked = self.stale = 0
        self.outcomes = self.late = self.expired = 0
        self.price_sum = self.deviation = self.quantity = self.revenue = self.profit = 0.0
        self.minutes: dict[int, int] = {}  # customers by minute since 1970, the last hour
        self.points: list[Point] = []
        self.stride = 1  # customers from one point of the history to the next
        self._dim = definition.dim
        self.recent: deque[Closed] = deque(maxlen=max(1, min(RECENT, RECENT_NUMBERS // definition.dim)))

    @property
    def room(self) -> int:
        """Customers until the next point of the history."""
        return self.stride - self.customers % self.stride

    @property
    def counts(self) -> dict[str, int]:
        """The counts by name."""
        return {name: getattr(self, name) for name in COUNTS}

    def serve(self, at: float, n: int = 1) -> None:
        """Count n customers of one minute (the caller splits runs of events by minute)."""
        self.customers += n
        minute = int(at // 60.0)
        self.minutes[minute] = self.minutes.get(minute, 0) + n
        if len(self.minutes) > MINUTES:
            newest = max(self.minutes)
            self.minutes = {m: count for m, count in self.minutes.items() if m > newest - MINUTES}

    def deviate(self, distance: float) -> None:
        """Count a price at this distance from the best known one, in price ranges."""
        self.deviation += distance
        self.far += distance > FAR

    def sell(self, closed: Closed) -> None:
        """Count a closed offer."""
        self.quantity += closed.y
        self.revenue += closed.price * closed.y
        self.profit += (closed.price - closed.cost) * closed.y
        self.recent.append(closed)

    def note(self, at: float, seq: int, phase: int, theta: Array) -> None:
        """Append a point to the history if one is due."""
        if self.customers == 0 or self.customers % self.stride:
            return
        shown = tuple(theta.tolist()) if theta.size <= LARGEST_SHOWN else ()
        counts = tuple(getattr(self, name) for name in COUNTS)
        sums = tuple(getattr(self, name) for name in SUMS)
        self.points.append(Point(at, seq, phase, counts, sums, shown))
        if len(self.points) >= POINTS:
            self.stride *= 2
            self.points = [point for point in self.points if point.customers % self.stride == 0]

    def state(self) -> dict[str, Any]:
        """The statistics as plain data."""
        points, recent = self.points, self.recent
        width = len(points[0].theta) if points else 0
        return {
            **{name: getattr(self, name) for name in (*COUNTS, *SUMS)},
            "stride": self.stride,
            "minutes": np.array(sorted(self.minutes.items()), dtype=np.int64).reshape(-1, 2),
            "points": {
                "at": np.array([p.at for p in points], dtype=np.float64),
                "seq": np.array([p.seq for p in points], dtype=np.int64),
                "phase": np.array([p.phase for p in points], dtype=np.int64),
                "counts": np.array([p.counts for p in points], dtype=np.int64).reshape(-1, len(COUNTS)),
                "sums": np.array([p.sums for p in points], dtype=np.float64).reshape(-1, len(SUMS)),
                "theta": np.array([p.theta for p in points], dtype=np.float64).reshape(len(points), width),
            },
            "recent": {
                "z": np.array([c.z for c in recent], dtype=np.float64).reshape(len(recent), self._dim),
                "sale": np.array([c[1:] for c in recent], dtype=np.float64).reshape(-1, 3),
            },
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the result of :meth:`state`."""
        for name in (*COUNTS, *SUMS, "stride"):
            setattr(self, name, state[name])
        self.minutes = {int(minute): int(n) for minute, n in state["minutes"]}
        points, recent = state["points"], state["recent"]
        columns = (points[key].tolist() for key in ("at", "seq", "phase", "counts", "sums", "theta"))
        self.points = [
            Point(at, seq, phase, tuple(counts), tuple(sums), tuple(theta))
            for at, seq, phase, counts, sums, theta in zip(*columns, strict=True)
        ]
        self.recent.clear()
        self.recent.extend(Closed(z, *sale) for z, sale in zip(recent["z"], recent["sale"].tolist(), strict=True))
