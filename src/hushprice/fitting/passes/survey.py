"""The first pass over a log: its contents, its encoding, and a sample from which fits start."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.demand import Family, as_family
from hushprice.errors import InvalidInput
from hushprice.fitting.passes.survey_sums import (
    Columns,
    LogCounts,
    complete_rows,
    count_batch,
    join_levels,
    number,
    refuse_id,
)
from hushprice.fitting.reading.encoding import Category, Encoding, Feature, Number
from hushprice.fitting.reading.ordered_map import in_order
from hushprice.fitting.reading.source import Batch, Log, Source, TurnedText, rows_for
from hushprice.kernels import streamed as kernel

__all__ = ["Columns", "OnProgress", "Outcomes", "Survey", "complete_rows", "survey"]

OnProgress = Callable[[str, int], None]  # name of the current pass, number of rows read in it


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Facts about the outcomes of a log.

    Attributes
    ----------
    binary : bool
        Whether all are 0 or 1.
    whole : bool
        Whether all are whole numbers of at least 0.
    low, high, mean : float
        Range and mean.
    ends : bool
        Whether each one is the lowest or the highest.

    Examples
    --------
    >>> Outcomes.of(np.array([0.0, 3.0])).family
    Poisson()
    """

    binary: bool
    whole: bool
    low: float
    high: float
    mean: float
    ends: bool

    @classmethod
    def of(cls, y: Array) -> Outcomes:
        """The facts about an array of at least one outcome.

        Parameters
        ----------
        y : ndarray
            The outcomes.
        """
        binary, whole = kernel.outcome_facts(y)
        low, high = float(y.min()), float(y.max())
        ends = bool(((y == low) | (y == high)).all())
        return cls(binary=binary, whole=whole, low=low, high=high, mean=float(y.mean()), ends=ends)

    @property
    def family(self) -> Family:
        """The family that "auto" chooses for these outcomes."""
        return as_family("logistic" if self.binary else "poisson" if self.whole else "linear")


@dataclass(frozen=True, kw_only=True, eq=False)
class Survey:
    """The result of :func:`survey`.

    Attributes
    ----------
    source, columns : Source, Columns
        The log and the roles of its columns.
    encoding : Encoding
        How columns become contexts.
    rows, records : int
        Number of rows, and of complete rows.
    weight : float
        Total weight of the complete rows.
    effective : float
        Effective number of rows, (sum w)^2 / sum w^2.
    counts : bool
        Whether the weights are whole numbers.
    left_out : dict of str to int
        Number of other rows by the first reason that applies: "no price", "no outcome", "no weight" or "weight 0".
    price : Number
        Mean, standard deviation and range of the price.
    outcomes : Outcomes
        Facts about the outcomes.
    sample, numbers : Batch, ndarray of int
        Raw complete rows and their row numbers: all, or a fixed pseudorandom choice of 50 000 to 100 000.
    constant : tuple of str
        Features left out because they never vary.
    rare : tuple of str
        Categories left out because every level is rare.
    segments : Category or None
        Levels of the segment column, the most frequent first.
    """

    source: Source
    columns: Columns
    encoding: Encoding
    rows: int
    records: int
    weight: float
    effective: float
    counts: bool
    left_out: dict[str, int]
    price: Number
    outcomes: Outcomes
    sample: Batch
    numbers: npt.NDArray[np.int64]
    constant: tuple[str, ...]
    rare: tuple[str, ...]
    segments: Category | None

    def price_quantiles(self, levels: Sequence[float]) -> Array:
        """Quantiles of the price, from the sample.

        Parameters
        ----------
        levels : sequence of float
            Levels in [0, 1].

        Returns
        -------
        ndarray
            One price per level.
        """
        return np.quantile(self.sample.numbers(self.columns.price), levels)


class _Mixed(Exception):
    """Columns assumed to hold numbers hold text."""

    def __init__(self, names: frozenset[str]) -> None:
        self.names = names


def survey(
    log: Log,
    *,
    price: str,
    outcome: str,
    features: Sequence[str],
    weights: str | None = None,
    categories: Sequence[str] = (),
    segment: str | None = None,
    progress: OnProgress | None = None,
) -> Survey:
    """Survey a log in one pass: its encoding, its ranges, missing values, and a sample.

    Parameters
    ----------
    log : path, frame, Arrow table, mapping or Source
        The log.
    price, outcome : str
        Columns of the price and of the outcome.
    features : sequence of str
        Columns of the features.
    weights : str, optional
        Column of the weights.
    categories : sequence of str
        Number columns to use as categories. A column with text in any row is a category too.
    segment : str, optional
        Column of the segments.
    progress : callable, optional
        Called with "survey" and the number of rows read.

    Returns
    -------
    Survey
        Means, standard deviations and counts of levels are those of the complete rows, each counted once. A row
        without a finite price, outcome or weight, or with weight 0, is left out.

    Raises
    ------
    InvalidInput
        If a weight is negative, a column looks like an id, or no row is complete.

    Examples
    --------
    >>> surveyed = survey({"p": [1, 2, None], "y": [1, 0, 1], "x": [3, 5, 4]}, price="p", outcome="y", features=["x"])
    >>> surveyed.records, surveyed.left_out, surveyed.outcomes.binary, surveyed.encoding.features[0].mean
    (2, {'no price': 1}, True, 4.0)
    """
    source = Source.open(log)
    columns = Columns(price=price, outcome=outcome, features=tuple(features), weights=weights, segment=segment)
    for name in categories:
        if name not in columns.features:
            raise InvalidInput(f"The category {name!r} is not among the features: {', '.join(columns.features)}.")
    words = frozenset(categories)
    while True:  # repeat if a column of numbers proves to hold text
        try:
            return _finish(source, _read(source, columns, words, progress))
        except TurnedText:
            continue
        except _Mixed as mixed:
            words |= mixed.names


def _read(source: Source, columns: Columns, words: frozenset[str], progress: OnProgress | None) -> LogCounts:
    totals = LogCounts(columns, words)
    batches = source.batches(columns.needed, rows=rows_for(len(columns.needed)))
    for part in in_order(lambda batch: count_batch(batch, columns, words), batches):
        if part.texts:
            raise _Mixed(part.texts)
        totals.add(part)
        if progress is not None:
            progress("survey", totals.rows)
    return totals


def _finish(source: Source, totals: LogCounts) -> Survey:
    columns = totals.columns
    if totals.records == 0:
        why = ", ".join(f"{reason}: {count}" for reason, count in totals.left_out.items())
        raise InvalidInput(f"{source.name} has no rows to learn from{' (' + why + ')' if why else ''}.")
    encoded = [(name, _feature(name, totals)) for name in columns.features]
    unused = [name for name, feature in encoded if feature is None]
    rare = tuple(name for name in unused if len(totals.levels.get(name, ())) > 1)
    outcome = totals.moments[columns.outcome]
    segments = None if columns.segment is None else join_levels(columns.segment, totals.levels[columns.segment])
    return Survey(
        source=source,
        columns=columns,
        encoding=Encoding(features=tuple(feature for _, feature in encoded if feature is not None)),
        rows=totals.rows,
        records=totals.records,
        weight=totals.weight,
        effective=totals.weight * (totals.weight / max(totals.squares, np.finfo(float).tiny)),
        counts=totals.counts,
        left_out=dict(totals.left_out),
        price=number(columns.price, totals.moments[columns.price], totals.records),
        outcomes=Outcomes(
            binary=totals.binary,
            whole=totals.whole,
            low=outcome.low,
            high=outcome.high,
            mean=outcome.mean,
            ends=len(totals.values) <= 2,
        ),
        sample=Batch.join(totals.sample),
        numbers=np.concatenate(totals.numbers),
        constant=tuple(name for name in unused if name not in rare),
        rare=rare,
        segments=segments,
    )


def _feature(name: str, totals: LogCounts) -> Feature | None:
    """The encoding of a feature; None if it does not vary."""
    if name in totals.words:
        refuse_id(name, totals.levels[name])
        category = join_levels(name, totals.levels[name])
        return category if len(category.levels) > 1 else None
    moments = totals.moments[name]
    if not np.isfinite(moments.sd):
        raise InvalidInput(f"The feature {name!r} has values too large to square: give it in larger units.")
    return None if moments.constant else number(name, moments, totals.records)
