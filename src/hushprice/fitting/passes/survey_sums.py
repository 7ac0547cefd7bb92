"""The sums of a survey: moments of numbers, levels of categories, incomplete rows, and the sample."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.errors import InvalidInput
from hushprice.fitting.reading.encoding import (
    INDICATED,
    MAX_LEVELS,
    MIN_LEVEL_ROWS,
    MISSING_LEVEL,
    OTHER_LEVEL,
    Category,
    Number,
)
from hushprice.fitting.reading.source import Batch
from hushprice.kernels import streamed as kernel

SAMPLE_ROWS = 100_000  # largest size of the sample; it has at least half of this if the log does
MOST_WORDS = 100_000  # number of different words above which a column is an id
FEW_WORDS = 20  # number of different words up to which a column is a category, however few rows there are


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The roles of the columns of a log.

    Parameters
    ----------
    price, outcome : str
        Columns of the price and of the outcome.
    features : tuple of str
        Columns of the features.
    weights, segment : str, optional
        Columns of the weights and of the segments.

    Raises
    ------
    InvalidInput
        If a column has two roles.
    """

    price: str
    outcome: str
    features: tuple[str, ...]
    weights: str | None = None
    segment: str | None = None

    def __post_init__(self) -> None:
        single = [c for c in (self.price, self.outcome, self.weights) if c is not None]
        for name in single:
            if single.count(name) > 1:
                raise InvalidInput(f"The column {name!r} cannot be two of price, outcome and weights.")
            if name in self.features:
                raise InvalidInput(f"The column {name!r} cannot be a feature as well as price, outcome or weights.")
        if len(set(self.features)) < len(self.features):
            raise InvalidInput("A feature is named twice.")

    @property
    def needed(self) -> tuple[str, ...]:
        """All of them, each once."""
        names = (self.price, self.outcome, self.weights, *self.features, self.segment)
        return tuple(dict.fromkeys(name for name in names if name is not None))


@dataclass
class Moments:
    """Running count, mean, sum of squared deviations and range of one column (Chan, Golub & LeVeque 1983)."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    low: float = np.inf
    high: float = -np.inf

    def merge(self, count: int, mean: float, squares: float, low: float, high: float) -> None:
        """Add the moments of further values."""
        if count == 0:
            return
        total = self.count + count
        shift = mean - self.mean
        self.squares += squares + shift * shift * (self.count * (count / total))
        self.mean += shift * (count / total)
        self.count = total
        self.low, self.high = min(self.low, low), max(self.high, high)

    @property
    def sd(self) -> float:
        return float(np.sqrt(self.squares / self.count)) if self.count else 0.0

    @property
    def constant(self) -> bool:
        return self.count == 0 or self.sd <= 1e-12 * max(abs(self.low), abs(self.high))


@dataclass(frozen=True, kw_only=True, eq=False)
class BatchCounts:
    """The counts of one batch; ``complete`` marks its complete rows."""

    batch: Batch
    left_out: dict[str, int]
    complete: npt.NDArray[np.bool_]
    weight: float
    squares: float
    counts: bool
    facts: tuple[bool, bool]
    values: frozenset[float]
    moments: dict[str, tuple[int, float, float, float, float]]
    words: dict[str, Counter[str | None]]
    texts: frozenset[str]


@dataclass(eq=False)
class LogCounts:
    """The counts of all batches so far."""

    columns: Columns
    words: frozenset[str]
    rows: int = 0
    records: int = 0
    weight: float = 0.0
    squares: float = 0.0
    counts: bool = True
    binary: bool = True
    whole: bool = True
    values: frozenset[float] = frozenset()
    left_out: Counter[str] = field(default_factory=Counter)
    moments: dict[str, Moments] = field(default_factory=dict)
    levels: dict[str, Counter[str | None]] = field(default_factory=dict)
    sample: list[Batch] = field(default_factory=list)
    numbers: list[npt.NDArray[np.int64]] = field(default_factory=list)
    spacing: int = 1

    def add(self, part: BatchCounts) -> None:
        """Add the counts of the next batch."""
        n = int(np.count_nonzero(part.complete))
        self.left_out.update(part.left_out)
        self.weight += part.weight
        self.squares += part.squares
        self.counts = self.counts and part.counts
        self.binary, self.whole = self.binary and part.facts[0], self.whole and part.facts[1]
        if len(self.values) <= 2:
            self.values |= part.values
        for name, moments in part.moments.items():
            self.moments.setdefault(name, Moments()).merge(*moments)
        for name, counts in part.words.items():
            total = self.levels.setdefault(name, Counter())
            total.update(counts)
            if len(total) > MOST_WORDS:
                refuse_id(name, total)
        self._sample(part)
        self.rows += part.batch.rows
        self.records += n

    def _sample(self, part: BatchCounts) -> None:
        """Sample the rows whose hash is a multiple of the spacing, which doubles when the sample is full."""
        numbers = np.arange(self.rows, self.rows + part.batch.rows)
        chosen = part.complete & self._in_sample(numbers)
        if chosen.any():
            self.sample.append(part.batch.take(chosen))
            self.numbers.append(numbers[chosen])
        while sum(map(len, self.numbers)) > SAMPLE_ROWS:
            self.spacing *= 2
            stay = [self._in_sample(some) for some in self.numbers]
            self.sample = [batch.take(rows) for batch, rows in zip(self.sample, stay, strict=True)]
            self.numbers = [some[rows] for some, rows in zip(self.numbers, stay, strict=True)]

    def _in_sample(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.asarray(kernel.row_hash(numbers, 1) & np.uint64(self.spacing - 1) == 0)


def count_batch(batch: Batch, columns: Columns, words: frozenset[str]) -> BatchCounts:
    """Counts and moments of one batch."""
    texts = frozenset(f for f in columns.features if f not in words and not batch.is_number(f))
    complete, reasons = complete_rows(batch, columns.price, columns.outcome, columns.weights)
    usable = batch if complete.all() else batch.take(complete)
    y = usable.numbers(columns.outcome)
    moments, counts = {}, {}
    for name in (columns.price, columns.outcome, *(f for f in columns.features if f not in words | texts)):
        moments[name] = kernel.moments(usable.numbers(name))
    for name in (*(f for f in columns.features if f in words), *filter(None, (columns.segment,))):
        codes, levels = usable.codes(name)
        frequency: Counter[str | None] = Counter()
        for level, count in zip([None, *levels], np.bincount(codes + 1, minlength=len(levels) + 1), strict=True):
            if count:
                frequency[level] += int(count)
        counts[name] = frequency
    w = usable.numbers(columns.weights) if columns.weights else np.ones(usable.rows)
    with np.errstate(over="ignore"):
        squares = float((w * w).sum())
    return BatchCounts(
        batch=batch, left_out=reasons, complete=complete, weight=float(w.sum()), squares=squares,
        counts=kernel.outcome_facts(w)[1], facts=kernel.outcome_facts(y), values=_few(y), moments=moments,
        words=counts, texts=texts,
    )  # fmt: skip


def _few(y: Array) -> frozenset[float]:
    """Up to three different values of y."""
    values: set[float] = set()
    while y.size and len(values) < 3:
        values.add(float(y[0]))
        y = y[y != y[0]]
    return frozenset(values)


def complete_rows(
    batch: Batch, price: str, outcome: str, weights: str | None
) -> tuple[npt.NDArray[np.bool_], dict[str, int]]:
    """Mask of the complete rows, and the number of the others by reason."""
    complete = np.ones(batch.rows, dtype=np.bool_)
    reasons = {}
    for reason, name in (("no price", price), ("no outcome", outcome), ("no weight", weights)):
        if name is not None:
            present = np.isfinite(batch.numbers(name))
            reasons[reason] = int(np.count_nonzero(complete & ~present))
            complete &= present
    if weights is not None:
        w = batch.numbers(weights)
        if (w < 0.0).any():
            raise InvalidInput(f"The weights in {weights!r} must not be negative, got {w[w < 0.0][0]:g}.")
        reasons["weight 0"] = int(np.count_nonzero(complete & (w == 0.0)))
        complete &= w > 0.0
    return complete, {reason: count for reason, count in reasons.items() if count}


def number(name: str, moments: Moments, records: int) -> Number:
    """The encoding of a column of numbers."""
    missing = records - moments.count
    return Number(
        name,
        moments.mean,
        moments.sd,
        moments.low,
        moments.high,
        missing,
        missing >= INDICATED * records and missing > 0,
    )


def join_levels(name: str, counts: Counter[str | None]) -> Category:
    """A category whose rare levels are joined, the most frequent level first."""
    named = Counter({MISSING_LEVEL if level is None else level: count for level, count in counts.items()})
    ordered = sorted(named.items(), key=lambda item: (-item[1], item[0]))
    frequent = Counter({level: count for level, count in ordered[:MAX_LEVELS] if count >= MIN_LEVEL_ROWS})
    rest = sum(named.values()) - sum(frequent.values())
    if rest:
        frequent[OTHER_LEVEL] += rest
    final = sorted(frequent.items(), key=lambda item: (-item[1], item[0]))
    return Category(name, tuple(level for level, _ in final), tuple(count for _, count in final), counts.get(None, 0))


def refuse_id(name: str, counts: Counter[str | None]) -> None:
    """Refuse a column with different words in more than half of the rows, or with too many words to be levels."""
    words = len(counts) - (None in counts)
    if words > MOST_WORDS or words > max(FEW_WORDS, sum(counts.values()) / 2):
        raise InvalidInput(
            f"The column {name!r} has {words} different words so far in {sum(counts.values())} rows: it looks like an "
            "id, not a category. Leave it out, or group its values first."
        )
