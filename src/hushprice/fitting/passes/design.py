"""The rows and columns that a pass reads, and how they become contexts, prices and outcomes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, unknown
from hushprice.fitting.passes.survey import Survey, complete_rows
from hushprice.fitting.reading.encoding import Encoding
from hushprice.fitting.reading.ordered_map import in_order
from hushprice.fitting.reading.source import Batch, Source, rows_for
from hushprice.kernels import streamed as kernel

PARTS = ("all", "train", "held-out")
HELD_OUT = 5  # one row in this many is held out
FORGOTTEN = 64.0  # half-lives after which a row counts for nothing: a weight of 2^-64 is lost in rounding


@dataclass(frozen=True)
class Discount:
    """How much rows count by their age: 0.5^(age / half_life), where the last row of the log has age 0.

    Parameters
    ----------
    half_life : float
        Number of rows after which a row counts half.
    rows : int
        Number of rows of the log, complete or not.

    Examples
    --------
    >>> Discount(half_life=10.0, rows=21).of(np.array([0, 10, 20]))
    array([0.25, 0.5 , 1.  ])
    """

    half_life: float
    rows: int

    def of(self, number: npt.NDArray[np.int64]) -> Array:
        """The factor of each row's weight; 0 for rows that are forgotten.

        Parameters
        ----------
        number : ndarray of int
            Row numbers.
        """
        lives = (self.rows - 1 - number) / self.half_life
        return np.asarray(np.where(lives <= FORGOTTEN, np.exp2(-np.minimum(lives, FORGOTTEN)), 0.0))


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows of a log.

    Attributes
    ----------
    z : ndarray of shape (n, d)
        Contexts.
    price, y, w : ndarray of shape (n,)
        Prices, outcomes and weights. The weights are discounted by age if the design has a half-life.
    number : ndarray of shape (n,)
        Row numbers in the log.
    own : ndarray of shape (n,)
        Weights of the rows without the discount.
    """

    z: Array
    price: Array
    y: Array
    w: Array
    number: npt.NDArray[np.int64]
    own: Array


@dataclass(frozen=True, kw_only=True, eq=False)
class Design:
    """The source, columns and encoding that a pass over a log uses.

    Parameters
    ----------
    source : Source
        The log.
    encoding : Encoding
        How columns become contexts.
    price, outcome : str
        Columns of the price and of the outcome.
    weights : str, optional
        Column of the weights.
    sensitive : ndarray of bool of shape (d,), optional
        Entries of z that the price sensitivity depends on; all by default.
    part : {"all", "train", "held-out"}
        Rows to use. A fixed hash of the row number holds out one row in five.
    sample : Batch, optional
        Raw rows that a fit starts from.
    numbers : ndarray of int, optional
        Row numbers of the sample.
    centre, spread : float
        Centre and scale of the price, which affect only rounding and the ridge.
    discount : Discount, optional
        How much rows count by their age; all the same by default.
    span : tuple of int, optional
        First and last (exclusive) row number to use; all by default.
    """

    source: Source
    encoding: Encoding
    price: str
    outcome: str
    weights: str | None = None
    sensitive: npt.NDArray[np.bool_] | None = None
    part: str = "all"
    sample: Batch | None = None
    numbers: npt.NDArray[np.int64] | None = None
    centre: float = 0.0
    spread: float = 1.0
    discount: Discount | None = None
    span: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if self.part not in PARTS:
            raise unknown("part", self.part, PARTS)
        mask = np.ones(self.dim, dtype=np.bool_)
        if self.sensitive is not None:
            mask = np.asarray(self.sensitive, dtype=np.bool_)
        if mask.shape != (self.dim,):
            raise InvalidInput(f"sensitive must have shape ({self.dim},), got {mask.shape}.")
        object.__setattr__(self, "sensitive", mask)

    @classmethod
    def of(
        cls,
        survey: Survey,
        *,
        sensitive: npt.NDArray[np.bool_] | None = None,
        part: str = "all",
        half_life: float | None = None,
    ) -> Design:
        """The design for a surveyed log.

        Parameters
        ----------
        survey : Survey
            The survey of the log.
        sensitive : ndarray of bool, optional
            Which entries of the context the price sensitivity depends on. Default: all.
        part : str
            Which rows are read: "all", "train" or "held-out".
        half_life : float, optional
            Number of rows after which a row counts half. Default: all count the same.
        """
        return cls(
            source=survey.source,
            encoding=survey.encoding,
            price=survey.columns.price,
            outcome=survey.columns.outcome,
            weights=survey.columns.weights,
            sensitive=sensitive,
            part=part,
            sample=survey.sample,
            numbers=survey.numbers,
            centre=survey.price.mean,
            spread=survey.price.sd if survey.price.sd > 0.0 else 1.0,
            discount=None if half_life is None else Discount(half_life, survey.rows),
        )

    def on_sample(self) -> Design | None:
        """The design on the rows of the sample that are in its part, without discount; None if there are none."""
        if self.sample is None or self.numbers is None:
            return None
        inside = self._inside(self.numbers)
        if not inside.any():
            return None
        source = Source.of_batch(self.sample.take(inside))
        return replace(self, source=source, sample=None, numbers=None, part="all", discount=None, span=None)

    def _inside(self, number: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Mask of the row numbers in the part and the span that are not forgotten."""
        inside = np.ones(number.size, dtype=np.bool_)
        if self.part != "all":
            inside = np.asarray(held_out(number) == (self.part == "held-out"))
        if self.span is not None:
            inside &= (number >= self.span[0]) & (number < self.span[1])
        return inside if self.discount is None else inside & (self.discount.of(number) > 0.0)

    @property
    def dim(self) -> int:
        return self.encoding.dim

    @property
    def columns(self) -> tuple[str, ...]:
        names = (self.price, self.outcome, self.weights, *self.encoding.columns)
        return tuple(dict.fromkeys(name for name in names if name is not None))

    def blocks(self) -> Iterator[Rows]:
        """The complete rows of the part, encoded, in order."""
        return (rows for rows in in_order(self.encode, self.numbered()) if rows.y.size)

    def numbered(self, *others: str | None) -> Iterator[tuple[Batch, int]]:
        """Raw batches and the row numbers of their first rows; ``others`` names further columns to read.

        Parameters
        ----------
        *others : str or None
            Names of the columns; None is ignored.

        Returns
        -------
        iterator of tuple
            Each batch with the number of its first row.
        """
        start = 0
        columns = (*self.columns, *filter(None, others))
        for batch in self.source.batches(columns, rows=rows_for(self.dim)):
            yield batch, start
            start += batch.rows

    def encode(self, item: tuple[Batch, int]) -> Rows:
        """The complete rows of the part in one batch, encoded.

        Parameters
        ----------
        item : tuple
            A batch with the number of its first row, from :meth:`numbered`.
        """
        batch, number = self.choose(item)
        own = np.ones(batch.rows) if self.weights is None else batch.numbers(self.weights)
        w = own if self.discount is None else own * self.discount.of(number)
        return Rows(self.encoding.encode(batch), batch.numbers(self.price), batch.numbers(self.outcome), w, number, own)

    def weigh(self, batch: Batch, number: npt.NDArray[np.int64], *, power: int = 1) -> Array:
        """The weights of rows times a power of their discount; empty if all of them are 1.

        Parameters
        ----------
        batch : Batch
            The rows, from :meth:`choose`.
        number : ndarray of int
            Their numbers in the log.
        power : int
            The power of the discount.
        """
        own = np.empty(0) if self.weights is None else batch.numbers(self.weights)
        if self.discount is None:
            return own
        discount = self.discount.of(number) ** power
        return own * discount if own.size else discount

    def choose(self, item: tuple[Batch, int]) -> tuple[Batch, npt.NDArray[np.int64]]:
        """The complete rows of the part in one batch that are not forgotten, and their numbers.

        Parameters
        ----------
        item : tuple
            A batch with the number of its first row, from :meth:`numbered`.

        Returns
        -------
        tuple
            The rows as a batch, and their numbers in the log.
        """
        batch, start = item
        number = np.arange(start, start + batch.rows)
        chosen, _ = complete_rows(batch, self.price, self.outcome, self.weights)
        chosen &= self._inside(number)
        if not chosen.all():
            batch, number = batch.take(chosen), number[chosen]
        return batch, number


def held_out(number: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether rows are held out, by a fixed hash of the row number.

    Parameters
    ----------
    number : ndarray of int
        Row numbers.

    Returns
    -------
    ndarray of bool
        True for one row in five.

    Examples
    --------
    >>> float(held_out(np.arange(100_000)).mean().round(2))
    0.2
    """
    chosen: npt.NDArray[np.bool_] = kernel.row_hash(number, 0) % np.uint64(HELD_OUT) == 0
    return chosen
