"""The segments of a report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hushprice.arrays import Array
from hushprice.fitting.diagnosis.report import Index
from hushprice.fitting.passes.design import Discount, Rows
from hushprice.fitting.passes.survey import Survey
from hushprice.fitting.reading.encoding import Category
from hushprice.fitting.reading.source import Batch

QUARTERS = ("lowest quarter", "second quarter", "third quarter", "highest quarter")
MAX_SHOWN_SEGMENTS = 30  # further ones are merged
QUARTER_CUSTOMERS = 20_000  # customers of the sample that define the quarters


@dataclass(frozen=True, kw_only=True, eq=False)
class Groups:
    """The segments of a report: what defines them, their names, and the segment of each row."""

    by: str
    names: tuple[str, ...]
    column: str | None
    places: Callable[[Batch, Rows, int], Index]

    @classmethod
    def of(cls, surveyed: Survey, theta: Array, discount: Discount | None = None) -> Groups:
        """By the segment column, or the first category among the features, or quarters of the predicted demand."""
        categories = [f for f in surveyed.encoding.features if isinstance(f, Category)]
        category = surveyed.segments or (categories[0] if categories else None)
        return cls.quarters(surveyed, theta, discount) if category is None else cls.levels(category)

    @classmethod
    def levels(cls, category: Category) -> Groups:
        """By the levels of a category."""
        names = category.levels
        if len(names) > MAX_SHOWN_SEGMENTS:
            names = (*names[: MAX_SHOWN_SEGMENTS - 1], "(all others)")

        def place(batch: Batch, rows: Rows, start: int) -> Index:
            level = np.asarray(category.places(batch), dtype=np.intp)[rows.number - start]
            return np.minimum(level, len(names) - 1)

        return cls(by=category.name, names=names, column=category.name, places=place)

    @classmethod
    def quarters(cls, surveyed: Survey, theta: Array, discount: Discount | None = None) -> Groups:
        """By quarters of the demand predicted at the median price, so that the price itself does not sort."""
        middle = float(surveyed.price_quantiles([0.5])[0])
        d = surveyed.encoding.dim
        effect = theta[:d] - middle * theta[d:]
        some = surveyed.encoding.encode(some_rows(surveyed, QUARTER_CUSTOMERS, discount))
        edges = quantile_edges(some @ effect, len(QUARTERS))
        names = QUARTERS if len(edges) == 3 and surveyed.encoding.dim > 1 else ("everyone",)

        def place(batch: Batch, rows: Rows, start: int) -> Index:
            if len(names) == 1:
                return np.zeros(rows.y.size, dtype=np.intp)
            return np.searchsorted(edges, rows.z @ effect, side="right")

        return cls(by=f"predicted demand at price {middle:g}", names=names, column=None, places=place)


def quantile_edges(values: Array, parts: int) -> Array:
    """Edges that split values into parts, as even as ties allow and none empty: part k begins with edge k.

    >>> edges = quantile_edges(np.array([1.0, 1.0, 1.0, 2.0, 3.0, 4.0]), 3)
    >>> edges, np.searchsorted(edges, [1.0, 2.0, 3.0], side="right")
    (array([2.33333333]), array([0, 0, 1]))
    """
    edges = np.unique(np.quantile(values, np.arange(1, parts) / parts))
    return np.asarray(edges[edges > values.min()])


def some_rows(surveyed: Survey, most: int, discount: Discount | None = None) -> Batch:
    """At most so many rows of the sample, chosen with a fixed seed: the whole sample, encoded, can be large.

    With a discount rows are drawn without replacement by it, at most half as many as there are effective ones, so
    that those drawn are about as old as the rows that count.
    """
    rows = surveyed.sample.rows
    weight = None if discount is None else discount.of(surveyed.numbers)
    if weight is not None and weight.any():  # in a long log all rows of the sample may be forgotten
        most = min(most, max(int(0.5 * weight.sum() ** 2 / (weight**2).sum()), 1))
        with np.errstate(divide="ignore"):
            rank = np.random.default_rng(0).exponential(size=rows) / weight
        return surveyed.sample.take(np.sort(np.argsort(rank, kind="stable")[:most]))
    return (
        surveyed.sample.take(np.sort(np.random.default_rng(0).permutation(rows)[:most]))
        if rows > most
        else surveyed.sample
    )
