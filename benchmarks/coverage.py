"""How often stated intervals hold the truth: the dashboard's bands and the intervals of off-policy evaluation."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np
import typer
from tests.support.bands import PLAIN, PRIVATE, measure
from tests.support.offpolicy import WORLDS, summary

from benchmarks.common import Rows, console, report


def bands(runs: Annotated[int, typer.Option(help="Runs a case.")] = 400) -> None:
    """Coverage of the dashboard's bands: 95% of whole curves should be held."""
    rows: Rows = []
    for kind, cases in (("private", PRIVATE), ("plain", PLAIN)):
        for name, case in cases.items():
            held = measure(case, runs)
            share = held.whole()
            rows.append(
                {
                    "product": kind,
                    "case": name,
                    "customers": str(case.customers),
                    "runs": str(runs),
                    "whole curve": share,
                    "s.e.": math.sqrt(share * (1.0 - share) / runs),
                    "at a price (1.96)": held.pointwise(),
                    "times too wide": held.wide,
                }
            )
    report("bands", "Bands of 95% that hold the true curve", rows)


def offpolicy(
    logs: Annotated[int, typer.Option(help="Logs of each world.")] = 200,
    workers: Annotated[int, typer.Option(help="Processes; -1 for all cores.")] = -1,
    world: Annotated[str, typer.Option(help="Only worlds whose name begins so.")] = "",
    first: Annotated[int, typer.Option(help="Seed of the first log.")] = 0,
) -> None:
    """Coverage of the 95% intervals and bias, over simulated logs."""
    rows: Rows = []
    for each in WORLDS:
        if each.name.startswith(world):
            rows += summary(each, logs, first=first, workers=workers)
            console.print(f"{each.name}: least coverage {min(row['coverage'] for row in rows):.3f} so far")
    seen = [row for row in rows if row["estimator"] != "logged prices"]
    error = np.sqrt(0.95 * 0.05 / logs)
    report("offpolicy", f"95% intervals over {logs} logs (standard error {error:.3f})", seen, stored=rows)
