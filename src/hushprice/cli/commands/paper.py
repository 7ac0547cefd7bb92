"""``hushprice paper list | run | report``: the paper's figures and tables, each published number with ours."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hushprice import plots
from hushprice.cli.options import AsCsv, AsJson, Engine, Workers
from hushprice.cli.output import Output
from hushprice.cli.study_progress import (
    Estimate,
    Most,
    Out,
    StoreFolder,
    check_where,
    complete,
    compute,
    folder,
    tell_damage,
    write_rows,
    write_text,
)
from hushprice.errors import InvalidInput
from hushprice.files import without_nan
from hushprice.markets.autoloan.standin import ROWS
from hushprice.paper import Made, Paper, report
from hushprice.plots import duration
from hushprice.plots.page import TONES
from hushprice.simulation import csv_text
from hushprice.studies import Cell, Remaining, Store, cell_rows, outstanding, path_rows, processes, results

app = typer.Typer(no_args_is_help=True, help="Reproduce the paper's figures and tables.", rich_markup_mode="rich")
VERDICT_COLOURS = {
    word: colour for tone, colour in (("good", "green"), ("near", "yellow"), ("bad", "red")) for word in TONES[tone]
}


class Scale(StrEnum):
    """How much of it."""

    quick = "quick"
    full = "full"


Names = Annotated[list[str], typer.Argument(help="Figures and tables, as in `hushprice paper list`, or all.")]
ScaleOption = Annotated[
    Scale, typer.Option("--scale", help="quick: all in a quarter of an hour. full: the paper's 500 replications.")
]
LoanFile = Annotated[
    Path | None,
    typer.Option("--loan-file", help="The real auto loan file (CSV).", show_default="a synthetic stand-in"),
]
OUT = Path("hushprice-results")


@app.command(name="list")
def list_command(json: AsJson = False) -> None:
    """Name every figure and table of the paper's numerical sections.

    Example: hushprice paper list
    """
    paper = Paper()
    if json:
        rows = [{"name": i.name, "where": i.where, "title": i.title} for i in paper.items.values()]
        typer.echo(json_module.dumps(rows, indent=2))
        return
    table = Table(show_header=True, box=None)
    for heading in ("name", "in the paper", "what it shows"):
        table.add_column(heading)
    for item in paper.items.values():
        table.add_row(f"[bold]{item.name}[/bold]", escape(item.where), escape(item.title))
    console = Console()
    console.print(table)
    console.print("\nMake one with: hushprice paper run etc-s1     all of them with: hushprice paper run all")


@app.command()
def run(
    names: Names,
    scale: ScaleOption = Scale.quick,
    replications: Most = None,
    out: Out = OUT,
    store: StoreFolder = None,
    loan_file: LoanFile = None,
    workers: Workers = -1,
    engine: Engine = None,
    estimate: Estimate = False,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Make figures and tables: pictures, CSV files, and a verdict on every published number.

    Example: hushprice paper run etc-s1 unknown-table --scale quick
    """
    output = Output.choose(json, csv)
    check_where(workers, engine)
    paper = Paper(scale=scale.value, loan_file=loan_file, replications=replications)
    items = paper.chosen(names)
    cells = paper.cells(*items)
    place = folder(out / f"paper-{scale.value}")
    results_store = Store(store or out / "store")
    console = Console(stderr=output is not Output.TABLE)
    if cells:
        compute(console, cells, results_store, workers=workers, engine=engine, estimate=estimate)
    if estimate:
        _tell_costs(console, paper, names, results_store, workers)
        return
    by_key = {cell.key: result for cell, result in complete(cells, results(cells, results_store))}
    made = [paper.make(item, [(cell, by_key[cell.key]) for cell in paper.cells(item)]) for item in items]
    for one in made:
        _write(one, place)
    verdicts = [verdict for one in made for verdict in one.verdicts]
    if output is Output.JSON:
        typer.echo(json_module.dumps(without_nan([verdict.row() for verdict in verdicts]), indent=2))
    elif output is Output.CSV:
        typer.echo(csv_text([verdict.row() for verdict in verdicts]), nl=False)
    else:
        _show(console, paper, made)
    if loan_file is not None and len(paper.loans.z) != ROWS:
        console.print(f"{len(paper.loans.z):,} rows: this is not the file of the paper, which has {ROWS:,}.")
    if any(paper.synthetic(item) for item in items):
        console.print("Auto loans: [bold]synthetic stand-in[/bold], not the real file (--loan-file).")
    console.print(f"Pictures and tables are in [bold]{escape(str(place))}/[/bold].")


@app.command(name="report")
def report_command(
    names: Annotated[list[str], typer.Argument(help="Figures and tables; all unless named.", show_default=False)] = [],  # noqa: B006
    scale: ScaleOption = Scale.quick,
    replications: Most = None,
    out: Out = OUT,
    store: StoreFolder = None,
    loan_file: LoanFile = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Write README.md with pictures and CSV files instead.")
    ] = False,
) -> None:
    """Write one HTML page of what has been run: pictures, verdicts, costs, and where and why we differ.

    Cells that are missing are left out, those begun are shown with the replications there are, from two on; the page
    says so.

    Example: hushprice paper report --scale quick
    """
    paper = Paper(scale=scale.value, loan_file=loan_file, replications=replications)
    items = paper.chosen(names or ["all"])
    where = store or out / "store"
    if not where.is_dir():
        raise InvalidInput(
            f"There are no results in {where}: run `hushprice paper run all --scale {scale.value}` first."
        )
    place = folder(out / f"paper-{scale.value}")
    results_store = Store(where)
    by_key = {cell.key: result for cell, result in results(paper.cells(*items), results_store, partial=True)}
    made = [
        paper.make(item, [(cell, by_key[cell.key]) for cell in paper.cells(item) if cell.key in by_key], partial=True)
        for item in items
    ]
    command = " ".join(["hushprice paper run", *(names or ["all"]), "--scale", scale.value])
    command += "" if replications is None else f" --replications {replications}"
    command += "" if loan_file is None else f" --loan-file {loan_file.name}"
    document = report(paper, made, results_store, command=command)
    target = place / ("README.md" if markdown else "report.html")
    write_text(target, document.markdown() if markdown else document.html())
    if markdown:
        for one in made:
            _write(one, place, brief=True)
    console = Console()
    tell_damage(console, results_store)
    missing = [one.item.name for one in made if not one.finished]
    if missing:
        console.print(f"[yellow]Not all there yet: {', '.join(missing)}.[/yellow]", highlight=False)
    console.print(f"The report is [bold]{escape(str(target))}[/bold].")


def _write(one: Made, place: Path, *, brief: bool = False) -> None:
    """Pictures and CSV files of an item; brief: small pictures, no paths."""
    for name, figure in one.pictures.items():
        plots.save(figure, place / f"{name}.png", dpi=100 if brief else 160)
    name = one.item.name
    rows = cell_rows(one.cell_results) or [dict(row) for table in one.tables for row in table.rows]
    write_rows(place / f"{name}.csv", rows)
    if not brief:
        write_rows(place / f"{name}-paths.csv", path_rows(one.cell_results))
    write_rows(place / f"{name}-verdicts.csv", [verdict.row() for verdict in one.verdicts])


def _show(console: Console, paper: Paper, made: Sequence[Made]) -> None:
    """Verdicts as a table, item by item."""
    table = Table(title="Published numbers and ours", title_justify="left")
    table.add_column("what", overflow="fold")
    for heading in ("ours", "paper", "in se", "in %", "n"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    for one in made:
        if one.verdicts:
            made_up = " (synthetic stand-in)" if paper.synthetic(one.item) else ""
            table.add_row(f"[bold]{one.item.name}{made_up}[/bold]", *[""] * 6)
        for i, verdict in enumerate(one.verdicts, 1):
            tone = VERDICT_COLOURS.get(verdict.verdict, "default")
            word = verdict.why if verdict.verdict in ("faster", "slower") else verdict.verdict
            table.add_row(
                verdict.what,
                verdict.ours,
                verdict.paper,
                "" if verdict.z is None else f"{verdict.z:+.1f}",
                "" if verdict.percent is None else f"{verdict.percent:+.1f}",
                "" if verdict.replications is None else str(verdict.replications),
                f"[{tone}]{word}[/{tone}]",
                end_section=i == len(one.verdicts),
            )
    console.print(table)
    for one in made:
        for verdict in one.verdicts:
            if verdict.verdict in TONES["bad"] and verdict.why:
                console.print(f"[bold]{one.item.name}, {escape(verdict.what)}:[/bold] {escape(verdict.why)}")


def _tell_costs(console: Console, paper: Paper, names: Sequence[str], store: Store, workers: int) -> None:
    """Print the total and the remaining time of each item on the cores of this machine."""
    table = Table(title=f"On {processes(workers)} processes, scale {paper.scale}", title_justify="left")
    for heading in ("item", "cells", "replications", "in all", "left"):
        table.add_column(heading, justify="left" if heading == "item" else "right")
    all_costs: dict[str, tuple[float, float]] = {}
    for item in paper.chosen(names):
        cells = paper.cells(item)
        if not cells:
            continue
        costs = _costs(cells, outstanding(cells, store), workers)
        all_costs |= costs
        whole, rest = (sum(pair[k] for pair in costs.values()) for k in (0, 1))
        count = sum(cell.replications for cell in cells)
        table.add_row(item.name, str(len(cells)), f"{count:,}", duration(whole), duration(rest))
    whole, rest = (sum(pair[k] for pair in all_costs.values()) for k in (0, 1))
    table.add_row("together, shared cells once", str(len(all_costs)), "", duration(whole), duration(rest), style="bold")
    console.print(table)


def _costs(cells: Sequence[Cell], remaining: Sequence[Remaining], workers: int) -> dict[str, tuple[float, float]]:
    """(total seconds, remaining seconds) of each cell, by its address."""
    by_key = {item.cell.key: item for item in remaining}
    many = processes(workers)
    return {
        cell.key: (cell.replications * by_key[cell.key].seconds / many, by_key[cell.key].cost / many) for cell in cells
    }
