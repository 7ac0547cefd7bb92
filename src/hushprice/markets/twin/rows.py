"""The rows of a log for a twin: encoded, with cost, segment and today's price; all rows, or a uniform sample."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, finite
from hushprice.fitting import Category, Finding, Source
from hushprice.fitting.diagnosis.findings import percent
from hushprice.fitting.passes.survey_sums import complete_rows
from hushprice.fitting.reading.encoding import MISSING_LEVEL, OTHER_LEVEL
from hushprice.kernels.streamed import row_hash

Index = npt.NDArray[np.int64]
Words = npt.NDArray[np.object_]
Range = tuple[float, float]
MAX_GROUPS_OF_ROWS = 2_000
NEGLIGIBLE_SHARE = 0.01  # a share of customers up to which a finding is a note, not a warning
PURPOSE = 2  # of the hash of row numbers; hushprice.fitting uses 0 and 1
Today = str | float | Mapping[str, float] | None


@dataclass(frozen=True, kw_only=True, eq=False)
class TwinRows:
    """Complete rows of a log.

    Attributes
    ----------
    z : ndarray of shape (n, d)
        Encoded features.
    price, y, w, cost, today : ndarray of shape (n,)
        Price, outcome, weight, unit cost and today's price.
    segment : ndarray of shape (n,)
        Name of the segment; None if missing.
    number : ndarray of shape (n,)
        Row number in the log.
    unknown : ndarray of shape (n, categories)
        Whether the model does not know the category's level.
    seen : int
        Number of rows that were read, complete or not.
    """

    z: Array
    price: Array
    y: Array
    w: Array
    cost: Array
    segment: Words
    today: Array
    number: Index
    unknown: npt.NDArray[np.bool_]
    seen: int

    def take(self, index: npt.NDArray[Any]) -> TwinRows:
        """The rows at ``index``."""
        columns = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "seen"}
        return TwinRows(**columns, seen=self.seen)


def rows_of(
    model: Any,
    log: Any,
    *,
    segment: str | None = None,
    cost: str | float | None = None,
    today: Today = None,
    weights: str | None = None,
) -> Iterator[TwinRows]:
    """The complete rows of a log, batch by batch.

    Rows without a price, an outcome (if the model names its column), a weight, a cost or today's price are left out.

    Parameters
    ----------
    model : DemandModel
        The model, which encodes the features.
    log : path, data frame or other log
        The log.
    segment, weights : str, optional
        Columns.
    cost : float or str, optional
        Unit cost, or its column. Default: 0.
    today : float, str or mapping, optional
        Today's price, its column, or the price per segment. Default: the logged price.
    """
    sources = [model.price_, model.outcome_, weights, segment, cost, today]
    columns = list(dict.fromkeys([*model.encoding_.columns, *(name for name in sources if isinstance(name, str))]))
    start = 0
    for batch in Source.open(log).batches(columns):
        complete, _ = complete_rows(batch, model.price_, model.outcome_, weights)
        for name in (cost, today):
            if isinstance(name, str):
                complete &= np.isfinite(batch.numbers(name))
        part = batch.take(complete)
        n, price = part.rows, part.numbers(model.price_)
        words = np.full(n, None, dtype=object) if segment is None else part.words(segment)
        rows = TwinRows(
            z=model.encoding_.encode(part),
            price=price,
            y=np.zeros(n) if model.outcome_ is None else part.numbers(model.outcome_),
            w=np.ones(n) if weights is None else part.numbers(weights),
            cost=part.numbers(cost) if isinstance(cost, str) else np.full(n, 0.0 if cost is None else cost),
            segment=words,
            today=_today(part, price, words, today),
            number=start + np.flatnonzero(complete),
            unknown=_unknown(categories_of(model), part),
            seen=batch.rows,
        )
        if (rows.cost < 0.0).any():
            raise InvalidInput(f"A cost is negative: {rows.cost.min():g}.")
        if isinstance(today, str) and (rows.today < 0.0).any():
            raise InvalidInput(f"Today's price is negative in the column {today}: {rows.today.min():g}.")
        start += batch.rows
        yield rows


def categories_of(model: Any) -> list[Category]:
    """The categorical features of a model."""
    return [feature for feature in model.encoding_.features if isinstance(feature, Category)]


def _unknown(categories: list[Category], batch: Any) -> npt.NDArray[np.bool_]:
    out = np.zeros((batch.rows, len(categories)), dtype=bool)
    for j, category in enumerate(categories):
        codes, words = batch.codes(category.name)
        out[:, j] = np.array([word not in category.levels for word in [*words, MISSING_LEVEL]])[codes]
    return out


def unknown_levels(categories: list[Category], unknown: Index, rows: int) -> Iterator[Finding]:
    """Findings about rows whose level the model never saw.

    The model stores rare levels as "(other)" without their names. For a category with such levels, only an excess over
    their share of more than 1% of the rows counts as new.

    Parameters
    ----------
    categories : list of Category
        The categorical features.
    unknown : ndarray of int
        Number of rows with an unknown level, per category.
    rows : int
        Number of rows.
    """
    for category, count in zip(categories, unknown, strict=True):
        counts = dict(zip(category.levels, category.counts, strict=True))
        joined = OTHER_LEVEL in counts
        share = count / rows - (counts[OTHER_LEVEL] / max(sum(counts.values()), 1) if joined else 0.0)
        if share > (NEGLIGIBLE_SHARE if joined else 0.0):
            about = "about " if joined else ""
            yield Finding(
                "unknown-levels", "warning" if share > NEGLIGIBLE_SHARE else "note",
                f"In {about}{round(share * rows):,} rows ({percent(share)}) the model never saw the level of "
                f"{category.name}: they are taken for {OTHER_LEVEL if joined else category.levels[0]}. Fit the model "
                "to a log that has such customers, or leave them out.",
            )  # fmt: skip


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
    """Check today's prices: a column, a number, or one price per segment."""
    if today is None or isinstance(today, str):
        return today
    if isinstance(today, Mapping):
        if segment is None:
            raise InvalidInput("Prices by segment need the column of the segments: give it as segment.")
        if not today:
            raise InvalidInput("today names no segment.")
        return {str(name): finite(f"today's price of {name}", price, minimum=0.0) for name, price in today.items()}
    return finite("today", today, minimum=0.0)


class Names:
    """Numbers words in order of first appearance; a missing word is "(missing)".

    Parameters
    ----------
    what : str
        What error messages call the words.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.places: dict[str, int] = {}

    def index(self, words: Words) -> Index:
        """The number of each word."""
        places = self.places
        numbers = [places.setdefault("(missing)" if word is None else str(word), len(places)) for word in words]
        if len(places) > MAX_GROUPS_OF_ROWS:
            raise InvalidInput(f"{self.what} has more than {MAX_GROUPS_OF_ROWS:,} different words: is it an id?")
        return np.array(numbers, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Sample:
    """A sample of the complete rows, in the order of the log.

    Attributes
    ----------
    rows : TwinRows
        The sample.
    complete, seen : int
        Number of complete rows, and of all rows.
    prices : mapping of str to (float, float)
        Lowest and highest price per segment.
    unknown : ndarray of int
        Number of complete rows with a level that the model does not know, per category.
    """

    rows: TwinRows
    complete: int
    seen: int
    prices: Mapping[str, Range]
    unknown: Index


def sample_rows(batches: Iterator[TwinRows], *, most: int) -> Sample:
    """At most ``most`` rows: those whose number has the smallest hashes, a reproducible uniform sample."""
    pool: list[TwinRows] = []
    held = complete = seen = 0
    unknown: Any = 0
    threshold = np.uint64(2**64 - 1)
    names = Names("The segment")
    low, high = np.full(MAX_GROUPS_OF_ROWS, np.inf), np.full(MAX_GROUPS_OF_ROWS, -np.inf)
    for rows in batches:
        seen, complete = seen + rows.seen, complete + len(rows.number)
        unknown = unknown + rows.unknown.sum(axis=0)
        index = names.index(rows.segment)
        np.minimum.at(low, index, rows.price)
        np.maximum.at(high, index, rows.price)
        pool.append(rows.take(_hash(rows) <= threshold))
        held += len(pool[-1].number)
        if held > 4 * most:
            pool = [_smallest(_joined(pool), most)]
            held, threshold = most, _hash(pool[0]).max()
    if not pool:
        raise InvalidInput("The log has no rows.")
    prices = {name: (float(low[i]), float(high[i])) for name, i in names.places.items()}
    return Sample(_smallest(_joined(pool), most), complete, seen, prices, unknown)


def _joined(pool: list[TwinRows]) -> TwinRows:
    columns = {
        f.name: np.concatenate([getattr(rows, f.name) for rows in pool]) for f in fields(TwinRows) if f.name != "seen"
    }
    return TwinRows(**columns, seen=sum(rows.seen for rows in pool))


def _smallest(rows: TwinRows, most: int) -> TwinRows:
    if len(rows.number) <= most:
        return rows
    chosen = np.argpartition(_hash(rows), most - 1)[:most]
    return rows.take(np.sort(chosen))


def _hash(rows: TwinRows) -> npt.NDArray[np.uint64]:
    hashed: npt.NDArray[np.uint64] = row_hash(rows.number, PURPOSE)
    return hashed


def by_weight(rows: TwinRows, size: int) -> TwinRows:
    """``size`` rows, repeated in proportion to their weights, so that uniform draws from them are draws by weight.

    Row i appears floor or ceil of size w_i / sum(w) times (systematic resampling).
    """
    if (rows.w == rows.w[0]).all():
        return rows
    ends = np.cumsum(rows.w)
    points = (np.arange(size) + 0.5) * (ends[-1] / size)
    return rows.take(np.searchsorted(ends, points, side="right").clip(max=len(ends) - 1))


def segment_index(words: Words) -> tuple[tuple[str, ...], Index]:
    """The sorted names of the segments, and the number of each row's segment."""
    names = Names("The segment")
    index = names.index(words)
    ordered = sorted(names.places)
    rank = np.empty(len(ordered), dtype=np.int64)
    rank[[names.places[name] for name in ordered]] = np.arange(len(ordered))
    return tuple(ordered), rank[index]
