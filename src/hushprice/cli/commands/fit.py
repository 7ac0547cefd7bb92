"""``hushprice fit LOG``: from a log of past quotes to a demand model."""

from __future__ import annotations

import json as json_module
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from hushprice import plots
from hushprice.cli.family_option import FAMILY_NAMES
from hushprice.cli.options import AsCsv, AsJson
from hushprice.cli.output import Output, show_findings
from hushprice.cli.study_progress import names_of
from hushprice.errors import MissingOption
from hushprice.files import check_target as check_file
from hushprice.fitting import DemandModel, Report, Segment, Source
from hushprice.fitting import fit as fit_log
from hushprice.fitting.model_file import check_target, plain
from hushprice.plots import demand as pictures
from hushprice.plots.page import number
from hushprice.simulation import csv_text


def fit(
    log: Annotated[Path, typer.Argument(help="A CSV (also .csv.gz) or Parquet file, or a folder of them.")],
    price: Annotated[str | None, typer.Option("--price", help="Column of the price quoted.")] = None,
    outcome: Annotated[
        str | None, typer.Option("--outcome", help="Column of what was bought: 0 or 1, units, or an amount.")
    ] = None,
    features: Annotated[
        str | None, typer.Option("--features", help="Columns known before the price was set, as age,risk; or none.")
    ] = None,
    family: Annotated[
        str,
        typer.Option("--family", help=f"Demand: {FAMILY_NAMES}; or auto for what fits the outcome."),
    ] = "auto",
    weights: Annotated[
        str | None,
        typer.Option("--weights", help="Column of weights, which count like repeated rows, in standard errors too."),
    ] = None,
    categories: Annotated[
        str | None, typer.Option("--categories", help="Features whose numbers stand for categories, as wave,region.")
    ] = None,
    sensitivity: Annotated[
        str, typer.Option("--sensitivity", help="Features that change the price sensitivity: all, none, or a list.")
    ] = "all",
    segment: Annotated[
        str | None,
        typer.Option("--segment", help="Column to tell elasticities by.", show_default="the first category"),
    ] = None,
    prices: Annotated[
        tuple[float, float] | None,
        typer.Option("--prices", help="Lowest and highest price that may be set.", show_default="those seen"),
    ] = None,
    ridge: Annotated[float, typer.Option("--ridge", help="Penalty on the standardised coefficients.")] = 0.0,
    half_life: Annotated[
        float | None,
        typer.Option(
            "--half-life",
            help="Rows after which a row counts half: the last row counts most.",
            show_default="all count the same",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The model file.", show_default="the log's name with .model.json, here"),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", "-p", help="Draw calibration, demand and revenue to this file (.png, .svg or .pdf)."),
    ] = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Fit demand to a log of past quotes: coefficients, elasticities, held-out fit, and what to be careful about.

    The model is saved as plain JSON, for hushprice twin. A model or picture of the same name is replaced; nothing
    else is ever written over. Rows are taken to be in order of time, oldest first.

    Example: hushprice fit quotes.csv --price offer --outcome sold --features age,risk --plot fit.png

    If demand changes: hushprice fit quotes.csv --price offer --outcome sold --features age,risk --half-life 5000
    """
    output = Output.choose(json, csv)
    if plot is not None:
        plots.check_file(plot)
        check_file(plot, what="picture", example="fit.png", is_one=_is_picture)
    target = check_target(out or Path(f"{_stem(log)}.model.json"))
    source = Source.open(log)
    columns = _columns(source, price=price, outcome=outcome, features=features)
    console = Console(stderr=output is not Output.TABLE)
    with _bar(console) as advance:
        model = fit_log(
            source,
            **columns,
            family=family,
            weights=weights,
            categories=names_of("--categories", categories),
            sensitivity=sensitivity if sensitivity in ("all", "none") else names_of("--sensitivity", sensitivity),
            segment=segment,
            prices=prices,
            ridge=ridge,
            half_life=half_life,
            progress=advance,
        )
    saved = model.save(target)
    if output is Output.JSON:
        typer.echo(json_module.dumps({"model": str(saved), **_summary(model)}, indent=2))
    elif output is Output.CSV:
        typer.echo(csv_text(plain(model.report_)["coefficients"]), nl=False)
    else:
        show_model(console, model)
    show_findings(console, model.findings_)
    if not model.findings_:
        console.print("[green]No warnings.[/green]")
    console.print(f"Model: [bold]{escape(str(saved))}[/bold]", highlight=False)
    if plot is not None:
        console.print(f"Picture: {escape(str(plots.save(pictures.demand_overview(model), plot)))}", highlight=False)


def show_model(console: Console, model: DemandModel) -> None:
    """Print the tables of a model's report."""
    report = model.report_
    console.print(_coefficients(model))
    console.print(
        f"  A customer's demand has mean f(utility - sensitivity x {escape(model.price_)}). Effects are on the "
        "standardised scale: of one standard deviation more for a number, against the most frequent level for a "
        "category; '1' is everyone's.\n",
        highlight=False,
    )
    console.print(_elasticities(report, model.prices_))
    console.print(
        f"  Elasticity: percent change of demand for one percent more of every price. Best price: mean over customers, "
        f"between {model.prices_[0]:g} and {model.prices_[1]:g}, at no cost.\n",
        highlight=False,
    )
    if report.held_out is None:
        console.print("Too few rows to hold any out: the model's predictions are not tested.\n")
        return
    console.print(_held_out(report))
    tenths = report.held_out.calibration
    console.print(
        f"  Calibration: in {sum(t.agrees for t in tenths)} of {len(tenths)} groups of held-out rows the predicted "
        "demand lies in the 95% interval of the demand seen.\n",
        highlight=False,
    )


def _coefficients(model: DemandModel) -> Table:
    log = f"{model.log_}: " if model.log_ else ""
    ridge = f", ridge {model.ridge_:g}" if model.ridge_ else ""
    aged = ""
    if model.half_life_ is not None and model.report_.effective is not None:
        aged = f" that count as {model.report_.effective:,.0f} (half-life {model.half_life_:,g})"
    title = f"{log}{model.family_.name} demand, {model.records_:,} rows{aged}{ridge}"
    table = Table(title=escape(title), title_justify="left")
    table.add_column("feature", style="bold", overflow="fold")
    for heading in ("utility", "se", "sensitivity", "se"):
        table.add_column(heading, justify="right", no_wrap=True)
    for c in model.report_.coefficients:
        beta = ("", "") if c.beta is None or c.beta_se is None else (number(c.beta), number(c.beta_se))
        table.add_row(escape(c.name), number(c.alpha), number(c.alpha_se), *beta)
    return table


def _elasticities(report: Report, prices: tuple[float, float]) -> Table:
    title = f"Price elasticities by {report.by}" if report.segments else "Price elasticity"
    table = Table(title=escape(title), title_justify="left")
    table.add_column("segment", style="bold", overflow="fold", min_width=8)
    for heading in ("rows", "prices seen", "demand", "elasticity", "se", "best price"):
        table.add_column(heading, justify="right", no_wrap=heading != "prices seen")

    def add(s: Segment) -> None:
        table.add_row(
            escape(s.name), f"{s.rows:,}", f"{number(s.low)} to {number(s.high)}", number(s.demand),
            number(s.elasticity), number(s.elasticity_se), number(s.best_price),
        )  # fmt: skip

    for segment in report.segments:
        add(segment)
    if report.segments:
        table.add_section()
    add(report.everyone)
    return table


def _held_out(report: Report) -> Table:
    held = report.held_out
    assert held is not None
    table = Table(
        title=f"Held-out fit: learned from {held.trained_on:,} rows, tried on {held.rows:,}", title_justify="left"
    )
    table.add_column("model", style="bold")
    ranked = held.scores[0].auc is not None
    for heading in ("log-likelihood a row", "deviance explained", *(["AUC"] if ranked else [])):
        table.add_column(heading, justify="right", no_wrap=True)
    for score in held.scores:
        area = [f"{score.auc:.4f}" if score.auc is not None else ""] if ranked else []
        table.add_row(score.model, f"{score.loglik:.5f}", f"{score.explained:.2%}", *area)
    return table


def _summary(model: DemandModel) -> dict[str, Any]:
    """What is printed as JSON."""
    return {
        "family": model.family_.name,
        "rows": model.records_,
        "half_life": model.half_life_,
        "effective_rows": model.report_.effective,
        "prices": list(model.prices_),
        "seen": list(model.seen_),
        "findings": plain(list(model.findings_)),
        "report": plain(model.report_),
    }


def _columns(source: Source, **columns: str | None) -> dict[str, Any]:
    """The columns asked for; if one is missing, the error lists those there are."""
    for name, value in columns.items():
        if value is None or not value.strip():
            others = [c for c in source.columns if c not in columns.values()]
            raise MissingOption(f"--{name} is missing. The columns of {source.name}: {', '.join(others)}.")
    words = names_of("--features", columns["features"])
    return {**columns, "features": [] if words == ["none"] and "none" not in source.columns else words}


def _is_picture(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(5).startswith((b"\x89PNG", b"%PDF", b"<?xml", b"<svg"))


def _stem(log: Path) -> str:
    name = log.resolve().name
    for ending in (".gz", ".csv", ".parquet"):
        name = name.removesuffix(ending)
    return name or "log"


@contextmanager
def _bar(console: Console) -> Iterator[Callable[[str, int], None]]:
    """A bar over the rows read in each pass; how many there are is known after the first."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        TextColumn("{task.completed:,.0f} rows"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task("survey", total=None)
        total = 0

        def advance(doing: str, rows: int) -> None:
            nonlocal total
            total = max(total, rows)
            total_rows = None if doing == "survey" else total
            bar.update(task, description=doing, completed=rows, total=total_rows)

        yield advance
