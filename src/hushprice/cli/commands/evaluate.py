"""``hushprice evaluate LOG POLICY``: what another policy would have earned."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hushprice.cli.family_option import FAMILY_NAMES
from hushprice.cli.options import AsCsv, AsJson, RulesFile
from hushprice.cli.output import Output, show_findings
from hushprice.cli.study_progress import names_of, number_or_column, rules_from
from hushprice.errors import InvalidInput
from hushprice.evaluation import Evaluation
from hushprice.evaluation import evaluate as run
from hushprice.evaluation.result import short
from hushprice.simulation import csv_text


def evaluate(
    log: Annotated[Path, typer.Argument(help="A CSV or Parquet file, or a folder of them.")],
    policy: Annotated[
        str,
        typer.Argument(
            help="fixed-price:price=7, random-price, a demand model file (its best prices), or a saved pricer."
        ),
    ],
    price: Annotated[str, typer.Option("--price", help="Column of the prices.")] = "price",
    outcome: Annotated[str, typer.Option("--outcome", help="Column of what was bought.")] = "outcome",
    features: Annotated[
        str | None,
        typer.Option("--features", help="Columns, as age,income.", show_default="z0, z1, ... if there, or none"),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="A demand model file, for the features it encodes.")
    ] = None,
    propensity: Annotated[
        str | None,
        typer.Option("--propensity", help="Column of each price's density or probability.", show_default="propensity"),
    ] = None,
    discrete: Annotated[
        str,
        typer.Option("--discrete", help="Column telling which of these are probabilities; or true, or false, for all."),
    ] = "discrete",
    randomised_within: Annotated[
        str | None, typer.Option("--randomised-within", help="Prices were drawn at random within these columns.")
    ] = None,
    uniform: Annotated[
        tuple[float, float] | None, typer.Option("--uniform", help="Prices were drawn evenly from LOW to HIGH.")
    ] = None,
    segment: Annotated[
        str | None, typer.Option("--segment", help="Column by which price ranges differ.", show_default="segment")
    ] = None,
    cost: Annotated[str, typer.Option("--cost", help="Unit cost, or its column.")] = "0",
    prices: Annotated[
        tuple[float, float] | None,
        typer.Option("--prices", help="Range of the policy's prices.", show_default="its own, or those seen"),
    ] = None,
    rules: RulesFile = None,
    family: Annotated[
        str,
        typer.Option("--family", help=f"Demand of the doubly robust regression: {FAMILY_NAMES}; or auto."),
    ] = "auto",
    bandwidth: Annotated[
        float | None,
        typer.Option("--bandwidth", help="How far apart prices may be compared.", show_default="from the log"),
    ] = None,
    worth: Annotated[float, typer.Option("--worth", help="Money for one unit of price.")] = 1.0,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Estimate what another policy would have earned, from a log of prices that were drawn at random.

    Example: hushprice evaluate offers.csv fixed-price:price=7 --price rate --outcome taken --randomised-within risk
    """
    output = Output.choose(json, csv)
    ways = {"--propensity": propensity, "--randomised-within": randomised_within, "--uniform": uniform}
    named = [name for name, value in ways.items() if value is not None]
    if len(named) > 1:
        raise InvalidInput(f"Say how prices were drawn in one way, not by {' and '.join(named)}.")
    result = run(
        log,
        policy,
        price=price,
        outcome=outcome,
        features=None if features is None else names_of("--features", features),
        model=model,
        propensity=propensity or "propensity",
        discrete=_kind(discrete),
        randomised_within=names_of("--randomised-within", randomised_within),
        uniform=uniform,
        segment=segment,
        cost=number_or_column(cost),
        prices=prices,
        rules=rules_from(rules),
        family=family,
        bandwidth=bandwidth,
        worth=worth,
    )
    if output is Output.JSON:
        typer.echo(result.to_json())
    elif output is Output.CSV:
        typer.echo(csv_text([one.to_dict() for one in (result.logged, *result.estimates.values())]), nl=False)
    else:
        show(Console(), result, title=f"{policy} on {log.name}")


def show(console: Console, result: Evaluation, *, title: str) -> None:
    """The estimates as a table, what to be careful about, and the answer in words."""
    (_, *headings), *rows = result.table()
    table = Table(title=escape(title) + ": profit per customer", title_justify="left")
    table.add_column("", style="bold", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)
    excluded = "".join(f"; {reason}: {count:,}" for reason, count in result.left_out.items())
    console.print(
        f"{result.used:,} of {result.rows:,} rows used ({result.propensities}){escape(excluded)}.", highlight=False
    )
    if result.bandwidth:
        several = ", ".join(
            f"{short(some['doubly robust'].value)} at {h:.3g}" for h, some in result.sensitivity.items()
        )
        console.print(f"Bandwidth {result.bandwidth:.3g}; doubly robust: {several}.", highlight=False)
    show_findings(console, result.findings)
    console.print(f"[bold]{escape(result.in_words())}[/bold]", highlight=False)


def _kind(text: str) -> str | bool:
    """True or false, or the name of a column."""
    return {"true": True, "false": False}.get(text.lower(), text)
