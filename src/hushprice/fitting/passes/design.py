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


@dataclass(frozen=True, eq=False)
class Rows:
    """Encoded rows of a log.

    Attributes
    ----------
    z : ndarray of shape (n, d)
        Contexts.
    price, y, w : ndarray of shape (n,)
        Prices, outcomes and weights.
    number : ndarray of shape (n,)
        Row numbers in the log.
    """

    z: Array
    price: Array
    y: Array
    w: Array
    number: npt.NDArray[np.int64]


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
    def of(cls, survey: Survey, *, sensitive: npt.NDArray[np.bool_] | None = None, part: str = "all") -> Design:
        """The design for a surveyed log.

        Parameters
        ----------
        survey : Survey
            The survey of the log.
        sensitive : ndarray of bool, optional
            Which entries of the context the price sensitivity depends on. Default: all.
        part : str
            Which rows are read: "all", "train" or "held-out".
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
        )

    def on_sample(self) -> Design | None:
        """The same design on the rows of the sample that are in its part; None if there are none."""
        if self.sample is None or self.numbers is None:
            return None
        inside = self._inside(self.numbers)
        if not inside.any():
            return None
        source = Source.of_batch(self.sample.take(inside))
        return replace(self, source=source, sample=None, numbers=None, part="all")

    def _inside(self, number: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Mask of the row numbers in the part."""
        if self.part == "all":
            return np.ones(number.size, dtype=np.bool_)
        return np.asarray(held_out(number) == (self.part == "held-out"))

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
        w = np.ones(batch.rows) if self.weights is None else batch.numbers(self.weights)
        return Rows(self.encoding.encode(batch), batch.numbers(self.price), batch.numbers(self.outcome), w, number)

    def choose(self, item: tuple[Batch, int]) -> tuple[Batch, npt.NDArray[np.int64]]:
        """The complete rows of the part in one batch, and their numbers.

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
