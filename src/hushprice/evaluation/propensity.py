"""The propensity of each logged price, and the other prices that could have been drawn.

Propensities come from one of three sources: the log itself, the design of an experiment (prices drawn at random within
strata), or one range from which all prices were drawn uniformly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, price_range
from hushprice.evaluation.weights import Ladder, Mask, Range, Rows, Support
from hushprice.fitting.reading.source import Batch

SMALLEST_STRATUM = 50
_REPEATED = 20  # prices that occur this often on average form a ladder
_CERTAIN = 1.0 - 1e-9

NO_PROPENSITY = "propensity not known"
CERTAIN = "price not drawn at random"
OWN_LADDER = "alternatives not known"
SMALL = f"stratum of fewer than {SMALLEST_STRATUM} rows"


@dataclass(frozen=True, kw_only=True, eq=False)
class Propensities:
    """The propensity of each row's price, and the supports of the prices. Rows in no support are left out."""

    value: Array  # (n,), a density in ranges and a probability on ladders
    supports: tuple[Support, ...]
    left_out: dict[str, int] = field(default_factory=dict)  # number of rows by reason
    source: str  # description
    from_log: bool = False  # whether they are logged

    @property
    def used(self) -> Mask:
        """The rows in a support."""
        mask = np.zeros(len(self.value), dtype=bool)
        for support in self.supports:
            mask[support.rows] = True
        return mask


def evenly(price: Array, prices: tuple[float, float]) -> Propensities:
    """Propensities of prices that were all drawn uniformly from one range."""
    low, high = price_range(prices)
    outside = int(((price < low) | (price > high)).sum())
    if outside:
        raise InvalidInput(
            f"{outside:,} of {len(price):,} logged prices lie outside {low:g} to {high:g}, from which they are said to "
            f"have been drawn; they go from {price.min():g} to {price.max():g}."
        )
    everyone = Range(rows=np.arange(len(price)), low=low, high=high)
    value = np.full(len(price), 1.0 / (high - low))
    return Propensities(value=value, supports=(everyone,), source=f"prices drawn evenly from {low:g} to {high:g}")


def logged(price: Array, value: Array, discrete: Mask, groups: Rows) -> Propensities:
    """Logged propensities: densities, and probabilities where ``discrete``.

    Rows whose propensity is missing are left out. So are rows whose price was certain (probability 1, as in the exploit
    phase of ETC), which hold no information on other prices. Estimates are then means over the customers with a
    randomly drawn price, who are assumed to be like the others.

    The range is that of the logged prices of a group of rows (a segment). The mean of 1 / probability over the rows of
    a ladder is the number of prices that could have been drawn. If a group has more prices, as with a customer's own
    two prices in Semi-Myopic, rows of equal probability are tried as ladders of their own, and left out if that fails.
    Rows at an end of a range that have a probability while the others have densities (prices clipped to that end) stay:
    their density is infinite and their weight 0.
    """
    present = ~np.isnan(value)
    certain = present & discrete & (value >= _CERTAIN)
    drawn = present & ~certain
    ladders = [one for rows in _by(groups, drawn & discrete) for one in _ladders(price, value, rows)]
    unmatched = drawn & discrete
    for one in ladders:
        unmatched[one.rows] = False
    ranges = []
    for rows in _by(groups, drawn & ~discrete):
        if np.ptp(price[rows]) == 0.0:
            certain[rows] = True  # one price only, whatever the logged density
            continue
        inside = Range.observed(rows, price)
        ends = _cut_off(price, np.flatnonzero(unmatched & (groups == groups[rows[0]])), inside)
        unmatched[ends] = False
        ranges.append(replace(inside, rows=np.sort(np.concatenate([rows, ends]))))
        value = np.where(np.isin(np.arange(len(price)), ends), np.inf, value)
    left_out = {NO_PROPENSITY: int((~present).sum()), CERTAIN: int(certain.sum()), OWN_LADDER: int(unmatched.sum())}
    supports: tuple[Support, ...] = (*ranges, *ladders)
    return Propensities(
        value=value,
        supports=supports,
        left_out={k: v for k, v in left_out.items() if v},
        source="logged propensities",
        from_log=True,
    )


def _cut_off(price: Array, rows: Rows, inside: Range) -> Rows:
    """Those of the rows whose price is the one at an end of the range, or beyond it."""
    sides = (rows[price[rows] <= inside.low], rows[price[rows] >= inside.high])
    return np.concatenate([side for side in sides if len(np.unique(price[side])) == 1] or [rows[:0]])


def _ladders(price: Array, value: Array, rows: Rows) -> list[Ladder]:
    """The ladder of these rows, or the ladders of those of one probability."""
    if _is_ladder(price[rows], value[rows]):
        return [ladder(price, rows)]
    kinds = np.unique(value[rows].round(12))
    if len(kinds) > 100:
        return []
    parts = [rows[np.isclose(value[rows], kind, rtol=1e-9, atol=1e-12)] for kind in kinds]
    return [ladder(price, part) for part in parts if _is_ladder(price[part], value[part])]


def _is_ladder(price: Array, value: Array) -> bool:
    """Whether the number of prices is the mean of 1 / probability, which estimates it."""
    points = len(np.unique(price))
    inverse = 1.0 / value
    error = float(inverse.std() / np.sqrt(len(inverse)))
    return abs(float(inverse.mean()) - points) <= 5.0 * error + 0.05 * points


def ladder(price: Array, rows: Rows) -> Ladder:
    """The ladder made of the prices that these rows have."""
    points, place, counts = np.unique(price[rows], return_inverse=True, return_counts=True)
    return Ladder(rows=rows, points=points, share=counts / len(rows), place=place)


def within(price: Array, strata: Rows) -> Propensities:
    """Propensities estimated within strata, within which prices were drawn at random.

    If prices repeat (20 rows per price on average), the probability is the share of the stratum's rows with that
    price. Otherwise the density is estimated by an Epanechnikov kernel, reflected at the ends of the stratum's prices,
    from the other rows (leave-one-out). Strata of fewer than 50 rows, or with one price, are left out. Intervals stay
    valid with estimated shares, which make the estimates more precise than the true ones (Hirano, Imbens & Ridder
    2003).
    """
    value = np.full(len(price), np.nan)
    supports: list[Support] = []
    small = certain = 0
    every = _by(strata, np.ones(len(price), dtype=bool))
    repeated = len(price) >= _REPEATED * sum(len(np.unique(price[rows])) for rows in every)
    for rows in every:
        if len(rows) < SMALLEST_STRATUM:
            small += len(rows)
        elif np.ptp(price[rows]) == 0.0:
            certain += len(rows)
        elif repeated:
            steps = ladder(price, rows)
            value[rows] = steps.share[steps.place]
            supports.append(steps)
        else:
            value[rows] = density(price[rows])
            supports.append(Range.observed(rows, price))
    kind = "shares of each price" if repeated else "kernel densities of the price"
    left_out = {k: v for k, v in ((SMALL, small), (CERTAIN, certain)) if v}
    count = len(every)
    source = f"{kind} within {count} {'strata' if count > 1 else 'stratum'}"
    return Propensities(value=value, supports=tuple(supports), left_out=left_out, source=source)


def density(price: Array) -> Array:
    """The density of prices at each of them, from the others.

    f(p_i) = 1 / ((n - 1) h) sum over j != i of K((p_i - p_j) / h) with K(u) = 3/4 (1 - u^2), over the prices and their
    reflections at both ends; h = 2.34 sd n^(-1/5), Silverman's rule for this kernel. Sums over a window come from
    cumulative sums of 1, p and p^2 over sorted prices, in n log n steps.
    """
    n, low, high = len(price), price.min(), price.max()
    h = min(2.34 * float(price.std()) * n**-0.2, float(high - low) / 2)
    middle = (low + high) / 2
    p = (price - middle) / h
    ends = (low - middle) / h, (high - middle) / h
    every = np.sort(np.concatenate([p, 2 * ends[0] - p, 2 * ends[1] - p]))
    first_in, past = np.searchsorted(every, p - 1.0, side="left"), np.searchsorted(every, p + 1.0, side="right")
    running = [np.concatenate([[0.0], np.cumsum(every**j)]) for j in range(3)]
    count, first, second = (sums[past] - sums[first_in] for sums in running)
    total = 0.75 * (count - (p * p * count - 2.0 * p * first + second))
    others = np.maximum(total - 0.75, 0.75 / n)  # without its own; a lone price keeps a small share
    value: Array = others / ((n - 1) * h)
    return value


def _by(groups: Rows, mask: Mask) -> list[Rows]:
    """The rows of each group within the mask."""
    rows = np.flatnonzero(mask)
    if not len(rows):
        return []
    order = rows[np.argsort(groups[rows], kind="stable")]
    return [np.sort(part) for part in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1)]


def number(batch: Batch, columns: Sequence[str]) -> Rows:
    """The number of the stratum of each row: rows with the same words in every column share one."""
    result = np.zeros(batch.rows, dtype=np.int64)
    for name in columns:
        codes, words = batch.codes(name)
        first = {word: i for i, word in reversed(list(enumerate(words)))}  # a word can occur twice
        place = np.array([*(first[word] for word in words), len(words)])[codes]
        _, result = np.unique(result * (len(words) + 1) + place, return_inverse=True)
    return result
