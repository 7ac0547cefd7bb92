"""``hushprice plan TWIN``: policies and privacy levels on one's own market, in money."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hushprice.cli.options import AsCsv, AsJson, Load, SeedOption, Workers
from hushprice.cli.output import Output, counting_bar, show_findings
from hushprice.cli.study_progress import folder, names_of
from hushprice.errors import InvalidInput
from hushprice.markets.twin.twin import follow
from hushprice.markets.twin.twin_file import load_twin
from hushprice.planning import EPSILONS, LEARNING, OPT_OUT, Plan
from hushprice.planning import plan as make
from hushprice.planning.plan import check_folder
from hushprice.planning.report import table_rows
from hushprice.simulation import csv_text
from hushprice.studies.spec_strings import load_policies


def plan(
    twin: Annotated[Path, typer.Argument(help="A twin file, made by hushprice twin.")],
    policy: Annotated[
        list[str],
        typer.Argument(help="Policies that learn, with options after a colon.", show_default=", ".join(LEARNING)),
    ] = [],  # noqa: B006 (Typer wants a list)
    horizon: Annotated[
        int | None,
        typer.Option("--horizon", "-T", help="Customers to plan for.", show_default="rows of the log, at most 100,000"),
    ] = None,
    replications: Annotated[
        int, typer.Option("--replications", "-n", help="Replications; the private options take half of them.")
    ] = 40,
    epsilons: Annotated[
        str | None,
        typer.Option("--epsilons", help="Privacy levels, as 0.5,1,2, or none.", show_default="0.5,1,2,4,8"),
    ] = None,
    opt_out: Annotated[
        str | None,
        typer.Option(
            "--opt-out",
            help="Shares of customers who opt out, as 0,0.5,1, or none.",
            show_default="0,0.25,0.5,0.75,1",
        ),
    ] = None,
    epsilon: Annotated[float, typer.Option("--epsilon", help="Privacy level of those who opt out.")] = 2.0,
    worth: Annotated[float, typer.Option("--worth", help="Money for one unit of price.")] = 1.0,
    currency: Annotated[str, typer.Option("--currency", help="Its sign, as '$' or 'EUR '.")] = "",
    drift: Annotated[
        bool, typer.Option("--drift", help="Let demand move over a run as it did over the log, oldest rows first.")
    ] = False,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="Folder for the report, pictures and table; an earlier plan there is replaced, other files are not.",
        ),
    ] = Path("hushprice-plan"),
    seed: SeedOption = 0,
    workers: Workers = -1,
    load: Load = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Compare policies and privacy levels on your own market, in money, and say what to run and how sure that is.

    Example: hushprice plan shop.twin --worth 100 --currency '$' --out plan

    Shorter: hushprice plan shop.twin look-ahead --epsilons 1,4 --opt-out none --replications 20

    On demand that moves as in the log: hushprice plan shop.twin look-ahead --drift --epsilons none --opt-out none
    """
    output = Output.choose(json, csv)
    load_policies(load)
    market = load_twin(twin)
    if drift:
        market = follow(market)
    levels = numbers("--epsilons", epsilons, EPSILONS)
    shares = numbers("--opt-out", opt_out, OPT_OUT)
    check_folder(folder(out))
    console = Console(stderr=output is not Output.TABLE)
    with counting_bar(console, "simulating", "replications") as bar:
        task = bar.add_task("", total=None)
        made = make(
            market,
            horizon=horizon,
            policies=policy or LEARNING,
            epsilons=levels,
            opt_out=shares,
            epsilon=epsilon,
            replications=replications,
            seed=seed,
            workers=workers,
            worth=worth,
            currency=currency,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    made.save(out)
    if output is Output.JSON:
        typer.echo(made.to_json())
    elif output is Output.CSV:
        typer.echo(csv_text(made.rows()), nl=False)
    else:
        show(console, made)
    console.print(
        f"The report is [bold]{escape(str(out / 'report.html'))}[/bold]; pictures and tables lie beside it.",
        highlight=False,
    )


def numbers(option: str, text: str | None, usual: tuple[float, ...]) -> tuple[float, ...]:
    """Numbers from ``0.5,1,2``; "none" is none of them.

    >>> numbers("--epsilons", "0.5,2", ()), numbers("--epsilons", "none", ())
    ((0.5, 2.0), ())
    """
    if text is None:
        return usual
    if text.strip().lower() == "none":
        return ()
    try:
        values = tuple(float(word) for word in names_of(option, text))
    except ValueError:
        values = ()
    if not values:
        raise InvalidInput(f"{option} takes numbers with commas between them, or none, got {text!r}.")
    return values


def show(console: Console, made: Plan) -> None:
    """The table and the recommendation."""
    title = f"{made.twin.about.log}: {made.horizon:,} customers, money with 95% intervals"
    table = Table(title=escape(title), title_justify="left")
    rows = table_rows(made.lines)
    spare = (
        []
        if console.width >= 130
        else ["price of privacy"]
        if console.width >= 105
        else ["price of privacy", "revenue"]
    )
    headings = [heading for heading in rows[0] if heading not in spare]
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "option" else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escape(str(row[heading])) for heading in headings))
    console.print(table)
    fewer = min(line.replications for line in made.lines)
    if fewer < max(line.replications for line in made.lines):
        console.print(
            f"  The private options have {fewer} replications, and are compared with the same {fewer} of the others.",
            highlight=False,
        )
    recommendation = made.recommendation
    console.print(f"\n[bold]{escape(recommendation.headline)}[/bold]\n", highlight=False)
    for reason in recommendation.reasons:
        console.print(escape(reason), highlight=False)
    show_findings(console, recommendation.caveats)
