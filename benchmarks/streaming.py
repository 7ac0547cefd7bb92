"""A fit streamed from Parquet next to glum's fit in memory: rows per second and peak memory, in one run.

``python -m benchmarks.streaming --rows 50000000``. Each measurement is a process of its own, so that its peak memory
is its own.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from benchmarks.common import Rows, report
from hushprice.arrays import Array

app = typer.Typer(add_completion=False)
NUMBERS = tuple(f"x{i}" for i in range(1, 7))
LEVELS = ("north", "east", "south", "west")
DIM = 1 + len(NUMBERS) + len(LEVELS) - 1
CHUNK = 1_000_000
GLUM_BYTES = 10 << 30  # what glum may hold
GLUM_ROW = 390  # bytes per row as measured: the design matrix, and what glum adds to it


def truth() -> Array:
    """(alpha, beta) for z = (1, x1, ..., x6, east, south, west) in raw units."""
    rng = np.random.default_rng(1)
    alpha = np.concatenate([[1.5], rng.uniform(-0.4, 0.4, DIM - 1)])
    beta = np.concatenate([[0.9], rng.uniform(-0.1, 0.1, DIM - 1)])
    return np.concatenate([alpha, beta])


def write(path: Path, rows: int) -> None:
    """Synthetic quotes with logistic demand, chunk by chunk."""
    theta = truth()
    unfinished = path.with_suffix(".part")
    writer: Any = None
    for chunk, start in enumerate(range(0, rows, CHUNK)):
        rng = np.random.default_rng([2, chunk])
        n = min(CHUNK, rows - start)
        numbers, level, price = rng.normal(size=(n, len(NUMBERS))), rng.integers(0, 4, n), rng.uniform(0.5, 4.0, n)
        z = np.hstack([np.ones((n, 1)), numbers, level[:, None] == np.arange(1, 4)])
        eta = z @ theta[:DIM] - price * (z @ theta[DIM:])
        sold = (rng.random(n) < 1.0 / (1.0 + np.exp(-eta))).astype(np.int8)
        columns: dict[str, Any] = {name: numbers[:, i] for i, name in enumerate(NUMBERS)}
        columns["region"] = pa.DictionaryArray.from_arrays(pa.array(level, pa.int8()), list(LEVELS))
        table = pa.table(columns | {"price": price, "sold": sold})
        writer = writer or pq.ParquetWriter(unfinished, table.schema)
        writer.write_table(table)
    writer.close()
    unfinished.rename(path)


def ours(path: Path) -> dict[str, Any]:
    """Survey and fit, streamed."""
    from hushprice.fitting import Design, stream_fit, survey

    _warm(path)
    began = time.perf_counter()
    survey_result = survey(path, price="price", outcome="sold", features=[*NUMBERS, "region"])
    surveyed = time.perf_counter()
    fit = stream_fit(Design.of(survey_result), "logistic")
    ended = time.perf_counter()
    names = survey_result.encoding.names
    order = [0, *(names.index(name) for name in NUMBERS)]
    wrong = [_raw(survey_result.encoding, fit.theta[half], fit.covariance[half, half], order) for half in _halves(fit)]
    theta = truth()
    numbers = np.concatenate([1 + np.arange(len(NUMBERS)), DIM + 1 + np.arange(len(NUMBERS))])
    slopes, errors = (np.concatenate([w[k][1:] for w in wrong]) for k in (0, 1))
    return {
        "seconds": ended - began,
        "survey seconds": surveyed - began,
        "fit seconds": ended - surveyed,
        "passes": fit.passes,
        "largest error in standard errors": float(np.abs((slopes - theta[numbers]) / errors).max()),
        "rows": survey_result.rows,
    }


def _warm(path: Path) -> None:
    """Compile, or load what was compiled, on a few rows."""
    from hushprice.fitting import Design, Source, stream_fit, survey

    few = next(Source.open(path).batches([*NUMBERS, "region", "price", "sold"], rows=5_000))
    log = pa.table(dict(few.data))
    stream_fit(Design.of(survey(log, price="price", outcome="sold", features=[*NUMBERS, "region"])), "logistic")


def _halves(fit: Any) -> tuple[slice, slice]:
    d = fit.theta.size // 2
    return slice(0, d), slice(d, 2 * d)


def _raw(encoding: Any, theta: Array, covariance: Array, order: list[int]) -> tuple[Array, Array]:
    """Coefficients of the numbers in raw units, and their standard errors."""
    sd = np.array([1.0, *(f.sd for f in encoding.features if f.name in NUMBERS)])
    return theta[order] / sd, np.sqrt(np.diag(covariance)[order]) / sd


def glums(path: Path) -> dict[str, Any]:
    """glum in memory, on as many rows as fit, with the design (z, -p z) as one array in Fortran order."""
    from glum import GeneralizedLinearRegressor

    began = time.perf_counter()
    file = pq.ParquetFile(path)
    rows = min(file.metadata.num_rows, GLUM_BYTES // GLUM_ROW)
    x, y, start = np.empty((rows, 2 * DIM), order="F"), np.empty(rows), 0
    for batch in file.iter_batches(batch_size=CHUNK):
        n = min(batch.num_rows, rows - start)
        some, part = batch.slice(0, n), slice(start, start + n)
        x[part, 0] = 1.0
        for i, name in enumerate(NUMBERS):
            x[part, 1 + i] = some.column(name).to_numpy(zero_copy_only=False)
        level = some.column("region").indices.to_numpy(zero_copy_only=False)
        for i in range(1, 4):
            x[part, len(NUMBERS) + i] = level == i
        x[part, DIM:] = -some.column("price").to_numpy(zero_copy_only=False)[:, None] * x[part, :DIM]
        y[part] = some.column("sold").to_numpy(zero_copy_only=False)
        start += n
        if start == rows:
            break
    loaded = time.perf_counter()
    # A tolerance that leaves about a hundredth of a standard error; a smaller one it may never reach on so many rows.
    model = GeneralizedLinearRegressor(family="binomial", alpha=0, fit_intercept=False, gradient_tol=1e-6)
    model.fit(x, y)
    ended = time.perf_counter()
    return {
        "seconds": ended - began,
        "load seconds": loaded - began,
        "fit seconds": ended - loaded,
        "passes": int(model.n_iter_),
        "rows": rows,
    }


def _measured(what: str, path: Path) -> dict[str, Any]:
    """Run one measurement in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.streaming", "--measure", what, "--path", str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def streaming(rows: int = 2_000_000, path: Path | None = None) -> None:
    """Rows per second and peak memory of a streamed fit, next to glum's in memory."""
    where = path or Path(tempfile.gettempdir()) / f"hushprice-streaming-{rows}.parquet"
    if not where.exists():
        began = time.perf_counter()
        write(where, rows)
        print(f"wrote {where}, {where.stat().st_size / 2**30:.2f} GiB, in {time.perf_counter() - began:.0f} s")
    mine, theirs = _measured("ours", where), _measured("glum", where)
    table: Rows = []
    for name, figures, whole in (
        ("hushprice, streamed: survey and fit", mine, mine["seconds"]),
        ("hushprice, the fit alone", mine, mine["fit seconds"]),
        ("glum, in memory: load and fit", theirs, theirs["seconds"]),
        ("glum, the fit alone", theirs, theirs["fit seconds"]),
    ):
        table.append(
            {
                "what": name,
                "rows": f"{figures['rows']:,}",
                "seconds": float(whole),
                "rows/s": f"{figures['rows'] / whole:,.0f}",
                "passes": figures["passes"],
                "rows/s per pass of the fit": f"{figures['rows'] * figures['passes'] / figures['fit seconds']:,.0f}",
                "peak MiB": figures["peak"],
            }
        )
    report("streaming", f"Logistic demand, {2 * DIM} coefficients, Parquet of {mine['rows']:,} rows", table)
    pace = mine["rows"] / mine["seconds"]
    print(
        f"Largest error of a slope: {mine['largest error in standard errors']:.2f} standard errors. "
        f"Rows per second, survey and fit, are {pace / (theirs['rows'] / theirs['seconds']):.2f} times glum's with "
        f"loading and {pace / (theirs['rows'] / theirs['fit seconds']):.2f} times glum's fit alone; memory per row is "
        f"{mine['peak'] / mine['rows'] / (theirs['peak'] / theirs['rows']):.3f} times glum's."
    )


@app.command()
def _main(
    rows: Annotated[int, typer.Option(help="Rows of the synthetic log.")] = 2_000_000,
    path: Annotated[Path | None, typer.Option(help="Where the log is, or will be.")] = None,
    measure: Annotated[str, typer.Option(hidden=True)] = "",
) -> None:
    """Measure, or with --measure be the process that is measured."""
    if not measure or path is None:
        streaming(rows, path)
        return
    figures = {"ours": ours, "glum": glums}[measure](path)
    figures["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(figures))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    app()
