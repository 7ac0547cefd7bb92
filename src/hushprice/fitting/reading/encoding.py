"""Encode raw columns as contexts z: standardised numbers and indicators of categories.

A missing number becomes the mean, and if it is missing in 1% or more of the rows, an indicator "<name> missing" is
added; an infinite number counts as missing. A missing category is the level "(missing)". Levels with fewer than 20
rows, or beyond the 100 most frequent, are joined into "(other)". An unknown level becomes "(other)" if that exists,
else the most frequent level.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, finite, positive_int
from hushprice.fitting.reading.source import Batch
from hushprice.kernels import streamed as kernel

MISSING_LEVEL, OTHER_LEVEL = "(missing)", "(other)"
MIN_LEVEL_ROWS = 20  # smallest number of rows of a level
MAX_LEVELS = 100  # largest number of levels of a category
INDICATED = 0.01  # share of missing values from which an indicator is added


@dataclass(frozen=True)
class Number:
    """A number feature, encoded as (x - mean) / sd.

    Parameters
    ----------
    name : str
        Column.
    mean, sd, low, high : float
        Mean, standard deviation and range over the rows used.
    missing : int
        Number of rows where it is missing.
    indicator : bool
        Whether an indicator of missing values is added.
    """

    name: str
    mean: float
    sd: float
    low: float
    high: float
    missing: int = 0
    indicator: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, f"{self.name} missing") if self.indicator else (self.name,)

    def fill(self, batch: Batch, out: Array) -> None:
        """Write the feature's entries of z, by rows of ``out``.

        Parameters
        ----------
        batch : Batch
            The rows.
        out : ndarray
            One row per entry, one column per row of the batch.
        """
        values = batch.numbers(self.name)
        kernel.standardise(values, self.mean, self.sd, out[0])
        if self.indicator:
            out[1, : values.size] = ~np.isfinite(values)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "number", **asdict(self)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Number:
        """A number from the data of :meth:`to_dict`.

        Parameters
        ----------
        data : mapping
            The data.
        """
        name = str(data["name"])
        values = {key: finite(f"{key} of {name}", data[key]) for key in ("mean", "low", "high")}
        return cls(
            name=name,
            **values,
            sd=finite(f"sd of {name}", data["sd"], minimum=0.0, strict=True),
            missing=positive_int(f"missing of {name}", data["missing"], minimum=0),
            indicator=bool(data["indicator"]),
        )


@dataclass(frozen=True)
class Category:
    """A category feature, encoded as one indicator per level except the first, which is the most frequent.

    Parameters
    ----------
    name : str
        Column.
    levels : tuple of str
        Levels, the most frequent first.
    counts : tuple of int
        Rows per level.
    missing : int
        Number of rows where it is missing.
    """

    name: str
    levels: tuple[str, ...]
    counts: tuple[int, ...]
    missing: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={level}" for level in self.levels[1:])

    def places(self, batch: Batch) -> npt.NDArray[np.int64]:
        """The index of each row's level. An unknown level becomes "(other)" if that exists, else the first.

        Parameters
        ----------
        batch : Batch
            The rows.

        Returns
        -------
        ndarray of int64
            One index per row.
        """
        index = {level: i for i, level in enumerate(self.levels)}
        rest = index.get(OTHER_LEVEL, 0)
        codes, words = batch.codes(self.name)
        table = [index.get(word, rest) for word in words]
        return np.array([*table, index.get(MISSING_LEVEL, rest)], dtype=np.int64)[codes]

    def fill(self, batch: Batch, out: Array) -> None:
        """Write the feature's entries of z, by rows of ``out``.

        Parameters
        ----------
        batch : Batch
            The rows.
        out : ndarray
            One row per entry, one column per row of the batch.
        """
        kernel.indicate(self.places(batch), out)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "category", **asdict(self), "levels": list(self.levels), "counts": list(self.counts)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Category:
        """A category from the data of :meth:`to_dict`.

        Parameters
        ----------
        data : mapping
            The data.
        """
        name = str(data["name"])
        levels = tuple(str(level) for level in data["levels"])
        counts = tuple(positive_int(f"counts of {name}", count, minimum=0) for count in data["counts"])
        if len(levels) != len(counts) or len(set(levels)) != len(levels) or not levels:
            raise InvalidInput(f"The levels of {name} must be different and have a count each.")
        return cls(name, levels, counts, positive_int(f"missing of {name}", data["missing"], minimum=0))


Feature = Number | Category
_KINDS: dict[str, type[Number] | type[Category]] = {"number": Number, "category": Category}


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """How raw columns become the entries of z, the first of which is 1.

    Parameters
    ----------
    features : tuple of Number or Category
        The features, in the order of their entries.

    Examples
    --------
    >>> risk = Category("risk", ("LOW", "HIGH"), (70, 30))
    >>> encoding = Encoding(features=(Number("age", 40.0, 10.0, 18.0, 80.0), risk))
    >>> encoding.names
    ('1', 'age', 'risk=HIGH')
    >>> from hushprice.fitting.reading.source import Source
    >>> encoding.encode(Source.open({"age": [50, None], "risk": ["HIGH", "LOW"]}).read(encoding.columns))
    array([[1., 1., 1.],
           [1., 0., 0.]])
    """

    features: tuple[Feature, ...] = ()

    @property
    def columns(self) -> tuple[str, ...]:
        """The raw columns needed."""
        return tuple(feature.name for feature in self.features)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the entries of z, made unique by appending "again"."""
        names = {"1": None}
        for feature in self.features:
            for name in feature.names:
                while name in names:
                    name += " again"
                names[name] = None
        return tuple(names)

    @property
    def dim(self) -> int:
        return 1 + sum(len(feature.names) for feature in self.features)

    @property
    def places(self) -> dict[str, range]:
        """The indices of each feature's entries in z."""
        result: dict[str, range] = {}
        place = 1
        for feature in self.features:
            result[feature.name] = range(place, place + len(feature.names))
            place += len(feature.names)
        return result

    def encode(self, batch: Batch) -> Array:
        """The contexts z of a batch, (n, d), all finite.

        Parameters
        ----------
        batch : Batch
            The rows.

        Returns
        -------
        ndarray of shape (n, d)
            One context per row.
        """
        return np.ascontiguousarray(self.by_columns(batch)[:, : batch.rows].T)

    def by_columns(self, batch: Batch) -> Array:
        """The contexts in the layout of the kernels: (d, n), padded with zeros to a whole number of tiles.

        Parameters
        ----------
        batch : Batch
            The rows.

        Returns
        -------
        ndarray
            One column per context.
        """
        n = batch.rows
        z = np.empty((self.dim, -(-n // kernel.TILE) * kernel.TILE))
        z[:, n:] = 0.0
        z[0, :n] = 1.0
        for feature, places in zip(self.features, self.places.values(), strict=True):
            feature.fill(batch, z[places.start : places.stop])
        return z

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {"features": [feature.to_dict() for feature in self.features]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Encoding:
        """An encoding from the data of :meth:`to_dict`; raises InvalidInput if the data is damaged.

        Parameters
        ----------
        data : mapping
            The data.
        """
        try:
            features = tuple(_KINDS[entry["kind"]].from_dict(entry) for entry in data["features"])
        except (KeyError, TypeError, AttributeError) as problem:
            raise InvalidInput(f"This is not an encoding: {type(problem).__name__} {problem}.") from None
        names = [feature.name for feature in features]
        if len(set(names)) != len(names):
            raise InvalidInput("This is not an encoding: a column is in it twice.")
        return cls(features=features)
