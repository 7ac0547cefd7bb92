"""Revenue and losses of each option, in money.

Replication r draws a truth and its customers; all options sell to the same customers. With R_r the revenue of the
best prices and L_r(option) the regret of an option, both times ``worth``:

    revenue   R_r - L_r        R_r: mean over options of realised revenue plus regret, so that all share its noise
    gain      L_r(today) - L_r(option)
    privacy   L_r(option) - L_r(the same policy without privacy)

Differences are paired by replication. Intervals are 95% t intervals of the mean over replications, which shrink as more
are run. The uncertainty that the log leaves shows in the spread of the replications, each with its own truth: nine of
ten lie in ``usual``, and ``probability`` is the share with a gain. ``chances`` holds the bounds of Clopper and Pearson
(1934) for that probability.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hushprice.arrays import Array
from hushprice.files import without_nan
from hushprice.intervals import binomial, student

LEVEL = 0.95
BLANK = "\u00a0"  # no-break space
Kind = Literal["today", "model", "learning", "private", "opt-out"]


def factor(n: int) -> float:
    """Standard errors from the mean of n values to the ends of its 95% interval, by Student's t; NaN for one value.

    >>> round(factor(3), 2), round(factor(1_000), 2)
    (4.3, 1.96)
    """
    return student(n - 1, LEVEL)


def share_bounds(wins: int, n: int) -> tuple[float, float]:
    """Bounds of a probability from ``wins`` successes in n; each bound fails with probability at most 1/20.

    >>> [round(bound, 2) for bound in share_bounds(2, 2)], [round(bound, 2) for bound in share_bounds(40, 40)]
    ([0.22, 1.0], [0.93, 1.0])
    """
    low, high = binomial(wins, n, 1.0 - LEVEL)
    return float(low), float(high)


@dataclass(frozen=True)
class Interval:
    """A mean over replications and its 95% interval (NaN for one replication).

    Attributes
    ----------
    mean, low, high : float
        The mean and the ends of the interval.

    Examples
    --------
    >>> Interval.of([1.0, 2.0, 3.0])
    Interval(mean=2.0, low=-0.484, high=4.484)
    """

    mean: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Any) -> Interval:
        """The interval of one value per replication.

        Parameters
        ----------
        values : array_like
            One value per replication.
        """
        sample = np.asarray(values, dtype=np.float64)
        n, mean = len(sample), float(sample.mean())
        reach = factor(n) * float(sample.std(ddof=1)) / n**0.5 if n > 1 else float("nan")
        return cls(mean, mean - reach, mean + reach)

    def __repr__(self) -> str:
        return f"Interval(mean={round(self.mean, 3)}, low={round(self.low, 3)}, high={round(self.high, 3)})"

    @property
    def positive(self) -> bool:
        """Whether it lies above 0."""
        return self.low > 0.0


def money(value: float, currency: str = "") -> str:
    """An amount with two to three digits and no-break spaces."""
    size = abs(value)
    digits = (
        f"{size:,.0f}"
        if size >= 100
        else f"{size:.1f}"
        if size >= 10
        else f"{size:.2f}"
        if size >= 0.1
        else f"{size:.2g}"
    )
    sign = "-" if value < 0 and float(digits.replace(",", "")) else ""
    return f"{sign}{currency.replace(' ', BLANK)}{digits}"


def paired(first: Array, second: Array) -> Array:
    """first - second over the replications that both have."""
    n = min(len(first), len(second))
    return np.asarray(first[:n] - second[:n])


@dataclass(frozen=True, kw_only=True, eq=False)
class Line:
    """The results of one option, in money.

    Attributes
    ----------
    label, kind, word : str
        Name in tables, kind of option, and the policy as a word.
    losses, best : ndarray
        Regret, and revenue of the best prices, one number per replication.
    experiments : float
        Share of customers whose price was changed for learning.
    deviation, far : float
        Mean distance of prices from the greedy ones, in price ranges; share more than a tenth of the range away. NaN if
        prices follow from no estimate.
    today, partner : ndarray or None
        Losses of today's prices, and of the same policy without privacy.
    epsilon, opt_out, from_log : float or None, float or None, bool
        As in :class:`Option`.
    """

    label: str
    kind: Kind
    word: str
    losses: Array
    best: Array
    experiments: float
    deviation: float
    far: float
    today: Array | None = None
    partner: Array | None = None
    epsilon: float | None = None
    opt_out: float | None = None
    from_log: bool = False

    @property
    def replications(self) -> int:
        """Number of replications."""
        return len(self.losses)

    @property
    def loss(self) -> Interval:
        """Loss compared with the best prices for the true demand."""
        return Interval.of(self.losses)

    @property
    def revenue(self) -> Interval:
        """Expected revenue, net of cost."""
        return Interval.of(paired(self.best, self.losses))

    @property
    def gains(self) -> Array | None:
        """Gain over today's prices, one number per replication."""
        return None if self.today is None or self.kind == "today" else paired(self.today, self.losses)

    @property
    def gain(self) -> Interval | None:
        """Gain over today's prices."""
        return None if self.gains is None else Interval.of(self.gains)

    @property
    def usual(self) -> tuple[float, float] | None:
        """The 5% and 95% quantiles of the gain over replications."""
        if self.gains is None:
            return None
        low, high = np.quantile(self.gains, [0.05, 0.95])
        return float(low), float(high)

    @property
    def wins(self) -> int | None:
        """Number of replications with a gain over today's prices."""
        return None if self.gains is None else int(np.count_nonzero(self.gains > 0.0))

    @property
    def probability(self) -> float | None:
        """Share of replications with a gain over today's prices."""
        return None if self.wins is None else self.wins / self.replications

    @property
    def chances(self) -> tuple[float, float] | None:
        """Bounds of the probability of a gain."""
        return None if self.wins is None else share_bounds(self.wins, self.replications)

    @property
    def privacy(self) -> Interval | None:
        """The price of privacy."""
        return None if self.partner is None else Interval.of(paired(self.losses, self.partner))

    def row(self) -> dict[str, Any]:
        """The line as plain data, for CSV and JSON."""
        plain: dict[str, Any] = {
            "option": self.label, "kind": self.kind, "policy": self.word, "epsilon": self.epsilon,
            "opt_out": self.opt_out, "replications": self.replications,
        }  # fmt: skip
        for name, interval in (("revenue", self.revenue), ("loss", self.loss), ("gain", self.gain)):
            plain |= _interval_row(name, interval)
        low, high = self.usual or (None, None)
        least, most = self.chances or (None, None)
        plain |= {"gain_5": low, "gain_95": high, "probability_of_gain": self.probability}
        plain |= {"probability_of_gain_low": least, "probability_of_gain_high": most}
        plain |= without_nan({"experiments": self.experiments, "deviation": self.deviation, "far": self.far})
        return plain | _interval_row("price_of_privacy", self.privacy)


def _interval_row(name: str, interval: Interval | None) -> dict[str, float | None]:
    """The columns of a mean and its interval."""
    if interval is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: interval.mean, f"{name}_low": interval.low, f"{name}_high": interval.high}
