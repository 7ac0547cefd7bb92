"""``hushprice twin MODEL LOG``: a market calibrated to a log, checked by replaying the logged prices."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hushprice.cli.options import AsJson, RulesFile
from hushprice.cli.output import show_findings
from hushprice.cli.study_progress import number_or_column, rules_from
from hushprice.errors import InvalidInput
from hushprice.files import without_nan
from hushprice.fitting import DemandModel
from hushprice.markets.twin.check import TwinCheck
from hushprice.markets.twin.replay import Replay
from hushprice.markets.twin.rows import Today
from hushprice.markets.twin.twin import Twin
from hushprice.markets.twin.twin import twin as make
from hushprice.markets.twin.twin_file import check_twin_target, save_twin

STATUS_COLOURS = {"holds": "green", "fails": "red"}
SHOWN = 12  # groups of a comparison


def twin(
    model: Annotated[Path, typer.Argument(help="A demand model file, made by hushprice fit.")],
    log: Annotated[Path, typer.Argument(help="The log: CSV or Parquet, or a folder of them.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The twin file to write.")] = Path("shop.twin"),
    cost: Annotated[
        str | None, typer.Option("--cost", help="Unit cost: a number, or a column of the log.", show_default="0")
    ] = None,
    today: Annotated[
        str | None,
        typer.Option(
            "--today",
            help="Today's prices: a column, a number, or SEGMENT=PRICE,SEGMENT=PRICE.",
            show_default="the logged price",
        ),
    ] = None,
    segment: Annotated[
        str | None, typer.Option("--segment", help="Column of the segments.", show_default="the model's")
    ] = None,
    weights: Annotated[
        str | None, typer.Option("--weights", help="Column of the rows' weights.", show_default="the model's")
    ] = None,
    prices: Annotated[
        tuple[float, float] | None,
        typer.Option("--prices", help="Lowest and highest price to set.", show_default="the model's"),
    ] = None,
    rules: RulesFile = None,
    rows: Annotated[int, typer.Option("--rows", help="At most so many customers to draw from.")] = 100_000,
    certain: Annotated[
        bool, typer.Option("--certain", help="Take the fitted demand for certain; do not draw the truth around it.")
    ] = False,
    drift: Annotated[
        bool, typer.Option("--drift", help="Let demand move over a run as it did over the log, oldest rows first.")
    ] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Although the model has findings that say stop.")] = False,
    json: AsJson = False,
) -> None:
    """Make a market of your own from a fitted model and its log, and check it by replaying the logged prices.

    The twin file holds the customers' encoded features: keep it as confidential as the log. A model with a half-life
    makes a twin of the latest customers and their demand.

    Example: hushprice twin model.json offers.csv --today 7.5 --out shop.twin

    Where demand has changed: hushprice twin model.json offers.csv --drift --out moving.twin

    Then: hushprice plan shop.twin, or hushprice compare look-ahead etc --market twin:file=shop.twin
    """
    target = check_twin_target(out)
    made = make(
        DemandModel.load(model),
        log,
        prices=prices,
        cost=None if cost is None else number_or_column(cost),
        today=today_of(today),
        segment=segment,
        weights=weights,
        rules=rules_from(rules),
        rows=rows,
        uncertain=not certain,
        anyway=anyway,
        drift=drift,
    )
    save_twin(made, target)
    if json:
        check = made.about.check
        check_data = {} if check is None else {**check.to_dict(), "holds": check.holds}
        findings = [asdict(finding) for finding in made.findings]
        typer.echo(json_module.dumps(without_nan({"twin": str(target), **check_data, "findings": findings}), indent=2))
        return
    show(Console(), made)
    Console().print(
        f"The twin is in [bold]{escape(str(target))}[/bold]. It holds the customers' features: as confidential as the "
        f"log.\nNext: [bold]hushprice plan {escape(str(target))}[/bold]",
        highlight=False,
    )


def today_of(text: str | None) -> Today:
    """Today's prices from the command line.

    >>> today_of("7.5"), today_of("rate"), today_of("LOW=5,HIGH=9")
    (7.5, 'rate', {'LOW': 5.0, 'HIGH': 9.0})
    """
    if text is None or "=" not in text:
        return None if text is None else number_or_column(text)
    prices: dict[str, float] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.rpartition("="))
        try:
            price = float(value)
        except ValueError:
            price = float("nan")
        if not equals or not name or price != price:
            raise InvalidInput(f"--today: {item!r} should read SEGMENT=PRICE, as in LOW=5,HIGH=9.")
        if name in prices:
            raise InvalidInput(f"--today names the segment {name!r} twice.")
        prices[name] = price
    return prices


def show(console: Console, made: Twin) -> None:
    """The twin in a line, findings, and the self-check as tables."""
    console.print(escape(repr(made)), highlight=False)
    about = made.about
    part = f", a sample of {len(made.contexts.rows):,}" if len(made.contexts.rows) < about.log_rows else ""
    console.print(
        f"{about.log_rows:,} complete rows{part}; {about.left_out:,} left out. Today's prices: {escape(about.today)}.",
        highlight=False,
    )
    show_findings(console, made.findings)
    if about.check is None:
        console.print("The model does not know the log's outcomes, so that the twin was not checked.", highlight=False)
    else:
        show_check(console, about.check)


def show_check(console: Console, check: TwinCheck) -> None:
    """The replay of the log."""
    console.print(_summary(check))
    for one in check.shown:
        console.print(_groups(one))
    console.print(
        f"Outcomes drawn at the logged prices: mean {check.mean_drawn:.4g} (seen {check.mean_seen:.4g}), standard "
        f"deviation {check.spread_drawn:.4g} (seen {check.spread_seen:.4g}).",
        highlight=False,
    )
    console.print(escape(check.words()), highlight=False)


def _summary(check: TwinCheck) -> Table:
    table = Table(title="Seen against predicted demand", title_justify="left")
    rows = check.summary()
    for heading in rows[0]:
        table.add_column(heading, justify="left" if heading in ("comparison", "status") else "right")
    for row in rows:
        colour = STATUS_COLOURS.get(row["status"], "dim")
        table.add_row(
            *("" if v is None else str(v) for k, v in row.items() if k != "status"), f"[{colour}]{row['status']}[/]"
        )
    return table


def _groups(one: Replay) -> Table:
    table = Table(title=escape(one.what.capitalize()), title_justify="left")
    for heading in ("group", "rows", "seen", "predicted", "z"):
        table.add_column(heading, justify="left" if heading == "group" else "right")
    for group in one.groups[:SHOWN]:
        z = "forced" if group.z is None else f"{group.z:+.2f}"
        table.add_row(escape(group.name), f"{group.rows:,.0f}", f"{group.seen:.4g}", f"{group.predicted:.4g}", z)
    if len(one.groups) > SHOWN:
        table.add_row(f"and {len(one.groups) - SHOWN} more", "", "", "", "")
    return table
