"""The first pass over a log: what is in it, how to encode it, and a sample to start from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.demand import Family, as_family
from hushprice.errors import InvalidInput
from hushprice.fitting.passes.survey_sums import Columns, Tally, complete_rows, join_levels, look_at, number, refuse_id
from hushprice.fitting.reading.encoding import Category, Encoding, Feature, Number
from hushprice.fitting.reading.ordered_map import in_order
from hushprice.fitting.reading.source import Batch, Log, Source, TurnedText, rows_for
from hushprice.kernels import streamed as kernel

__all__ = ["Columns", "Outcomes", "Progress", "Survey", "complete_rows", "survey"]

Progress = Callable[[str, int], None]  # what is being done, and how many rows of the log have been read for it


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """Facts about outcomes: binary, all 0 or 1; whole, all whole numbers of at least 0; their range and mean; ends, all
    the lowest or the highest.

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
        """Those of an array, of at least one outcome."""
        binary, whole = kernel.outcome_facts(y)
        low, high = float(y.min()), float(y.max())
        ends = bool(((y == low) | (y == high)).all())
        return cls(binary=binary, whole=whole, low=low, high=high, mean=float(y.mean()), ends=ends)

    @property
    def family(self) -> Family:
        """The family that they call for."""
        return as_family("logistic" if self.binary else "poisson" if self.whole else "linear")


@dataclass(frozen=True, kw_only=True, eq=False)
class Survey:
    """What one pass over a log tells.

    ``records`` of the ``rows`` are kept, of total ``weight``, and ``counts`` says whether the weights are whole
    numbers; ``left_out`` counts the others by reason ("no price", "no outcome",
    "no weight", "weight 0"; the first that applies). ``sample`` holds raw rows, only
    kept ones, and ``numbers`` their row numbers in the log: all of them, or a fixed pseudorandom choice of 50 000 to
    100 000. ``constant`` names the features left out because they never vary, ``rare`` the categories left out because
    every level is rare, ``effective`` is (sum w)^2 / sum w^2, ``segments`` are the levels of the
    segment column in the order of their frequency.
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
        """Quantiles of the price, from the sample."""
        return np.quantile(self.sample.numbers(self.columns.price), levels)


class _Mixed(Exception):
    """Columns that turned out to hold text."""

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
    progress: Progress | None = None,
) -> Survey:
    """One pass over a log: its encoding, its ranges, what is missing, and a sample.

    A feature is a category if it is named in ``categories`` or holds text in any of its rows. A row without a finite
    price, outcome or weight, or with weight 0, is left out; a negative weight is refused. Means, standard deviations
    and counts of levels are those of the rows kept, each counted once.

    >>> found = survey({"p": [1, 2, None], "y": [1, 0, 1], "x": [3, 5, 4]}, price="p", outcome="y", features=["x"])
    >>> found.records, found.left_out, found.outcomes.binary, found.encoding.features[0].mean
    (2, {'no price': 1}, True, 4.0)
    """
    source = Source.open(log)
    columns = Columns(price=price, outcome=outcome, features=tuple(features), weights=weights, segment=segment)
    for name in categories:
        if name not in columns.features:
            raise InvalidInput(f"The category {name!r} is not among the features: {', '.join(columns.features)}.")
    words = frozenset(categories)
    while True:  # again whenever a column of numbers turns out to hold text
        try:
            return _finish(source, _read(source, columns, words, progress))
        except TurnedText:
            continue
        except _Mixed as mixed:
            words |= mixed.names


def _read(source: Source, columns: Columns, words: frozenset[str], progress: Progress | None) -> Tally:
    tally = Tally(columns, words)
    batches = source.batches(columns.needed, rows=rows_for(len(columns.needed)))
    for look in in_order(lambda batch: look_at(batch, columns, words), batches):
        if look.texts:
            raise _Mixed(look.texts)
        tally.add(look)
        if progress is not None:
            progress("survey", tally.rows)
    return tally


def _finish(source: Source, tally: Tally) -> Survey:
    columns = tally.columns
    if tally.records == 0:
        why = ", ".join(f"{reason}: {count}" for reason, count in tally.left_out.items())
        raise InvalidInput(f"{source.name} has no rows to learn from{' (' + why + ')' if why else ''}.")
    encoded = [(name, _feature(name, tally)) for name in columns.features]
    lost = [name for name, feature in encoded if feature is None]
    rare = tuple(name for name in lost if len(tally.levels.get(name, ())) > 1)
    outcome = tally.moments[columns.outcome]
    segments = None if columns.segment is None else join_levels(columns.segment, tally.levels[columns.segment])
    return Survey(
        source=source,
        columns=columns,
        encoding=Encoding(features=tuple(feature for _, feature in encoded if feature is not None)),
        rows=tally.rows,
        records=tally.records,
        weight=tally.weight,
        effective=tally.weight * (tally.weight / max(tally.squares, np.finfo(float).tiny)),
        counts=tally.counts,
        left_out=dict(tally.left_out),
        price=number(columns.price, tally.moments[columns.price], tally.records),
        outcomes=Outcomes(
            binary=tally.binary,
            whole=tally.whole,
            low=outcome.low,
            high=outcome.high,
            mean=outcome.mean,
            ends=len(tally.values) <= 2,
        ),
        sample=Batch.join(tally.sample),
        numbers=np.concatenate(tally.numbers),
        constant=tuple(name for name in lost if name not in rare),
        rare=rare,
        segments=segments,
    )


def _feature(name: str, tally: Tally) -> Feature | None:
    """A feature as it is encoded; None if it does not vary."""
    if name in tally.words:
        refuse_id(name, tally.levels[name])
        category = join_levels(name, tally.levels[name])
        return category if len(category.levels) > 1 else None
    moments = tally.moments[name]
    if not np.isfinite(moments.sd):
        raise InvalidInput(f"The feature {name!r} has values too large to square: give it in larger units.")
    return None if moments.constant else number(name, moments, tally.records)
