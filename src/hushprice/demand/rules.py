"""Business rules: which prices a seller may quote to whom.

    p in [l, u], and in the range of the customer's segment
    p on the ladder, if there is one
    |p - p'| <= largest_step, p' the last price quoted in the same segment

Unit costs may differ between customers and come with each customer. Rules that cannot be met raise an error when the
policy is constructed, not when a customer waits for a price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array, array
from hushprice.errors import LARGEST_VALUE, InvalidInput, finite, unknown
from hushprice.files import read_toml

Segments = npt.NDArray[np.int64]
EVERYONE = np.zeros(1, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Business rules.

    Parameters
    ----------
    ladder : sequence of float
        The only prices allowed. Default: any price.
    largest_step : float, optional
        Largest difference between consecutive quotes in the same segment.
    segments : sequence of str
        Names of the segments, in any order. Default: those of ``ranges``; without any, everyone is in one segment.
    ranges : mapping of str to (float, float)
        Lowest and highest price of some segments, within the policy's range.

    Raises
    ------
    InvalidInput
        If a value is malformed or a range names an unknown segment.

    Examples
    --------
    >>> rules = Rules(ladder=(0.99, 1.49, 1.99), ranges={"student": (0.5, 1.5)})
    >>> rules.segments
    ('student',)
    """

    ladder: tuple[float, ...] = ()
    largest_step: float | None = None
    segments: tuple[str, ...] = ()
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ladder = array("ladder", list(self.ladder), shape=(None,), limit=LARGEST_VALUE)
        if any(isinstance(price, (bool, np.bool_)) for price in self.ladder):
            raise InvalidInput("ladder must hold prices, not True or False.")
        if len(np.unique(ladder)) < len(ladder) or (ladder < 0.0).any():
            raise InvalidInput("ladder must hold different prices of at least 0.")
        if not isinstance(self.ranges, Mapping):
            raise InvalidInput("ranges must give (low, high) by segment, as in {'student': (1, 2)}.")
        names = self.segments or tuple(self.ranges)
        if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
            raise InvalidInput(f"segments must be names, got {names!r}.")
        if len(set(names)) < len(names):
            raise InvalidInput(f"A segment is named twice: {', '.join(names)}.")
        if missing := set(self.ranges) - set(names):
            raise unknown("segment", sorted(missing)[0], names)
        object.__setattr__(self, "ladder", tuple(np.sort(ladder).tolist()))
        object.__setattr__(self, "segments", tuple(sorted(names)))
        object.__setattr__(self, "ranges", {name: _range(name, self.ranges[name]) for name in self.ranges})
        if self.largest_step is not None:
            step = finite("largest_step", self.largest_step, minimum=0.0, maximum=LARGEST_VALUE, strict=True)
            object.__setattr__(self, "largest_step", step)

    def check(self, prices: tuple[float, float], experiments: tuple[float, float]) -> None:
        """Check that the rules can be met.

        Parameters
        ----------
        prices, experiments : (float, float)
            The ranges of prices and of price experiments.

        Raises
        ------
        InvalidInput
            If some customer could get no price, or part of the ladder is out of reach.
        """
        for name in self.segments or ("everyone",):
            low, high = self.ranges.get(name, prices)
            if low < prices[0] or high > prices[1]:
                raise InvalidInput(
                    f"The range [{low:g}, {high:g}] of the segment {name!r} leaves the price range "
                    f"[{prices[0]:g}, {prices[1]:g}]."
                )
            if max(low, experiments[0]) > min(high, experiments[1]):
                raise InvalidInput(
                    f"Price experiments in [{experiments[0]:g}, {experiments[1]:g}] never reach the range "
                    f"[{low:g}, {high:g}] of the segment {name!r}."
                )
            self._check_ladder(name, low, high)
            self._check_ladder(name, max(low, experiments[0]), min(high, experiments[1]))

    def _check_ladder(self, name: str, low: float, high: float) -> None:
        if not self.ladder:
            return
        inside = [p for p in self.ladder if low <= p <= high]
        if not inside:
            raise InvalidInput(
                f"No price of the ladder lies in [{low:g}, {high:g}], the range of {name}: it runs from "
                f"{self.ladder[0]:g} to {self.ladder[-1]:g}. Add prices to it or widen the range."
            )
        if self.largest_step is not None and len(inside) > 1:
            gaps = np.diff(inside)
            k = int(np.argmax(gaps))
            if gaps[k] > self.largest_step * (1.0 + 1e-9):
                raise InvalidInput(
                    f"A largest step of {self.largest_step:g} cannot get from {inside[k]:g} to {inside[k + 1]:g} on "
                    f"the ladder (range of {name}): part of it is out of reach. Allow a larger step or add prices."
                )

    def index(self, segment: str | None) -> int:
        """The number of a segment by name; 0 if the rules have no segments.

        Parameters
        ----------
        segment : str, optional
            Name of a segment.
        """
        if not self.segments:
            if segment is not None:
                raise InvalidInput(f"The rules know no segments, so that {segment!r} is none of them.")
            return 0
        if segment is None:
            raise InvalidInput(f"These rules need the customer's segment, one of {', '.join(self.segments)}.")
        if segment not in self.segments:
            raise unknown("segment", segment, self.segments)
        return self.segments.index(segment)

    def config(self) -> dict[str, Any]:
        """The rules as plain data; ``Rules(**config)`` restores them."""
        return {
            "ladder": list(self.ladder),
            "largest_step": self.largest_step,
            "segments": list(self.segments),
            "ranges": {name: list(pair) for name, pair in self.ranges.items()},
        }

    @classmethod
    def of(cls, plain: Mapping[str, Any], *, source: str = "the rules") -> Rules:
        """Rules from plain data.

        Parameters
        ----------
        plain : mapping
            The parameters by name, as from JSON or TOML.
        source : str
            What error messages call the data.
        """
        keys = ("ladder", "largest_step", "segments", "ranges")
        for key in plain:
            if key not in keys:
                raise unknown(f"rule in {source}", key, keys)
        options = dict(plain)
        for name in ("ladder", "segments"):
            if name in options:
                if not isinstance(options[name], (list, tuple)):
                    raise InvalidInput(f"{name} in {source} must be a list, got {options[name]!r}.")
                options[name] = tuple(options[name])
        return cls(**options)

    @classmethod
    def read(cls, path: str | Path) -> Rules:
        """Rules from a TOML file.

        Parameters
        ----------
        path : str or Path
            A TOML file.

        Returns
        -------
        Rules
            The rules, checked.

        Examples
        --------
        A file of rules::

            ladder = [4.99, 5.99, 6.99]
            largest_step = 1.0
            [ranges]
            LOW = [3.0, 8.0]
        """
        return cls.of(read_toml(path, what="rules"), source=str(path))


def _range(name: str, pair: Any) -> tuple[float, float]:
    try:
        low, high = pair
    except (TypeError, ValueError):
        raise InvalidInput(f"The range of the segment {name!r} must be (low, high), got {pair!r}.") from None
    low, high = (finite(f"the range of {name!r}", p, minimum=0.0, maximum=LARGEST_VALUE) for p in (low, high))
    if low > high:
        raise InvalidInput(f"The range of the segment {name!r} must be (low, high), got ({low:g}, {high:g}).")
    return low, high


NO_RULES = Rules()


class Terms(NamedTuple):
    """The rules and costs of a block of n customers, as kernels take them.

    Parameters
    ----------
    cost, low, high : ndarray of shape (n,)
        Unit cost and price range per customer.
    ladder : ndarray
        The allowed prices in rising order; empty for any price.
    segment : ndarray of shape (n,)
        Number of each customer's segment.
    step : float
        The largest step; infinite without one.
    last : ndarray
        Last price of each segment, NaN before the first. Functions that quote update it.
    """

    cost: Array
    low: Array
    high: Array
    ladder: Array
    segment: Segments
    step: float
    last: Array

    @classmethod
    def of(
        cls,
        rules: Rules | None,
        prices: tuple[float, float],
        n: int,
        *,
        cost: float | Array,
        segment: Segments | None = None,
        last: Array | None = None,
    ) -> Terms:
        """The terms of n customers.

        Parameters
        ----------
        rules : Rules or None
            The business rules.
        prices : (float, float)
            The range of customers whose segment has none.
        n : int
            Number of customers.
        cost : float or ndarray of shape (n,)
            Unit costs.
        segment : ndarray of shape (n,), optional
            Number of each customer's segment; required if the rules have segments.
        last : ndarray, optional
            Last price of each segment. Default: none yet.
        """
        rules = NO_RULES if rules is None else rules
        if rules.segments and segment is None:
            raise InvalidInput(f"These rules need the segment of each customer: {', '.join(rules.segments)}.")
        number = np.zeros(n, dtype=np.int64) if segment is None or not rules.segments else segment
        if rules.segments:
            low, high = np.array([rules.ranges.get(name, prices) for name in rules.segments])[number].T.copy()
        else:
            low, high = (np.full(n, end, dtype=np.float64) for end in prices)
        return cls(
            cost=np.full(n, cost, dtype=np.float64),
            low=low,
            high=high,
            ladder=np.array(rules.ladder),
            segment=number,
            step=np.inf if rules.largest_step is None else rules.largest_step,
            last=fresh(rules) if last is None else last,
        )

    def rows(self, rows: slice | npt.NDArray[np.bool_]) -> Terms:
        """The terms of the customers in ``rows``; the last prices are shared."""
        cost, low, high = (part[rows] for part in (self.cost, self.low, self.high))
        return self._replace(cost=cost, low=low, high=high, segment=self.segment[rows])

    def within(self, prices: tuple[float, float]) -> Terms:
        """The same terms with every range cut to ``prices``; a range outside it becomes the nearer end."""
        low, high = (np.minimum(np.maximum(part, prices[0]), prices[1]) for part in (self.low, self.high))
        return self._replace(low=low, high=high)

    def allows(self, prices: Array) -> npt.NDArray[np.bool_]:
        """Which of these prices are allowed, regardless of the largest step."""
        inside = (prices >= self.low) & (prices <= self.high)
        return inside & np.isin(prices, self.ladder) if self.ladder.size else inside

    def before(self) -> Terms:
        """A copy with last prices of its own, which quotes on the original do not change."""
        return self._replace(last=self.last.copy())


def fresh(rules: Rules | None) -> Array:
    """Last prices before the first quote."""
    return np.full(max(1, len(rules.segments) if rules else 0), np.nan)
