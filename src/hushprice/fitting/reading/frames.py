"""Read scikit-learn's X and y: frames by column name, arrays by column number, with scikit-learn's checks."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.fitting.reading.source import Batch, Source, missing_column


class BadValue(InvalidInput, TypeError):
    """A value of X is neither a number nor text."""


@dataclass(frozen=True, eq=False)
class Frame:
    """The columns of X. Those of an array are called x0, x1, ... and it is ``numbered``.

    >>> frame = Frame.of(np.eye(2))
    >>> frame.names, frame.rows, frame.name(1)
    (('x0', 'x1'), 2, 'x1')
    """

    names: tuple[str, ...]
    data: Mapping[str, Any]
    rows: int
    numbered: bool

    @classmethod
    def of(cls, X: Any) -> Frame:
        """From a frame, an Arrow table, a mapping, a log or an array of two dimensions."""
        if hasattr(X, "toarray"):
            raise InvalidInput("Sparse data was passed for X, but dense data is required: convert it with .toarray().")
        if isinstance(X, (str, Path, Source, Mapping)) or hasattr(X, "__arrow_c_stream__"):
            source = Source.open(X)
            batch = source.read(source.columns)
            return cls(source.columns, batch.data, batch.rows, False)
        values = _table(X)
        names = tuple(f"x{j}" for j in range(values.shape[1]))
        data = {name: _column(values[:, j]) for j, name in enumerate(names)}
        return cls(names, data, len(values), True)

    def name(self, column: str | int) -> str:
        """The name of a column from its name or its number."""
        if str(column) in self.names:
            return str(column)
        if isinstance(column, str) and self.numbered:
            raise InvalidInput(f"X is an array, so give columns by their number and not as {column!r}.")
        if isinstance(column, str):
            raise missing_column("X", column, self.names)
        if not isinstance(column, (int, np.integer)) or not -len(self.names) <= column < len(self.names):
            raise InvalidInput(f"X has {len(self.names)} columns, so there is no column number {column!r}.")
        return self.names[column]

    def renamed(self, names: Sequence[str], owner: str) -> Frame:
        """The columns of an array under their names in the fit."""
        if len(names) != len(self.names):
            raise InvalidInput(
                f"X has {len(self.names)} features, but {owner} is expecting {len(names)} features as input: "
                f"{', '.join(names)}."
            )
        data = dict(zip(names, self.data.values(), strict=True))
        return Frame(tuple(names), data, self.rows, self.numbered)

    def batch(self, columns: Sequence[str]) -> Batch:
        """These columns of all rows."""
        for name in columns:
            if name not in self.data:
                raise missing_column("X", name, self.names)
        if not columns:
            return Batch({}, self.rows, "X")
        return Source.open({name: self.data[name] for name in columns}).read(columns)


def _table(X: Any) -> Any:
    """X as an array of two dimensions; errors have scikit-learn's texts."""
    values = np.asarray(X)
    if values.dtype.kind == "c":
        raise InvalidInput("Complex data not supported: X must hold real numbers.")
    if values.ndim != 2:
        raise InvalidInput(
            f"Expected 2D array, got {values.ndim}D array instead. Reshape your data: one row per customer, one column "
            "per feature, and the price among them."
        )
    if values.shape[1] == 0:
        raise InvalidInput(f"Found array with 0 feature(s) (shape={values.shape}) while a minimum of 1 is required.")
    if values.shape[0] == 0:
        raise InvalidInput(f"Found array with 0 sample(s) (shape={values.shape}) while a minimum of 1 is required.")
    return values


def _column(values: Any) -> Any:
    """A column of an array: numbers where that is possible, else words."""
    if values.dtype.kind in "biuf":
        return np.ascontiguousarray(values, dtype=np.float64)
    try:
        return np.ascontiguousarray(values.astype(np.float64))
    except TypeError:
        raise BadValue("An argument must be a string or a number in every place of X, but some are neither.") from None
    except ValueError:
        return [None if v is None or v != v else str(v) for v in values.tolist()]


def outcomes(y: Any, rows: int, owner: str) -> Array:
    """y as finite numbers, one for each row of X."""
    if y is None:
        raise InvalidInput(f"This {owner} estimator requires y to be passed, but the target y is None.")
    values = _numbers("y", y)
    if values.ndim == 2 and values.shape[1] == 1:
        kind = getattr(sys.modules.get("sklearn.exceptions"), "DataConversionWarning", UserWarning)
        words = "A column-vector y was passed when a 1d array was expected. Use y.ravel()."
        warnings.warn(words, kind, stacklevel=3)
        values = values.ravel()
    if not np.isfinite(values).all():
        raise InvalidInput("Input y contains NaN or infinity. Leave such rows out.")
    return _as_long("y", values, rows)


def weights(sample_weight: Any, rows: int) -> Array:
    """Sample weights as finite numbers of at least 0, one for each row of X, not all 0."""
    values = _as_long("sample_weight", _numbers("sample_weight", sample_weight), rows)
    if not np.isfinite(values).all() or (values < 0.0).any():
        raise InvalidInput("sample_weight must be finite and not negative.")
    if not values.any():
        raise InvalidInput("sample_weight is zero in every row, so there is nothing to learn from.")
    return values


def _numbers(name: str, value: Any) -> Array:
    try:
        values = np.asarray(value)
        if values.dtype.kind == "c":
            raise InvalidInput(f"Complex data not supported: {name} must hold real numbers.")
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as problem:
        if isinstance(problem, HushpriceError):
            raise
        raise InvalidInput(f"Unknown label type: {name} must hold numbers.") from None


def _as_long(name: str, values: Array, rows: int) -> Array:
    if values.ndim != 1:
        raise InvalidInput(f"{name} must have one dimension, got the shape {values.shape}.")
    if len(values) != rows:
        raise InvalidInput(f"X has {rows} rows, but {name} has {len(values)}: they must be as long as each other.")
    return values
