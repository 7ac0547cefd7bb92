"""The rows of a log as a twin needs them: encoded, with cost, segment and today's price; all, or a fair sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from hushprice.errors import Array, InvalidInput, finite
from hushprice.logs import Source

Words = npt.NDArray[np.object_]
MOST_SEGMENTS = 2_000
Today = str | float | Mapping[str, float] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class Rows:
    """Complete rows of a log. ``number`` is their place in it, ``seen`` how many rows they were taken from."""

    z: Array
    price: Array
    y: Array
    w: Array
    cost: Array
    segment: Words
    today: Array
    number: npt.NDArray[np.int64]
    seen: int

    def take(self, index: npt.NDArray[Any]) -> Rows:
        """Some of the rows."""
        columns = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "seen"}
        return Rows(**columns, seen=self.seen)


def rows_of(
    model: Any,
    log: Any,
    *,
    segment: str | None = None,
    cost: str | float | None = None,
    today: Today = None,
    weights: str | None = None,
) -> Iterator[Rows]:
    """The complete rows of a log, batch by batch.

    A row without a price, an outcome (where the model names one), a weight, a cost or today's price is left out.
    """
    source = Source.open(log)
    named = [model.price_, model.outcome_, weights, segment, cost, today]
    columns = list(dict.fromkeys([*model.encoding_.columns, *(name for name in named if isinstance(name, str))]))
    start = 0
    for batch in source.batches(columns):
        n = batch.rows
        price = batch.numbers(model.price_)
        words = np.full(n, None, dtype=object) if segment is None else batch.words(segment)
        rows = Rows(
            z=model.encoding_.encode(batch),
            price=price,
            y=np.zeros(n) if model.outcome_ is None else batch.numbers(model.outcome_),
            w=np.ones(n) if weights is None else batch.numbers(weights),
            cost=batch.numbers(cost) if isinstance(cost, str) else np.full(n, 0.0 if cost is None else cost),
            segment=words,
            today=_today(batch, price, words, today),
            number=np.arange(start, start + n),
            seen=n,
        )
        start += n
        yield rows.take(_complete(rows))


def _today(batch: Any, price: Array, segment: Words, today: Today) -> Array:
    if today is None:
        return price
    if isinstance(today, str):
        numbers: Array = batch.numbers(today)
        return numbers
    if isinstance(today, Mapping):
        names = ["(missing)" if word is None else word for word in segment]
        if missing := sorted(set(names) - set(today)):
            raise InvalidInput(f"today gives no price for the segment {missing[0]!r}, only for {', '.join(today)}.")
        return np.array([today[name] for name in names], dtype=np.float64)
    return np.full(len(price), today)


def check_today(today: Today, segment: str | None) -> Today:
    """Today's prices: a column, a number, or one a segment."""
    if today is None or isinstance(today, str):
        return today
    if isinstance(today, Mapping):
        if segment is None:
            raise InvalidInput("Prices by segment need the column of the segments: give it as segment.")
        if not today:
            raise InvalidInput("today names no segment.")
        return {str(name): finite(f"today's price of {name}", price, minimum=0.0) for name, price in today.items()}
    return finite("today", today, minimum=0.0)


def _complete(rows: Rows) -> npt.NDArray[np.bool_]:
    if (rows.w < 0.0).any():
        raise InvalidInput(f"A weight is negative: {rows.w.min():g}.")
    if (rows.cost < 0.0).any():
        raise InvalidInput(f"A cost is negative: {rows.cost.min():g}.")
    numbers = (rows.price, rows.y, rows.w, rows.cost, rows.today)
    whole = np.logical_and.reduce([np.isfinite(column) for column in numbers])
    kept: npt.NDArray[np.bool_] = whole & (rows.w > 0.0)
    return kept


@dataclass(frozen=True, eq=False)
class Sample:
    """At most so many rows, in the order of the log; ``kept`` complete rows of ``seen`` there were to choose from."""

    rows: Rows
    kept: int
    seen: int


def sample_rows(batches: Iterator[Rows], *, most: int) -> Sample:
    """All rows, or those whose number has the smallest hashes: a uniform sample that is the same every time."""
    pool: list[Rows] = []
    held = kept = seen = 0
    threshold = np.uint64(2**64 - 1)
    for rows in batches:
        seen, kept = seen + rows.seen, kept + len(rows.number)
        pool.append(rows.take(_hash(rows.number) <= threshold))
        held += len(pool[-1].number)
        if held > 4 * most:
            pool = [_smallest(_joined(pool), most)]
            held, threshold = most, _hash(pool[0].number).max()
    if not pool:
        raise InvalidInput("The log has no rows.")
    return Sample(_smallest(_joined(pool), most), kept, seen)


def _joined(pool: list[Rows]) -> Rows:
    columns = {
        f.name: np.concatenate([getattr(rows, f.name) for rows in pool]) for f in fields(Rows) if f.name != "seen"
    }
    return Rows(**columns, seen=sum(rows.seen for rows in pool))


def _smallest(rows: Rows, most: int) -> Rows:
    if len(rows.number) <= most:
        return rows
    chosen = np.argpartition(_hash(rows.number), most - 1)[:most]
    return rows.take(np.sort(chosen))


def _hash(number: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
    """SplitMix64 (Steele, Lea and Flood, 2014) of a row's number."""
    with np.errstate(over="ignore"):
        x = (number.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def by_weight(rows: Rows, size: int) -> Rows:
    """Rows repeated in proportion to their weights, so that drawing them evenly is drawing them by weight.

    Row i is taken floor or ceil of size w_i / sum(w) times (systematic resampling).
    """
    if (rows.w == rows.w[0]).all():
        return rows
    ends = np.cumsum(rows.w)
    points = (np.arange(size) + 0.5) * (ends[-1] / size)
    return rows.take(np.searchsorted(ends, points, side="right").clip(max=len(ends) - 1))


def segment_index(words: Words) -> tuple[tuple[str, ...], npt.NDArray[np.int64]]:
    """The segments' names, sorted, and the number of each row's."""
    told = np.array(["(missing)" if word is None else str(word) for word in words], dtype=object)
    names, index = np.unique(told, return_inverse=True)
    if len(names) > MOST_SEGMENTS:
        raise InvalidInput(f"There are {len(names):,} segments, more than {MOST_SEGMENTS:,}: is the column an id?")
    return tuple(names.tolist()), index.astype(np.int64)


def weights_of(model: Any, weights: str | None) -> str | None:
    """The column of the weights: the one named, or the model's; a model with weights needs one."""
    column = getattr(model, "weights_", None) if weights is None else weights
    if column is None and abs(model.weight_ - model.records_) > 1e-9 * model.records_:
        raise InvalidInput("The model was fitted with weights: name their column of the log, as weights (--weights).")
    return column
