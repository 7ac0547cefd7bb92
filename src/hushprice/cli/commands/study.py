"""``hushprice study FILE``: a study of one's own, as data."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hushprice import plots
from hushprice.cli.options import AsCsv, AsJson, Engine, Load, Workers
from hushprice.cli.output import Output, amount
from hushprice.cli.study_progress import (
    Estimate,
    Most,
    Out,
    StoreFolder,
    check_where,
    complete,
    compute,
    folder,
    write_rows,
)
from hushprice.errors import InvalidInput
from hushprice.files import without_nan
from hushprice.simulation import csv_text
from hushprice.studies import Store, Study, cell_rows, check_drawable, draw, path_rows, results
from hushprice.studies.spec import check_name
from hushprice.studies.spec_strings import load_policies


def study(
    file: Annotated[Path, typer.Argument(help="A TOML file with runs and pictures; see docs/studies.md.")],
    scale: Annotated[str | None, typer.Option("--scale", help="A scale that the file names.")] = None,
    replications: Most = None,
    out: Out = Path("hushprice-results"),
    store: StoreFolder = None,
    workers: Workers = -1,
    engine: Engine = None,
    load: Load = None,
    estimate: Estimate = False,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Run a study of your own: policies over a grid, from one short file. What is done is kept and not done again.

    Example: hushprice study my_study.toml --estimate
    """
    output = Output.choose(json, csv)
    check_where(workers, engine)
    if file.stem == "store" or file.stem.startswith("paper-"):
        raise InvalidInput(f"A study cannot be called {file.stem}: that folder is taken. Give the file another name.")
    load_policies(load)
    plan = Study.read(file, scale=scale).limited(replications)
    check_name(f"The study {file.name}", file.stem)
    cells = plan.cells()
    for picture in plan.pictures.values():
        check_drawable(picture, cells)
    place = folder(out / (file.stem if scale is None else f"{file.stem}-{scale}"))
    results_store = Store(store or out / "store")
    console = Console(stderr=output is not Output.TABLE)
    compute(console, cells, results_store, workers=workers, engine=engine, estimate=estimate)
    if estimate:
        return
    cell_results = complete(cells, results(cells, results_store))
    rows = cell_rows(cell_results)
    write_rows(place / "cells.csv", rows)
    write_rows(place / "paths.csv", path_rows(cell_results))
    for name, picture in plan.pictures.items():
        drawn = draw(picture, cell_results)
        if drawn is not None:
            plots.save(drawn, place / f"{name}.png")
    if output is Output.JSON:
        typer.echo(json_module.dumps(without_nan(rows), indent=2))
    elif output is Output.CSV:
        typer.echo(csv_text(rows), nl=False)
    else:
        console.print(_table(plan.title, rows))
    console.print(f"Pictures and tables are in [bold]{escape(str(place))}/[/bold].")


def _table(title: str, rows: list[dict[str, object]]) -> Table:
    table = Table(title=escape(title), title_justify="left")
    for heading in ("run", "market", "policy"):
        table.add_column(heading, overflow="fold")
    for heading in ("d", "T", "runs", "regret", "se", "ms/run"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        mean, se, seconds = (float(str(row[name])) for name in ("mean", "se", "seconds"))
        table.add_row(
            *(escape(str(row[name])) for name in ("run", "market", "label")), str(row["d"]), f"{row['T']:,}",
            str(row["replications"]), amount(mean), amount(se) if se == se else "", f"{1e3 * seconds:,.1f}",
        )  # fmt: skip
    return table
