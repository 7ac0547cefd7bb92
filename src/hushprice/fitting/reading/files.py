"""Read log files in bounded memory: CSV, gzipped CSV and Parquet."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from hushprice.errors import InvalidInput
from hushprice.fitting.reading.source import MISSING, Part, TurnedText, require_single

BLOCK = 4 << 20  # bytes of CSV read at a time
BUFFER = 1 << 18  # bytes of each Parquet column read at a time
_CSV = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".txt", ".txt.gz")
_PARQUET = (".parquet", ".pq")
_UNFIT = re.compile(r"CSV column #(\d+).*conversion error to (\S+): invalid value '(.*)'", re.DOTALL)
_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def parts(path: Path) -> tuple[Part, ...]:
    """The files of a path, in the order of their names."""
    if path.is_dir():
        matches = sorted(p for p in path.rglob("*") if p.is_file() and _is_log(p, path))
        if not matches:
            raise InvalidInput(f"The folder {path} has no CSV or Parquet files.")
        return tuple(_part(p) for p in matches)
    if not path.is_file():
        raise InvalidInput(f"There is no log {path}.")
    return (_part(path),)


def _is_log(path: Path, folder: Path) -> bool:
    hidden = any(step.startswith((".", "_")) for step in path.relative_to(folder).parts)
    return not hidden and path.name.lower().endswith(_CSV + _PARQUET)


def _part(path: Path) -> Part:
    """The part for a file; its content decides the format, then its name."""
    with _reading(path), path.open("rb") as file:
        head = file.read(4)
    if not head:
        raise InvalidInput(f"{path} is empty.")
    if head == b"PAR1":
        return ParquetPart.open(path)
    if path.name.lower().endswith(_PARQUET):
        raise InvalidInput(f"{path} is not a Parquet file, or a damaged one.")
    if head[:2] == b"\x1f\x8b" or path.name.lower().endswith(_CSV):
        return CsvPart.open(path, zipped=head[:2] == b"\x1f\x8b")
    raise InvalidInput(f"{path} is in a format that is not known here. Known: {', '.join(_CSV + _PARQUET)}.")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeError) as problem:
        reason = str(problem).splitlines()[0][:300] if str(problem) else type(problem).__name__
        if isinstance(problem, UnicodeError) or "UTF8" in reason:
            raise not_utf8(path) from None
        raise InvalidInput(f"{path} cannot be read: {reason.rstrip('.')}. Is the file complete?") from None


def not_utf8(path: Path) -> InvalidInput:
    return InvalidInput(f"{path} is not UTF-8. Save it as UTF-8 text.")


Stamp = tuple[int, int, int]


def _stamp(path: Path) -> Stamp:
    """Inode, size and modification time, which change when a file is rewritten."""
    with _reading(path):
        facts = path.stat()
    return facts.st_ino, facts.st_size, facts.st_mtime_ns


@contextmanager
def _same(path: Path, stamp: Stamp) -> Iterator[None]:
    """Raise if a file has changed since it was opened, before or after a pass: each pass must read the same rows."""
    for end in (False, True):
        if _stamp(path) != stamp:
            raise InvalidInput(f"{path} has changed since it was opened. Take a copy that nobody writes to.")
        if not end:
            yield


@dataclass(frozen=True, eq=False)
class TablePart:
    """A table in memory."""

    name: str
    table: Any

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.table.column_names)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[dict[str, Any]]:
        table = self.table.select(list(columns))
        for start in range(0, table.num_rows, rows):
            some = table.slice(start, rows)
            yield {name: _one(some.column(name)) for name in columns}


@dataclass(frozen=True, eq=False)
class ParquetPart:
    """A Parquet file. Columns are read through a buffer, so that memory does not grow with row groups."""

    name: str
    path: Path
    columns: tuple[str, ...]
    texts: tuple[str, ...]
    stamp: Stamp

    @classmethod
    def open(cls, path: Path) -> ParquetPart:
        stamp = _stamp(path)
        with _reading(path), pq.ParquetFile(path) as file:
            schema = file.schema_arrow
        texts = [f.name for f in schema if pa.types.is_string(f.type) or pa.types.is_large_string(f.type)]
        return cls(path.name, path, tuple(schema.names), tuple(texts), stamp)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[dict[str, Any]]:
        texts = [name for name in columns if name in self.texts]
        with (
            _same(self.path, self.stamp),
            _reading(self.path),
            pq.ParquetFile(self.path, buffer_size=BUFFER, pre_buffer=False, read_dictionary=texts) as file,
        ):
            for batch in file.iter_batches(batch_size=rows, columns=list(columns), use_threads=True):
                yield {name: batch.column(name) for name in columns}


@dataclass(frozen=True, eq=False)
class CsvPart:
    """A CSV file, gzipped or not. A column has the type of its first block until a later value contradicts it."""

    name: str
    path: Path
    zipped: bool
    delimiter: str
    stamp: Stamp
    types: dict[str, Any] = field(repr=False)

    @classmethod
    def open(cls, path: Path, *, zipped: bool) -> CsvPart:
        part = cls(path.name, path, zipped, ",", _stamp(path), {})
        with _reading(path):
            with part._stream() as stream:
                start = stream.read(1 << 16)
            if b"\0" in start:  # as in UTF-16
                raise not_utf8(path)
            head = start.decode("utf-8", errors="replace").split("\n", 1)[0]
            counts = {mark: head.count(mark) for mark in (",", ";", "\t")}
            part = replace(part, delimiter=max(counts, key=lambda mark: counts[mark]))
            with part._stream() as stream, part._reader(stream, csv.ConvertOptions(**_NULLS)) as reader:
                names, types = reader.schema.names, reader.schema.types
        require_single(part.name, names)
        part.types.update(zip(names, map(_csv_type, types), strict=True))
        return part

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.types)

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[dict[str, Any]]:
        options = csv.ConvertOptions(
            include_columns=list(columns), column_types={name: self.types[name] for name in columns}, **_NULLS
        )
        with _same(self.path, self.stamp), _reading(self.path):
            try:
                with self._stream() as stream, self._reader(stream, options) as reader:
                    for batch in reader:
                        for start in range(0, batch.num_rows, rows):
                            some = batch.slice(start, rows)
                            yield {name: some.column(name) for name in columns}
            except pa.ArrowInvalid as problem:
                unfit = _UNFIT.search(str(problem))
                if unfit is None:
                    raise
                self._turn(self.columns[int(unfit[1])], unfit[3])

    def _turn(self, name: str, value: str) -> None:
        """Read a column as text from now on, and raise TurnedText so that the current reader starts again."""
        text = f"The column {name!r} of {self.name} begins with numbers, but has {value[:40]!r} further on."
        if self.types[name] == _DICTIONARY:
            raise InvalidInput(text)
        self.types[name] = _DICTIONARY
        raise TurnedText(text)

    def _stream(self) -> Any:
        return pa.input_stream(str(self.path), compression="gzip" if self.zipped else None)

    def _reader(self, stream: Any, options: Any) -> Any:
        return csv.open_csv(
            stream,
            read_options=csv.ReadOptions(block_size=BLOCK),
            parse_options=csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=True),
            convert_options=options,
        )


_NULLS: dict[str, Any] = {"null_values": list(MISSING), "strings_can_be_null": True}


def _csv_type(kind: Any) -> Any:
    """The type to read a column as: bool, float (also for a column without values so far) or text."""
    if pa.types.is_boolean(kind):
        return kind
    number = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind)
    return pa.float64() if number else _DICTIONARY


def _one(column: Any) -> Any:
    """A chunked column as one array."""
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
