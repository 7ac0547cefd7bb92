"""Reading logs: every format gives the same rows, and what cannot be read is refused with a reason."""

from __future__ import annotations

import gzip
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hushprice.errors import InvalidInput
from hushprice.fitting import Batch, Source

COLUMNS = ["price", "sold", "risk", "late"]


def log(rows: int = 1_000) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    price: list[float | None] = [round(float(p), 2) for p in rng.uniform(1, 3, rows)]
    risk: list[str | None] = [str(r) for r in rng.choice(["LOW", "HIGH"], rows)]
    price[3], risk[5] = None, None
    late = [bool(v) for v in rng.random(rows) < 0.5]
    return {"price": price, "sold": [int(v) for v in rng.integers(0, 2, rows)], "risk": risk, "late": late}


def csv_text(data: Mapping[str, Any], delimiter: str = ",") -> str:
    lines = [delimiter.join(data)]
    for row in zip(*data.values(), strict=True):
        lines.append(delimiter.join("" if v is None else str(v) for v in row))
    return "\n".join(lines) + "\n"


def folder(path: Path) -> Path:
    table = pa.table(log())
    (path / "logs").mkdir()
    pq.write_table(table.slice(0, 300), path / "logs" / "a.parquet")
    some = {k: v[300:] for k, v in log().items()}
    (path / "logs" / "b.csv").write_text(csv_text(some))
    (path / "logs" / ".hidden.csv").write_text("junk")
    (path / "logs" / "_SUCCESS").write_text("")
    (path / "logs" / "notes.md").write_text("not a log")
    return path / "logs"


def written(path: Path, how: str) -> Any:
    """The log in one of the formats."""
    data = log()
    if how == "parquet":
        pq.write_table(pa.table(data), path / "log.parquet", row_group_size=170)
        return path / "log.parquet"
    if how in ("csv", "csv.gz", "tsv"):
        text = csv_text(data, "\t" if how == "tsv" else ",").encode()
        (path / f"log.{how}").write_bytes(gzip.compress(text) if how == "csv.gz" else text)
        return str(path / f"log.{how}")
    makers: dict[str, Any] = {
        "folder": lambda: folder(path), "pandas": lambda: pd.DataFrame(data), "polars": lambda: pl.DataFrame(data),
        "arrow": lambda: pa.table(data), "mapping": lambda: data, "numpy": lambda: as_numpy(data),
    }  # fmt: skip
    return makers[how]()


def as_numpy(data: Mapping[str, Any]) -> dict[str, Any]:
    return {name: np.array(values, dtype=object) if name == "risk" else np.array(values, dtype=float)
            for name, values in data.items()}  # fmt: skip


@pytest.mark.parametrize(
    "how", ["csv", "csv.gz", "tsv", "parquet", "folder", "pandas", "polars", "arrow", "mapping", "numpy"]
)
def test_every_format_gives_the_same_rows(tmp_path: Path, how: str) -> None:
    source = Source.open(written(tmp_path, how))
    assert set(source.columns) == set(COLUMNS)
    assert Source.open(source) is source
    data = log()
    for batch in (source.read(COLUMNS), Batch.join(list(source.batches(COLUMNS, rows=64)))):
        assert batch.rows == 1_000
        np.testing.assert_array_equal(batch.numbers("price"), np.array(data["price"], dtype=float))
        np.testing.assert_array_equal(batch.numbers("sold"), data["sold"])
        np.testing.assert_array_equal(batch.numbers("late"), data["late"])
        assert batch.words("risk").tolist() == data["risk"]
        assert batch.is_number("price")
        assert batch.is_number("late")
        assert not batch.is_number("risk")
        assert batch.take(np.array([5, 2])).words("risk").tolist() == [None, data["risk"][2]]
    assert max(b.rows for b in source.batches(["price"], rows=64)) == 64


def test_words_of_numbers_are_short_and_missing_words_are_none() -> None:
    numbers, words = [1.0, 2.5, None, float("nan"), float("inf")], ["1.0", "NA", "", "x", "None"]
    batch = Source.open({"n": numbers, "t": words, "b": [True, None, True, None, False]}).read(["n", "t", "b"])
    assert batch.words("n").tolist() == ["1", "2.5", None, None, None]
    assert batch.words("t").tolist() == ["1", None, None, "x", None]
    assert batch.words("b").tolist() == ["1", None, "1", None, "0"]


def test_words_that_look_like_numbers_stay_apart() -> None:
    words = ["0210", "210", "210.0", "210.10", "+210", "9007199254740993", "-0", "-3.0"]
    expected = ["0210", "210", "210", "210.10", "+210", "9007199254740993", "-0", "-3"]
    assert Source.open({"t": words}).read(["t"]).words("t").tolist() == expected
    whole = pa.array([2**53, 2**53 + 1, None, -1])
    for column in (whole, whole.dictionary_encode()):
        listed = Source.open(pa.table({"n": column})).read(["n"]).words("n").tolist()
        assert listed == ["9007199254740992", "9007199254740993", None, "-1"]


def test_control_characters_in_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("price,a\x1b[31mb\n1,2\n")
    for log in (tmp_path / "log.csv", {"a\x9bb": [1.0]}):
        with pytest.raises(InvalidInput, match=r"control characters in its name, 'a\\x") as problem:
            Source.open(log)
        assert str(problem.value).isprintable()
    assert Source.open({"net\nprice": [1.0]}).columns == ("net\nprice",)


def test_text_that_spells_numbers_is_read_as_numbers() -> None:
    batch = Source.open({"p": ["1.5", "NA", "2e1"]}).read(["p"])
    np.testing.assert_array_equal(batch.numbers("p"), [1.5, np.nan, 20.0])
    with pytest.raises(InvalidInput, match="'cheap'"):
        Source.open({"p": ["1.5", "cheap"]}).read(["p"]).numbers("p")


@pytest.mark.parametrize("token", ["", "NA", "NaN", "nan", "null", "None"])
def test_missing_tokens_in_csv(tmp_path: Path, token: str) -> None:
    (tmp_path / "log.csv").write_text(f"p,risk\n1,{token}\n{token},HIGH\n")
    batch = Source.open(tmp_path / "log.csv").read(["p", "risk"])
    np.testing.assert_array_equal(batch.numbers("p"), [1.0, np.nan])
    assert batch.words("risk").tolist() == [None, "HIGH"]


def late_text(path: Path, *, first: str = "1") -> Path:
    """A column that is of one kind for far more than a block, and then of another."""
    lines = ["p,grade", *(f"2.5,{first}" for _ in range(700_000)), "2.5,B"]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_csv_column_that_turns_to_text_is_text_when_read_again(tmp_path: Path) -> None:
    source = Source.open(late_text(tmp_path / "log.csv"))
    with pytest.raises(InvalidInput, match=r"'grade' of log.csv begins with numbers, but has 'B'"):
        list(source.batches(["p", "grade"]))
    assert not source.read(["grade"]).is_number("grade")
    words = Source.open(tmp_path / "log.csv").read(["grade"]).words("grade")
    assert (words[0], words[-1]) == ("1", "B")


def test_a_csv_column_may_be_empty_or_whole_at_first(tmp_path: Path) -> None:
    lines = ["p,x", *("2," for _ in range(1_600_000)), "2.5,7"]
    (tmp_path / "log.csv").write_text("\n".join(lines) + "\n")
    batch = Source.open(tmp_path / "log.csv").read(["p", "x"])
    assert batch.numbers("p")[-1] == 2.5
    assert batch.numbers("x")[-1] == 7.0
    assert np.isnan(batch.numbers("x")[:-1]).all()


def test_quoted_commas_and_line_breaks(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text('p,note\n1,"a, b"\n2,"c\nd"\n')
    assert Source.open(tmp_path / "log.csv").read(["note"]).words("note").tolist() == ["a, b", "c\nd"]


def bad(path: Path, how: str) -> Any:
    """A log that cannot be read."""
    whole, zipped = csv_text(log(5_000)).encode(), gzip.compress(csv_text(log(5_000)).encode())
    pq.write_table(pa.table(log(5_000)), path / "good.parquet")
    parquet = (path / "good.parquet").read_bytes()
    middle = len(parquet) // 4
    (path / "empty-folder").mkdir()
    (path / "mixed").mkdir()
    (path / "mixed" / "a.csv").write_text("price,sold\n1,1\n")
    (path / "mixed" / "b.csv").write_text("cost,sold\n1,1\n")
    contents = {
        "empty.csv": b"", "header.csv": b"price,sold\n", "twice.csv": b"price,sold,price\n1,1,2\n",
        "short.csv.gz": zipped[: len(zipped) // 2], "short.parquet": parquet[: len(parquet) // 2],
        "broken.parquet": parquet[:middle] + b"\x00" * 400 + parquet[middle + 400 :],
        "ragged.csv": b"price,sold\n1,1\n1\n",
        "latin.csv": "price,sold\n1,é\n".encode("latin-1"),
        "head.csv": "price,é\n1,2\n".encode("latin-1"), "wide.csv": "price,sold\n1,1\n".encode("utf-16"),
        "log.xlsx": b"PK\x03\x04", "log.csv.zip": whole,
        "fake.parquet": whole,
    }  # fmt: skip
    for name, content in contents.items():
        (path / name).write_bytes(content)
    return path / how


BAD = {
    "empty.csv": "is empty", "header.csv": "has no rows", "twice.csv": "more than one column 'price'",
    "short.csv.gz": "cannot be read", "short.parquet": "cannot be read", "broken.parquet": "cannot be read",
    "ragged.csv": "cannot be read.*Expected 2 columns", "latin.csv": "is not UTF-8",
    "head.csv": "is not UTF-8", "wide.csv": "is not UTF-8", "log.xlsx": "not known",
    "log.csv.zip": "not known", "fake.parquet": "not a Parquet file", "absent.csv": "There is no log",
    "empty-folder": "no CSV or Parquet", "mixed": "b.csv has no column 'price', which a.csv has",
}  # fmt: skip


@pytest.mark.parametrize("how", list(BAD))
def test_what_cannot_be_read_is_refused(tmp_path: Path, how: str) -> None:
    path = bad(tmp_path, how)
    with pytest.raises(InvalidInput, match=BAD[how]):
        Source.open(path).read(["price", "sold"]).words("sold")


@pytest.mark.parametrize(
    ("value", "match"),
    [
        (7, "must be a path"),
        ({"a": [1, 2], "b": [1]}, "cannot be read as a table"),
        ({"a": [1, "x", object()]}, "cannot be read as a table"),
        (pl.LazyFrame({"a": [1]}), "must be a path"),
    ],
    ids=["number", "lengths", "objects", "lazy"],
)
def test_what_is_no_log_is_refused(value: Any, match: str) -> None:
    with pytest.raises(InvalidInput, match=match):
        Source.open(value)


def test_frames_with_repeated_names_are_refused() -> None:
    with pytest.raises(InvalidInput, match="a"):
        Source.open(pd.DataFrame([[1, 2]], columns=["a", "a"]))
    with pytest.raises(InvalidInput, match="more than one column 'a'"):
        Source.open(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]))


def test_an_unknown_column_is_refused_with_the_nearest(tmp_path: Path) -> None:
    source = Source.open(written(tmp_path, "csv"))
    with pytest.raises(InvalidInput, match=r"no column 'prise'. Did you mean 'price'\?"):
        source.read(["prise"])
    with pytest.raises(InvalidInput, match="no column 'sold'"):
        source.read(["price"]).numbers("sold")


def test_columns_that_are_neither_numbers_nor_text_are_refused() -> None:
    with pytest.raises(InvalidInput, match="neither numbers nor text"):
        Source.open(pa.table({"a": [[1, 2], [3]]})).read(["a"]).words("a")


def test_odd_types() -> None:
    table = pa.table(
        {
            "decimal": pa.array([1, 2]).cast(pa.decimal128(22, 2)),
            "small": pa.array([1, None], pa.int8()),
            "single": pa.array([0.5, None], pa.float32()),
            "category": pa.array(["x", None]).dictionary_encode(),
            "nothing": pa.nulls(2),
            "day": pa.array([0, 1], pa.date32()),
            "a.b": [1.0, 2.0],
        }
    )
    batch = Source.open(table).read(table.column_names)
    np.testing.assert_array_equal(batch.numbers("decimal"), [1.0, 2.0])
    np.testing.assert_array_equal(batch.numbers("small"), [1.0, np.nan])
    np.testing.assert_array_equal(batch.numbers("single"), [0.5, np.nan])
    assert batch.words("category").tolist() == ["x", None]
    assert np.isnan(batch.numbers("nothing")).all()
    assert batch.words("nothing").tolist() == [None, None]
    assert batch.words("day").tolist() == ["1970-01-01", "1970-01-02"]
    np.testing.assert_array_equal(batch.numbers("a.b"), [1.0, 2.0])


def test_parquet_columns_with_dots(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a.b": [1.0, 2.0], "a": ["x", None]}), tmp_path / "log.parquet")
    batch = Source.open(tmp_path / "log.parquet").read(["a.b", "a"])
    np.testing.assert_array_equal(batch.numbers("a.b"), [1.0, 2.0])
    assert batch.words("a").tolist() == ["x", None]


@pytest.mark.parametrize("how", ["csv", "csv.gz", "parquet"])
def test_a_file_that_changes_is_an_error(tmp_path: Path, how: str) -> None:
    path = Path(written(tmp_path, how))
    source = Source.open(path)
    batches = source.batches(["price"], rows=64)
    next(batches)
    facts = path.stat()
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))  # of the same size, and changed
    with pytest.raises(InvalidInput, match=f"log.{how} has changed since it was opened"):
        list(batches)
    with pytest.raises(InvalidInput, match="has changed since it was opened"):
        next(source.batches(["price"]))
    assert Source.open(path).read(["price"]).rows == 1_000


def test_a_file_gone_between_passes_is_an_error(tmp_path: Path) -> None:
    source = Source.open(written(tmp_path, "parquet"))
    (tmp_path / "log.parquet").unlink()
    with pytest.raises(InvalidInput, match="cannot be read"):
        source.read(["price"])


@pytest.mark.parametrize(
    "kind",
    [pl.String, pl.Categorical, pl.Enum(["LOW", "HIGH"]), "category"],
    ids=["text", "categorical", "enum", "pandas"],
)
def test_categories_of_frames(kind: Any, tmp_path: Path) -> None:
    risk = ["LOW", None, "HIGH", "LOW"]
    frame: Any = pd.DataFrame({"risk": pd.Categorical(risk)})
    if kind != "category":
        frame = pl.DataFrame({"risk": risk}, schema={"risk": kind})
    (frame.to_parquet if kind == "category" else frame.write_parquet)(tmp_path / "log.parquet")
    for log_ in (frame, tmp_path / "log.parquet"):
        batch = Source.open(log_).read(["risk"])
        assert batch.words("risk").tolist() == risk
        assert batch.take(np.array([True, False, True, False])).words("risk").tolist() == ["LOW", "HIGH"]
