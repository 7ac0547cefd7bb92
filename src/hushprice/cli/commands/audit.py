"""``hushprice audit``: attack the privacy mechanisms and tell how far one got."""

from __future__ import annotations

import dataclasses
import json as json_text
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from hushprice import privacy
from hushprice.cli.options import AsCsv, AsJson
from hushprice.cli.output import Output, progress_bar
from hushprice.privacy import Audit, Guarantee
from hushprice.simulation import csv_text


def audit(
    mechanism: Annotated[
        list[str],
        typer.Argument(
            help="Mechanisms: l2-ball, privunit, gaussian, randomized-response.", show_default="all of them"
        ),
    ] = [],  # noqa: B006 (Typer wants a list)
    epsilon: Annotated[float, typer.Option("--epsilon", "-e", help="Claimed epsilon.")] = 1.0,
    delta: Annotated[float, typer.Option("--delta", help="Claimed delta, of the Gaussian.")] = 1e-3,
    dim: Annotated[int, typer.Option("--dim", "-n", help="Length of the vectors: 2 d for d features.")] = 4,
    samples: Annotated[int, typer.Option("--samples", help="Reports of each input.")] = 200_000,
    confidence: Annotated[float, typer.Option("--confidence", help="Of all that is certified, together.")] = 0.999,
    with_controls: Annotated[
        bool, typer.Option("--controls/--no-controls", help="Also attack mechanisms that are wrong on purpose.")
    ] = True,
    unsafe_seed: Annotated[
        int | None, typer.Option("--unsafe-seed", help="Repeatable noise instead of the operating system's.")
    ] = None,
    json: AsJson = False,
    csv: AsCsv = False,
) -> None:
    """Attack the privacy mechanisms: certified lower bounds on epsilon, next to what is claimed.

    Mechanisms that are wrong on purpose must be caught; the command fails if one is not, or if a claim is broken.

    Example: hushprice audit l2-ball privunit --epsilon 2 --samples 20000
    """
    output = Output.choose(json, csv)
    names = mechanism or list(privacy.REGISTRY)
    subjects = [(_mechanism(name, epsilon, delta, dim), True) for name in names]
    if with_controls:
        subjects += [(wrong, False) for wrong in privacy.controls(epsilon=epsilon, delta=delta, clip=1.0, dim=dim)]
    console = Console(stderr=output is not Output.TABLE)
    entropy = None if unsafe_seed is None else privacy.UnsafeSeed(unsafe_seed)
    results = []
    total = sum(len(subject.extremes()) for subject, _ in subjects)
    with progress_bar(console, total, doing="attacking", things="pairs of inputs") as advance:
        for subject, honest in subjects:
            audited = privacy.audit(subject, samples=samples, confidence=confidence, rng=entropy, progress=advance)
            results.append((audited, honest))
    show_audits(console, results, output)
    if any(audited.passed is not honest for audited, honest in results):
        raise typer.Exit(1)


def _mechanism(name: str, epsilon: float, delta: float, dim: int) -> privacy.Mechanism:
    options: dict[str, Any] = {"epsilon": epsilon, "clip": 1.0, "dim": dim, "delta": delta}
    fields = {f.name for f in dataclasses.fields(privacy.get(name)) if f.init}  # type: ignore[arg-type]
    return privacy.build(name, **{key: value for key, value in options.items() if key in fields})


def show_audits(console: Console, results: Sequence[tuple[Audit, bool]], output: Output) -> None:
    """Print what an attack certified, of mechanisms that should hold and of those wrong on purpose."""
    rows = [
        {
            "mechanism": audited.mechanism,
            "wrong_on_purpose": not honest,
            "claimed_epsilon": audited.claimed.epsilon,
            "claimed_delta": audited.claimed.delta,
            "certified_epsilon": audited.epsilon,
            "event": audited.worst.event,
            "inputs": audited.worst.inputs,
            "samples": audited.samples,
            "confidence": audited.confidence,
            "verdict": _verdict(audited, honest),
        }
        for audited, honest in results
    ]
    if output is Output.JSON:
        typer.echo(json_text.dumps(rows, indent=2))
        return
    if output is Output.CSV:
        typer.echo(csv_text(rows), nl=False)
        return
    one = results[0][0]
    table = Table(
        title=f"{one.samples:,} reports of each input, confidence {one.confidence:g} over each attack",
        title_justify="left",
    )
    table.add_column("mechanism", style="bold", overflow="fold")
    for heading in ("claimed", "certified"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict")
    wide = console.width >= 110
    if wide:
        table.add_column("strongest event")
    for k, ((audited, honest), row) in enumerate(zip(results, rows, strict=True)):
        if not honest and k and results[k - 1][1]:
            table.add_section()
        cells = [
            escape(audited.mechanism),
            _guarantee(audited.claimed),
            f"at least {audited.epsilon:.3f}",
            str(row["verdict"]),
        ]
        table.add_row(*cells, *([escape(f"{audited.worst.event}, {audited.worst.inputs}")] if wide else []))
    console.print(table)
    broken = [audited.mechanism for audited, honest in results if honest and not audited.passed]
    missed = [audited.mechanism for audited, honest in results if not honest and audited.passed]
    if broken:
        console.print(f"[bold red]Broken: {escape('; '.join(broken))}.[/bold red] The claim does not hold.")
    if missed:
        console.print(f"[bold red]Not caught: {escape('; '.join(missed))}.[/bold red] Use more --samples.")
    if not broken and not missed:
        caught = ", and every mechanism that is wrong on purpose was caught" if not results[-1][1] else ""
        console.print(f"No claim was broken{caught}.")


def _verdict(audited: Audit, honest: bool) -> str:
    if honest:
        return "holds" if audited.passed else "BROKEN"
    return "NOT CAUGHT" if audited.passed else "caught"


def _guarantee(claimed: Guarantee) -> str:
    return f"{claimed.epsilon:.4g}" + (f", {claimed.delta:g}" if claimed.delta else "")
