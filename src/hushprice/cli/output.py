"""Tables, JSON, CSV and progress bars."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from hushprice.errors import InvalidInput
from hushprice.fitting.diagnosis.findings import Finding
from hushprice.plots.figures import broken
from hushprice.simulation import Comparison, Scaling, csv_text, percentage


class Output(Enum):
    """The format of printed results."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"

    @classmethod
    def choose(cls, json: bool, csv: bool) -> Output:
        """The format that the two flags choose."""
        if json and csv:
            raise InvalidInput("Choose one of --json and --csv.")
        return cls.JSON if json else cls.CSV if csv else cls.TABLE


@contextmanager
def progress_bar(
    console: Console, total: int, *, doing: str = "simulating", things: str = "replications"
) -> Iterator[Callable[[int], None]]:
    """A progress bar; call the function that it yields with the number of newly finished items."""
    with counting_bar(console, doing, things) as bar:
        task = bar.add_task("", total=total)
        yield lambda n: bar.advance(task, n)


def counting_bar(console: Console, doing: str, things: str) -> Progress:
    """The columns of a progress bar: description, count and remaining time."""
    columns = (
        TextColumn(doing),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn(things),
        TimeRemainingColumn(),
    )
    return Progress(*columns, console=console, transient=True, expand=True)


def show(console: Console, results: Comparison, output: Output) -> None:
    """Print results."""
    if output is Output.JSON:
        typer.echo(results.to_json())
    elif output is Output.CSV:
        typer.echo(results.to_csv(), nl=False)
    else:
        console.print(_table(results, console.width))


def show_scaling(console: Console, studies: Mapping[str, Scaling], output: Output) -> None:
    """Print mean regrets by d and T, and the fitted slopes."""
    plain = {label: study.to_dict() for label, study in studies.items()}
    if output is Output.JSON:
        typer.echo(json.dumps(plain, indent=2))
        return
    if output is Output.CSV:
        rows = [{"label": label} | cell for label, study in plain.items() for cell in study["cells"]]
        typer.echo(csv_text(rows), nl=False)
        return
    for label, study in studies.items():
        one = study.results[0]
        horizons = sorted({r.horizon for r in study.results})
        table = Table(title=f"{escape(label)}, {one.market}: mean regret", title_justify="left")
        table.add_column("d", justify="right")
        for T in horizons:
            table.add_column(f"T = {T:,}", justify="right")
        for d in sorted({r.dim for r in study.results}):
            by_horizon = {r.horizon: r.summary().mean for r in study.results if r.dim == d}
            table.add_row(str(d), *(amount(by_horizon[T]) for T in horizons))
        console.print(table)
        slopes = [f"{name}^{slope:.2f}" + (f" (se {se:.2f})" if se == se else "") for name, slope, se in study.slopes()]
        console.print(f"  grows like {' '.join(slopes)} (log T)^{study.offset:g}\n", highlight=False)


Row = dict[str, str]
SPARE_COLUMNS = ("ms/run", "sd", "revenue", "far", "deviation", "p95", "99% interval")  # omitted in this order


def _table(results: Comparison, width: int) -> Table:
    one = next(iter(results.values()))
    many = one.replications > 1
    rows: dict[str, Row] = {}
    for label, s in results.summaries().items():
        rows[label] = {
            "regret": amount(s.mean),
            "99% interval": f"{amount(s.low)} to {amount(s.high)}" if many else "needs 2 runs",
            "p95": amount(s.p95) if many else "",
            "sd": amount(s.sd) if many else "",
            "revenue": amount(s.revenue),
            "deviation": percentage(s.deviation),
            "far": percentage(s.far),
            "ms/run": f"{1e3 * s.seconds:,.1f}",
        }
    columns = _columns(rows, width)
    runs = f"{one.replications} replication{'s' * (one.replications != 1)}"
    table = Table(
        title=f"{one.market}, d = {one.dim}, T = {one.horizon:,}, {runs}, seed {one.seed}", title_justify="left"
    )
    table.add_column("policy", style="bold", overflow="fold")
    for heading in columns:
        table.add_column(heading, justify="right", no_wrap=True)
    for label, row in rows.items():
        table.add_row(_broken(label), *(row[heading] for heading in columns))
    return table


def _broken(label: str) -> str:
    """A policy's word with a line break before each option."""
    return escape(broken(label, indent="  "))


def _columns(rows: dict[str, Row], width: int) -> list[str]:
    """The headings that fit beside the longest line of a policy's name."""
    columns = list(next(iter(rows.values())))
    name = max(6, *(len(line) for label in rows for line in _broken(label).splitlines()))
    for spare in ("", *SPARE_COLUMNS):
        columns = [heading for heading in columns if heading != spare]
        need = name + 4 + sum(3 + max(len(h), *(len(row[h]) for row in rows.values())) for h in columns)
        if need <= width:
            break
    return columns


SEVERITY_COLOURS = {"stop": "bold red", "warning": "yellow", "note": "dim"}


def show_findings(console: Console, findings: Iterable[Finding]) -> None:
    """Print findings, coloured by severity."""
    for finding in findings:
        colour = SEVERITY_COLOURS[finding.severity]
        console.print(f"[{colour}]{finding.severity}[/{colour}] {escape(finding.text)}", highlight=False)


def amount(value: float) -> str:
    """Money with about four digits."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}"
