"""The service under kills and malformed requests: hundreds of what ``make test`` does a few of."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict
from typing import Annotated

import typer
from tests.support.crash import run
from tests.support.fuzz import fuzz as send
from tests.support.postgres import postgres

from benchmarks.common import report


def crash(kills: int = 100, seed: int = 1) -> None:
    """Kill the server at random moments under load, on SQLite and PostgreSQL, with one worker and with two."""
    verdicts = []
    with tempfile.TemporaryDirectory() as folder, postgres() as server:
        verdicts.append(run(kills, f"sqlite:///{folder}/crash.db", seed=seed))
        verdicts.append(run(kills, server.url("one"), seed=seed))
        verdicts.append(run(kills, server.url("two"), seed=seed, workers=2))
    report(
        "crash", "Servers killed under load; lost, twice, changed and strange must be 0", [asdict(v) for v in verdicts]
    )
    if not all(verdict.good for verdict in verdicts):
        raise typer.Exit(1)


def fuzz(cases: Annotated[int, typer.Option(help="Cases, a tenth of them on PostgreSQL.")] = 10_000) -> None:
    """Fuzzing from the OpenAPI description and by hand: no 5xx, and a refused request changes nothing."""
    with postgres() as server:
        outcomes = {"SQLite": send(cases - cases // 10), "PostgreSQL": send(cases // 10, 8, server.url("fuzz"))}
    problems = [problem for part in outcomes.values() for problem in part.pop("problems")]
    typer.echo(json.dumps(outcomes, indent=2))
    for problem in problems[:20]:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
