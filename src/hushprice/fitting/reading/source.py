"""Logs of past quotes: files, folders, data frames, Arrow tables and mappings, read batch by batch.

A :class:`Source` is a log that can be read again and again in bounded memory; a :class:`Batch` is some of its rows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol
from unicodedata import category

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, nearest

Log = Any  # a path, a folder, an Arrow table, a pandas or polars frame, a mapping of columns, or a Source
ROWS_PER_BATCH = 65_536  # largest number of rows of a batch
NUMBERS_PER_BATCH = 1 << 22  # largest number of numbers per batch, so that wide logs have shorter batches

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL", "None")  # words that mean a missing value
_WHOLE = re.compile(r"(0|-?[1-9]\d{0,14})\.0*", re.ASCII)


@dataclass(frozen=True, eq=False)
class Batch:
    """Columns of consecutive rows of a log.

    Parameters
    ----------
    data : mapping of str to Arrow array
        The columns.
    rows : int
        Number of rows.
    origin : str
        Name of the log in error messages.

    Examples
    --------
    >>> source = Source.open({"p": [1.0, None], "risk": ["LOW", None], "late": [True, False]})
    >>> batch = source.read(source.columns)
    >>> batch.rows, batch.numbers("p"), batch.words("risk"), batch.numbers("late")
    (2, array([ 1., nan]), array(['LOW', None], dtype=object), array([1., 0.]))
    """

    data: Mapping[str, Any]
    rows: int
    origin: str = "the log"

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.data)

    def is_number(self, name: str) -> bool:
        """Whether a column holds numbers or booleans; a column without values counts as numbers.

        Parameters
        ----------
        name : str
            Name of the column.
        """
        kind = _kind(self._column(name).type)
        return bool(
            pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
            or pa.types.is_decimal(kind) or pa.types.is_null(kind)
        )  # fmt: skip

    def numbers(self, name: str) -> Array:
        """A column as floats, NaN where missing. Booleans become 0 and 1; text must be numbers.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        ndarray
            One number per row.
        """
        column = self._column(name)
        if not self.is_number(name):
            return self._parsed(name)
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if pa.types.is_boolean(column.type):
            column = column.cast(pa.int8())
        if not pa.types.is_float64(column.type):
            column = column.cast(pa.float64(), safe=False)
        return np.array(column.to_numpy(zero_copy_only=False), dtype=np.float64)  # a writable copy

    def words(self, name: str) -> npt.NDArray[np.object_]:
        """A column as text, None where a value is missing. Numbers are written as short as possible: 1.0 is "1".

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        ndarray of object
            One text per row.
        """
        codes, levels = self.codes(name)
        return np.array([*levels, None], dtype=object)[codes]

    def codes(self, name: str) -> tuple[npt.NDArray[np.int64], list[str]]:
        """A column as indices into a list of words, -1 where missing. A word can occur twice in the list.

        Parameters
        ----------
        name : str
            Name of the column.

        Returns
        -------
        tuple
            The indices, one per row, and the words.
        """
        column = self._column(name)
        if self.is_number(name) and not pa.types.is_integer(_kind(column.type)):
            values, places = np.unique(self.numbers(name), return_inverse=True)
            words = [_shortest(v) for v in values if np.isfinite(v)]
            shift = int(np.count_nonzero(values == -np.inf))
            places = places - shift
            return np.where((places < 0) | (places >= len(words)), -1, places), words
        if not pa.types.is_dictionary(column.type):
            column = _text(column, name).dictionary_encode()
        listed = [_word(w) for w in _text(column.dictionary, name).to_pylist()]
        level = np.array([*(-1 if w is None else i for i, w in enumerate(listed)), -1])
        index = column.indices.fill_null(len(listed)).to_numpy(zero_copy_only=False)
        return level[index], [w or "" for w in listed]

    def take(self, rows: npt.NDArray[Any]) -> Batch:
        """The selected rows, by number or by a mask.

        Parameters
        ----------
        rows : ndarray
            Numbers of the rows, or a mask.
        """
        places = np.flatnonzero(rows) if rows.dtype == bool else rows
        index = pa.array(places, type=pa.int64())
        return Batch({name: column.take(index) for name, column in self.data.items()}, len(places), self.origin)

    @staticmethod
    def join(batches: Sequence[Batch]) -> Batch:
        """Batches of the same columns, one after the other.

        Parameters
        ----------
        batches : sequence of Batch
            The batches, in order.
        """
        names = batches[0].columns
        data = {name: _joined([b.data[name] for b in batches]) for name in names}
        return Batch(data, sum(b.rows for b in batches), batches[0].origin)

    def _column(self, name: str) -> Any:
        if name not in self.data:
            raise missing_column(self.origin, name, self.columns)
        return self.data[name]

    def _parsed(self, name: str) -> Array:
        """A column of text as numbers."""
        codes, words = self.codes(name)
        values = np.full(len(words) + 1, np.nan)
        for i, word in enumerate(words):
            try:
                values[i] = float(word) if word and "_" not in word else np.nan
            except ValueError:
                raise InvalidInput(
                    f"The column {name!r} of {self.origin} must hold numbers, but has {word[:40]!r}. "
                    "Mend these rows, or leave the column out."
                ) from None
        return values[codes]


class Part(Protocol):
    """One file or table of a log."""

    @property
    def name(self) -> str: ...

    @property
    def columns(self) -> tuple[str, ...]: ...

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[dict[str, Any]]:
        """Arrow arrays by name, of at most ``rows`` rows."""


@dataclass(frozen=True, eq=False)
class Source:
    """An open log that can be read repeatedly, batch by batch.

    Parameters
    ----------
    name : str
        Name of the log in messages.
    columns : tuple of str
        Its columns.
    parts : tuple of Part
        Its files or tables.

    Examples
    --------
    >>> source = Source.open({"price": [1, 2, 3], "sold": [1, 1, 0]})
    >>> source.columns, [b.rows for b in source.batches(["price"], rows=2)]
    (('price', 'sold'), [2, 1])
    """

    name: str
    columns: tuple[str, ...]
    parts: tuple[Part, ...]

    @classmethod
    def open(cls, log: Log) -> Source:
        """Open a log; of files, only the headers are read.

        Parameters
        ----------
        log : path, frame, Arrow table, mapping or Source
            A CSV, gzipped CSV or Parquet file, a folder of them, or a table in memory. A Source is returned unchanged.

        Returns
        -------
        Source
            The open log.

        Raises
        ------
        InvalidInput
            If the log cannot be read, or has two columns of one name.
        """
        if isinstance(log, Source):
            return log
        from hushprice.fitting.reading import files

        if isinstance(log, (str, Path)):
            parts: tuple[Part, ...] = files.parts(Path(log))
            name = Path(log).name or str(log)
        else:
            parts = (files.TablePart("the data frame", _table(log)),)
            name = "data frame"
        for part in parts:
            require_single(part.name, part.columns)
        return cls(name, parts[0].columns, parts)

    @classmethod
    def of_batch(cls, batch: Batch) -> Source:
        """Rows in memory as a source.

        Parameters
        ----------
        batch : Batch
            The rows.
        """
        return cls.open(pa.table(dict(batch.data)))

    def batches(self, columns: Sequence[str], *, rows: int = ROWS_PER_BATCH) -> Iterator[Batch]:
        """Iterate over the rows in order, at most ``rows`` per batch, with these columns only.

        Parameters
        ----------
        columns : sequence of str
            Names of the columns.
        rows : int
            Largest number of rows per batch.
        """
        wanted = list(dict.fromkeys(columns))
        for name in wanted:
            if name not in self.columns:
                raise missing_column(self.name, name, self.columns)
        for part in self.parts:
            for name in wanted:
                if name not in part.columns:
                    raise missing_column(part.name, name, part.columns, f", which {self.parts[0].name} has")
            for data in part.batches(wanted, rows):
                count = len(next(iter(data.values()))) if data else 0
                if count:
                    yield Batch({name: _settled(column) for name, column in data.items()}, count, part.name)

    def read(self, columns: Sequence[str]) -> Batch:
        """All rows at once.

        Parameters
        ----------
        columns : sequence of str
            Names of the columns.
        """
        try:
            batches = list(self.batches(columns))
        except TurnedText:
            return self.read(columns)
        if not batches:
            raise InvalidInput(f"{self.name} has no rows.")
        return Batch.join(batches)


class TurnedText(InvalidInput):
    """A column begins with numbers and has text further on. It is read as text from now on."""


def require_single(origin: str, columns: Sequence[str]) -> None:
    """Refuse two columns of one name, and names with control characters, which a terminal would execute."""
    odd = [c for c in columns if any(category(sign) == "Cc" and not sign.isspace() for sign in c)]
    if odd:
        raise InvalidInput(f"{origin} has a column with control characters in its name, {odd[0]!r}: rename it.")
    twice = sorted({c for c in columns if list(columns).count(c) > 1})
    if twice:
        raise InvalidInput(f"{origin} has more than one column {', '.join(map(repr, twice))}: keep one.")


def require_order(source: Source) -> None:
    """Refuse a log of several files whose order of names may not be that of time: part-10 comes before part-2."""
    names = [str(getattr(part, "path", part.name)) for part in source.parts]
    for earlier, later in pairwise(names):
        words = zip(*(re.findall(r"[0-9]+|[^0-9]+", name) for name in (earlier, later)), strict=False)
        a, b = next(((a, b) for a, b in words if a != b), ("", ""))
        if a.isdigit() and b.isdigit() and int(a) > int(b):
            raise InvalidInput(
                f"With a half-life rows must be in order of time, oldest first. The files of {source.name} are read in "
                f"the order of their names, {Path(earlier).name} before {Path(later).name}: give numbers the same "
                "length (01, 02, ...), or give one file."
            )


def rows_for(width: int) -> int:
    """Rows of a batch that is encoded as ``width`` columns of numbers."""
    return max(1_024, min(ROWS_PER_BATCH, NUMBERS_PER_BATCH // max(width, 1)))


def missing_column(origin: str, name: str, columns: Sequence[str], aside: str = "") -> InvalidInput:
    """The error for a missing column; it suggests the nearest name."""
    listed = ", ".join(columns[:20]) + (", ..." if len(columns) > 20 else "")
    return InvalidInput(f"{origin} has no column {name!r}{aside}.{nearest(name, columns)} Its columns: {listed}.")


def _table(log: Log) -> Any:
    """An Arrow table from a data frame, an Arrow object or a mapping of columns."""
    try:
        if isinstance(log, Mapping):
            return pa.table({str(k): pa.array(v, from_pandas=True) for k, v in log.items()})
        if hasattr(log, "__arrow_c_stream__") or hasattr(log, "__arrow_c_array__"):
            table = pa.table(log)
            return table.select([i for i, c in enumerate(table.column_names) if not c.startswith("__index_level_")])
    except (pa.ArrowException, ValueError, TypeError) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise InvalidInput(f"The log cannot be read as a table: {reason.rstrip('.')}.") from None
    raise InvalidInput(
        f"A log must be a path, a pandas or polars data frame, an Arrow table or a mapping of columns, got "
        f"{type(log).__name__}."
    )


def _settled(column: Any) -> Any:
    """A column that supports ``take``, which Arrow does not implement for string views."""
    if not pa.types.is_string_view(_kind(column.type)):
        return column
    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.large_string()))
    return column.cast(pa.large_string())


def _kind(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _text(column: Any, name: str) -> Any:
    try:
        return column.cast(pa.large_string())
    except pa.ArrowException:
        kind = str(column.type)
        raise InvalidInput(f"The column {name!r} holds {kind}: neither numbers nor text. Leave it out.") from None


def _word(word: str | None) -> str | None:
    """A word of a text column: None if it means a missing value, and "1" for "1.0", as for a number.

    Other text is unchanged: "0210" and "210", or "1.1" and "1.10", may have different meanings.
    """
    if word is None or word in MISSING:
        return None
    whole = _WHOLE.fullmatch(word)
    return whole[1] if whole else word


def _shortest(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1e16 else repr(float(value))


def _joined(chunks: Sequence[Any]) -> Any:
    """One array from several of one column; they are numbers only if all of them are."""
    whole = [pa.types.is_dictionary(c.type) and pa.types.is_integer(_kind(c.type)) for c in chunks]
    chunks = [c.dictionary_decode() if decode else c for c, decode in zip(chunks, whole, strict=True)]
    kinds = {_kind(c.type) for c in chunks}
    if len(kinds) == 1 and not any(pa.types.is_dictionary(c.type) for c in chunks):
        return pa.concat_arrays(chunks)
    batches = [Batch({"": c}, len(c)) for c in chunks]
    if all(b.is_number("") for b in batches):
        return pa.array(np.concatenate([b.numbers("") for b in batches]), from_pandas=True)
    return pc.dictionary_encode(pa.array(np.concatenate([b.words("") for b in batches]), type=pa.large_string()))
