"""Reading the auto loan file: its columns by name, as checked numbers."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import csv

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, nearest
from hushprice.markets.autoloan.standin import COLUMNS, COVARIATES, ROWS, Columns

FEWEST_LOANS = 1_000
LARGEST_ENTRY = 1e7  # of any column
ODD_SHARE = 0.01  # share of rows that may be outside the usual range
USUAL_RANGES = {
    "Primary_FICO": (300.0, 850.0, "FICO scores run from 300 to 850"),
    "Amount_Approved": (500.0, 500_000.0, "amounts are in dollars, not in thousands"),
    "Term": (6.0, 120.0, "terms are in months, not in years"),
    "mp": (10.0, 20_000.0, "mp is the monthly payment in dollars"),
}


def read_columns(file: str | Path) -> Columns:
    """The columns of the real file in :data:`COLUMNS`, as checked numbers.

    Parameters
    ----------
    file : path-like
        A CSV file, or one packed with gzip.

    Raises
    ------
    InvalidInput
        If the file cannot be read, lacks a column or holds impossible values.
    """
    path = Path(file)
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise InvalidInput(
            f"The auto loan file {path} {what}. It comes from Columbia's Center for Pricing and Revenue Management; "
            f"leave the file out for the synthetic stand-in."
        )
    columns = {name: _numbers(name, texts) for name, texts in _texts(path).items()}
    _check(path, columns)
    return columns


def _texts(path: Path) -> dict[str, list[str | None]]:
    """The cells of the columns as text, by column."""
    try:
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content = gzip.decompress(content)
        if not content.strip():
            raise InvalidInput(f"The auto loan file {path} is empty.")
        header = csv.open_csv(pa.BufferReader(content)).schema.names
        _check_header(path, header)
        options = csv.ConvertOptions(
            include_columns=list(COLUMNS), column_types={name: pa.string() for name in COLUMNS}, null_values=[""],
            strings_can_be_null=True,
        )  # fmt: skip
        table = csv.read_csv(pa.BufferReader(content), convert_options=options)
    except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise InvalidInput(f"{path} cannot be read as a CSV file: {reason.rstrip('.')}. Is it complete?") from None
    return {name: table.column(name).to_pylist() for name in COLUMNS}


def _check_header(path: Path, header: list[str]) -> None:
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        hints = "".join(f" Instead of {name!r}:{nearest(name, header)}" for name in missing if nearest(name, header))
        alone = " Its first line has no commas." if len(header) == 1 else ""
        raise InvalidInput(
            f"{path} has no column {', '.join(map(repr, missing))}.{alone}{hints} Needed: {', '.join(COLUMNS)}."
        )
    twice = [name for name in COLUMNS if header.count(name) > 1]
    if twice:
        raise InvalidInput(f"{path} has more than one column {', '.join(map(repr, twice))}: keep one.")


def _numbers(name: str, texts: list[str | None]) -> Array:
    """The cells of a column as finite numbers."""
    try:
        values = np.array(texts, dtype=np.float64)
    except (TypeError, ValueError):
        values = np.array([_number(text) for text in texts])
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        first = texts[bad[0]]
        what = "missing" if first is None else f"{first[:40]!r}"
        raise InvalidInput(
            f"The column {name!r} has {bad.size} values that are missing or no numbers, the first in row "
            f"{bad[0] + 1}: {what}. {'apply is 1 for a loan taken up, or 0.' if name == 'apply' else ''}"
            f"{'' if name == 'apply' else 'Complete these rows or leave them out.'}"
        )
    return values


def _number(text: str | None) -> float:
    try:
        return float(text) if text is not None and "_" not in text else np.nan
    except ValueError:
        return np.nan


def _check(path: Path, columns: Columns) -> None:
    """Raise InvalidInput if the values of a column contradict its name."""
    n = len(columns["apply"])
    if n < FEWEST_LOANS:
        raise InvalidInput(f"{path} has {n} rows; the fit needs at least {FEWEST_LOANS}. The real file has {ROWS}.")
    _refuse("apply", columns["apply"], ~np.isin(columns["apply"], (0.0, 1.0)), "apply is 1 for a loan taken up, or 0")
    for name in (*COVARIATES, "mp"):
        _refuse(name, columns[name], columns[name] < 0.0, "it cannot be negative")
        _refuse(name, columns[name], columns[name] > LARGEST_ENTRY, f"it cannot exceed {LARGEST_ENTRY:g}")
        if columns[name].mean() <= 0.0:
            raise InvalidInput(f"The column {name!r} is 0 in every row.")
    for name, (low, high, usual) in USUAL_RANGES.items():
        odd = (columns[name] < low) | (columns[name] > high)
        if odd.mean() > ODD_SHARE:
            _refuse(name, columns[name], odd, usual)


def _refuse(name: str, values: Array, bad: npt.NDArray[np.bool_], usual: str) -> None:
    """Raise InvalidInput if any value is bad, with their number and the first of them."""
    rows = np.flatnonzero(bad)
    if rows.size:
        raise InvalidInput(
            f"The column {name!r} has {rows.size} values that cannot be right, the first in row {rows[0] + 1}: "
            f"{values[rows[0]]:g}. Check its units: {usual}."
        )
