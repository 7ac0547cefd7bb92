"""``hushprice demo``: three stories in tables and pictures, or with ``--live`` a shop to watch."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape

from hushprice import plots
from hushprice.cli.commands.live import live as run_live
from hushprice.cli.options import SeedOption, Workers
from hushprice.cli.output import Output, progress_bar, show
from hushprice.cli.study_progress import Out, folder, write_text
from hushprice.errors import InvalidInput
from hushprice.simulation import compare
from hushprice.studies.spec_strings import Setup

LIVE = "Of --live"  # heading of the options that only it has


def demo(
    out: Out = Path("hushprice-demo"),
    seed: SeedOption = 0,
    workers: Workers = -1,
    live: Annotated[
        bool, typer.Option("--live", help="Run the pricing service with simulated customers, and print its address.")
    ] = False,
    database: Annotated[
        str | None,
        typer.Option(help="Where to keep it.", rich_help_panel=LIVE, show_default="a temporary file"),
    ] = None,
    port: Annotated[
        int | None, typer.Option(help="Port.", rich_help_panel=LIVE, show_default="8000 or the next")
    ] = None,
    rate: Annotated[float, typer.Option(help="Customers per second.", rich_help_panel=LIVE)] = 20.0,
    seconds: Annotated[
        float | None, typer.Option(help="Stop after so long.", rich_help_panel=LIVE, show_default="at Ctrl+C")
    ] = None,
) -> None:
    r"""Compare the policies on three markets: tables, pictures, JSON and CSV, in about a minute.

    With --live: a shop that sells to simulated customers over the network, with a page to watch it learn and one to buy
    from yourself. It needs the service: pip install 'hushprice\[service]'
    """
    if live:
        run_live(database=database, port=port, rate=rate, seconds=seconds, seed=seed)
        return
    if database is not None or port is not None or rate != 20.0 or seconds is not None:
        raise InvalidInput("--database, --port, --rate and --seconds are for the live demo: add --live.")
    console = Console()
    folder(out)
    stories: tuple[tuple[str, dict[str, Any], int, list[str], str], ...] = (
        (
            "wide",
            {"market": "wide", "dim": 4, "horizon": 50_000},
            40,
            ["look-ahead", "etc-doubling", "mle-cycle", "semi-myopic", "fixed-price"],
            "Customers differ, so the right price differs: learning beats even the best single price.",
        ),
        (
            "s2",
            {"market": "s2", "dim": 4, "horizon": 50_000},
            40,
            ["look-ahead", "etc-doubling", "mle-cycle", "semi-myopic", "greedy"],
            "Here one price is right for everyone, but a seller who never experiments need not find it.",
        ),
        (
            "privacy",
            {"market": "s1", "dim": 2, "horizon": 200_000, "public": 0.1},
            20,
            [
                "look-ahead",
                "etc",
                "etc-ldp:epsilon=4,noise=privunit",
                "etc-ldp:epsilon=1",
                "etc-ldp-mixed:epsilon=1",
                "random-price",
            ],
            "What it costs to learn from randomised reports alone; in the mixed one a tenth send raw records.",
        ),
    )
    for name, world, runs, words, story in stories:
        setup = Setup.of(words, **world)
        console.print(
            f"\n[bold]Market {world['market']}[/bold], d = {world['dim']}, {world['horizon']:,} customers, "
            f"{runs} replications. {story}"
        )
        with progress_bar(console, len(words) * runs) as advance:
            results = compare(
                setup.policies,
                setup.market,
                horizon=world["horizon"],
                replications=runs,
                seed=seed,
                workers=workers,
                progress=advance,
            )
        show(console, results, Output.TABLE)
        plots.save(plots.overview(results), out / f"{name}.png")
        write_text(out / f"{name}.json", results.to_json() + "\n")
        write_text(out / f"{name}.csv", results.to_csv())
    console.print(
        "\nRegret is revenue lost against knowing demand. 'fixed-price' is the best single price, known in advance; "
        "deviation is the mean distance of a price from the best known one, in percent of the price range, and far the "
        "share that is more than 10% of the range away. 'epsilon' is what one private report may give away: at 1 no "
        "report is more than 2.7 times as likely from one customer as from another."
    )
    console.print(f"Pictures and tables are in [bold]{escape(str(out))}/[/bold]: start with wide.png.")
    console.print(f"Next: [bold]{escape(_command())} compare --market s1 --dim 9 --plot s1.png[/bold]")


def _command() -> str:
    """How this command was called, for a hint that can be pasted."""
    called = sys.argv[0]
    return called if Path(called).name == "hushprice" else "hushprice"
