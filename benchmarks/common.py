"""What the benchmarks share: policies as in the paper, tables printed and stored."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

import hushprice as hp
from hushprice.paper import Paper

console = Console(width=150)
OUT = Path("hushprice-bench")

Workers = Annotated[int, typer.Option(help="Processes; -1 for all cores.")]
Count = Annotated[int, typer.Option(help="Replications a cell.")]
Rows = list[dict[str, Any]]


def build(name: str, dim: int, **options: Any) -> hp.policies.Policy:
    return hp.policies.build(name, family="logistic", dim=dim, prices=(0, 3), **options)


def published(item: str, what: str) -> float:
    """A number of the paper."""
    return next(float(e["paper"]) for e in Paper().numbers if (e["item"], e["what"]) == (item, what))


def report(name: str, title: str, rows: Rows, *, stored: Rows | None = None) -> None:
    """Print rows as a table and store them, or all of ``stored``, as CSV."""
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column, justify="left" if isinstance(rows[0][column], str) else "right")
    for row in rows:
        table.add_row(*(f"{v:.4g}" if isinstance(v, float) and abs(v) < 10 else _plain(v) for v in row.values()))
    console.print(table)
    OUT.mkdir(exist_ok=True)
    with (OUT / f"{name}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows if stored is None else stored)


def _plain(value: Any) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else str(value)
