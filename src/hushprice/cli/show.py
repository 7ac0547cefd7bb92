"""Tables, JSON, CSV and progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hushprice.errors import InvalidInput
from hushprice.simulation import Comparison


class Output(Enum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"

    @classmethod
    def choose(cls, json: bool, csv: bool) -> Output:
        """From the two flags."""
        if json and csv:
            raise InvalidInput("Choose one of --json and --csv.")
        return cls.JSON if json else cls.CSV if csv else cls.TABLE


@contextmanager
def progress_bar(console: Console, total: int) -> Iterator[Callable[[int], None]]:
    """A bar over replications; the function it gives is called with how many are done."""
    columns = (
        TextColumn("simulating"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("replications"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, expand=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda n: bar.advance(task, n)


def show(console: Console, results: Comparison, output: Output) -> None:
    """Print results."""
    if output is Output.JSON:
        typer.echo(results.to_json())
    elif output is Output.CSV:
        typer.echo(results.to_csv(), nl=False)
    else:
        console.print(_table(results))


def _table(results: Comparison) -> Table:
    one = next(iter(results.values()))
    table = Table(
        title=f"{one.market}, d = {one.dim}, T = {one.horizon:,}, {one.replications} replications, seed {one.seed}",
        title_justify="left",
    )
    table.add_column("policy", style="bold", overflow="fold")
    for heading in ("regret", "99% interval", "sd", "revenue", "explored", "ms/run"):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, s in results.summaries().items():
        many = s.replications > 1
        table.add_row(
            label,
            _amount(s.mean),
            f"{_amount(s.low)} to {_amount(s.high)}" if many else "needs 2 runs",
            _amount(s.sd) if many else "",
            _amount(s.revenue),
            f"{s.exploration:.1%}",
            f"{1e3 * s.seconds:,.1f}",
        )
    return table


def _amount(value: float) -> str:
    """Money with four digits or so."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"
