"""Compute the cells of a study at the terminal: an estimate first, then progress with the remaining time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from hushprice.demand import Rules
from hushprice.errors import HushpriceError, InvalidInput
from hushprice.plots import duration
from hushprice.simulation import check_engine, csv_text, workers_of
from hushprice.studies import Cell, CellResults, Store, execute, outstanding, pilots, processes

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder for pictures and tables.")]
StoreFolder = Annotated[
    Path | None,
    typer.Option("--store", help="Folder where results are kept and found again.", show_default="OUT/store"),
]
Estimate = Annotated[bool, typer.Option("--estimate", help="Only say how long it will take.")]
Most = Annotated[
    int | None, typer.Option("--replications", "-n", help="At most so many replications a cell.", show_default="all")
]


def names_of(option: str, text: str | None) -> list[str]:
    """Names from ``a,b,c``.

    >>> names_of("--features", "risk, age")
    ['risk', 'age']
    """
    words = [word.strip() for word in (text or "").split(",")] if text else []
    if not all(words):
        raise InvalidInput(f"{option} takes names with commas between them and no gaps, as a,b,c; got {text!r}.")
    return words


def number_or_column(text: str) -> float | str:
    """A number if it is one, or else the name of a column."""
    try:
        return float(text)
    except ValueError:
        return text


def rules_from(file: Path | None) -> Rules | None:
    """Business rules from a file; None without one."""
    return None if file is None else Rules.read(file)


def check_where(workers: int, engine: str | None) -> None:
    """Check the workers and the engine before any work."""
    workers_of(workers)
    check_engine(engine)


def folder(path: Path) -> Path:
    """A folder for output, created if necessary."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise InvalidInput(f"The folder {path} cannot be made: {problem.strerror}. Pass another with --out.") from None
    return path


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as CSV; without rows, remove an existing file."""
    if rows:
        write_text(path, csv_text(rows))
    else:
        path.unlink(missing_ok=True)


def complete(cells: Sequence[Cell], cell_results: CellResults) -> CellResults:
    """The results; raises if a cell is missing, as files may have been removed in the meantime."""
    if len(cell_results) < len(cells):
        raise HushpriceError(
            f"{len(cells) - len(cell_results)} of {len(cells)} cells are missing. Run the same command again."
        )
    return cell_results


def write_text(path: Path, text: str) -> None:
    """Write a text file; raises HushpriceError if that fails."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as problem:
        raise HushpriceError(f"{path} cannot be written: {problem.strerror}.") from problem


def compute(
    console: Console, cells: Sequence[Cell], store: Store, *, workers: int, engine: str | None, estimate: bool = False
) -> None:
    """Compute the missing replications of cells, or with ``estimate`` only print the estimated time."""
    remaining = [item for item in outstanding(cells, store) if item.missing]
    tell_damage(console, store)
    if not remaining:
        console.print("Everything is there already: nothing to compute.", highlight=False)
        return
    try:
        if first := pilots(remaining):
            with _bar(console, "timing one replication of each", len(first), float(len(first))) as advance:
                execute(first, store, workers=workers, engine=engine, progress=lambda n, _: advance(n, float(n)))
            remaining = [item for item in outstanding(cells, store) if item.missing]
        count, cost = sum(len(item.missing) for item in remaining), sum(item.cost for item in remaining)
        where = "of computing, on a cluster" if engine else f"on {processes(workers)} idle cores"
        done = sum(cell.replications for cell in {cell.key: cell for cell in cells}.values()) - count
        wall = cost if engine else cost / processes(workers)
        console.print(
            f"{count:,} replications of {len(remaining)} cells to do ({done:,} done): about {duration(wall)} {where}.",
            highlight=False,
        )
        if not estimate and remaining:
            with _bar(console, "simulating", count, cost) as advance:
                execute(remaining, store, workers=workers, engine=engine, progress=advance)
    except KeyboardInterrupt:
        console.print(
            f"\nStopped. What was done is kept in {escape(str(store.folder))}: the same command goes on from there."
        )
        raise typer.Exit(130) from None


def tell_damage(console: Console, store: Store) -> None:
    """Print the names of unreadable files."""
    for file in store.damaged:
        console.print(
            f"[yellow]{escape(str(file))} is damaged; what it held is computed again.[/yellow]", highlight=False
        )


@contextmanager
def _bar(console: Console, doing: str, count: int, cost: float) -> Iterator[Callable[[int, float], None]]:
    """A progress bar over seconds of computing, with finished replications and the remaining time."""
    columns = (
        TextColumn(doing),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[done]:,} of {task.fields[count]:,} replications"),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task("", total=cost, done=0, count=count)
        done = 0

        def advance(n: int, seconds: float) -> None:
            nonlocal done
            done += n
            bar.update(task, advance=seconds, done=done)

        yield advance
