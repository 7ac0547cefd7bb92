"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PolicyWord = Annotated[
    str,
    typer.Argument(help="A policy, with options after a colon: etc, mle-cycle:variant=original,ridge=0.1"),
]
PolicyWords = Annotated[
    list[str],
    typer.Argument(
        help="Policies, with options after a colon. Default: a choice of those that learn.", show_default=False
    ),
]
MarketName = Annotated[
    str, typer.Option("--market", "-m", help="Market: s1, s2, wide, a1, a2, lower-bound, autoloan or twin:file=FILE.")
]
Dim = Annotated[
    int | None, typer.Option("--dim", "-d", help="Number d of features.", show_default="4, or the market's own")
]
Horizon = Annotated[int, typer.Option("--horizon", "-T", help="Customers per replication.")]
Replications = Annotated[int, typer.Option("--replications", "-n", help="Replications.")]
SeedOption = Annotated[int, typer.Option("--seed", "-s", help="Seed: same seed, same customers, same numbers.")]
Workers = Annotated[int, typer.Option("--workers", "-w", help="Processes; -1 for all cores.")]
Engine = Annotated[str | None, typer.Option("--engine", help="dask://host:port to run on a Dask cluster.")]
Prices = Annotated[
    tuple[float, float] | None, typer.Option("--prices", help="Lowest and highest price.", show_default="the market's")
]
Cost = Annotated[float, typer.Option("--cost", help="Unit cost: (price - cost) times demand is earned.")]
Public = Annotated[
    float, typer.Option("--public", help="Share of customers who agree to send raw records (etc-ldp-mixed).")
]
RulesFile = Annotated[
    Path | None,
    typer.Option("--rules", help="A TOML file of business rules: ladder, largest_step, segments, ranges."),
]
Load = Annotated[
    Path | None, typer.Option("--load", help="A Python file that registers policies or markets of your own.")
]
RateName = Annotated[
    str | None, typer.Option("--rate", help="Draw this bound of the theory too: minimax, etc, supcb or ucb.")
]
Plot = Annotated[Path | None, typer.Option("--plot", "-p", help="Draw to this file (.png, .svg or .pdf).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")]
