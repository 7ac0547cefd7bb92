"""Compute missing replications of cells, after an estimate of the time.

Before a long run, one replication of the middle cell of every line (same run, policy, market and d) is computed and
stored; its seconds per customer are the estimate for the line. Cells are then computed in their order, in jobs of a few
seconds, each stored when it is done. A run that is stopped can therefore continue later, and numbers do not depend on
the jobs or where they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import joblib
import numpy as np

from hushprice.simulation import Job, Result, run_jobs, workers_of
from hushprice.studies.cells import Cell
from hushprice.studies.store import Store

BUNDLE_SECONDS = 8.0  # seconds of work per job; a run that is killed loses at most this much per worker
OnProgress = Callable[[int, float], None]


@dataclass(frozen=True)
class Remaining:
    """The missing replications of a cell.

    Attributes
    ----------
    cell : Cell
        The cell.
    missing : tuple of int
        Numbers of the replications.
    seconds : float
        Computing time per replication; NaN if unknown.
    """

    cell: Cell
    missing: tuple[int, ...]
    seconds: float

    @property
    def cost(self) -> float:
        """Seconds of computing left."""
        return len(self.missing) * self.seconds


def outstanding(cells: Iterable[Cell], store: Store) -> list[Remaining]:
    """The missing replications of cells.

    Parameters
    ----------
    cells : iterable of Cell
        The cells; duplicates count once.
    store : Store
        The stored results.

    Returns
    -------
    list of Remaining
        One entry per cell, in their order.
    """
    longest: dict[str, tuple[Cell, tuple[int, ...], float]] = {}
    pace: dict[tuple[str, str, str, int], list[tuple[int, float]]] = {}
    for cell in cells:
        stored = store.read(cell)
        seconds = float(np.mean([o.seconds for o in stored.values()])) if stored else float("nan")
        if stored:
            pace.setdefault(cell.line, []).append((cell.work.horizon, seconds))
        missing = tuple(i for i in cell.work.replications if i not in stored)
        if cell.key not in longest or len(longest[cell.key][1]) < len(missing):
            longest[cell.key] = (cell, missing, seconds)
    return [
        Remaining(cell, missing, _pace(cell, pace.get(cell.line, ())) if np.isnan(seconds) else seconds)
        for cell, missing, seconds in longest.values()
    ]


def _pace(cell: Cell, measured: Sequence[tuple[int, float]]) -> float:
    """Seconds per replication, in proportion to the customers from the nearest measured horizon."""
    if not measured:
        return float("nan")
    T, seconds = min(measured, key=lambda pair: abs(np.log(pair[0] / cell.work.horizon)))
    return seconds * cell.work.horizon / T


def pilots(remaining: Sequence[Remaining]) -> list[Remaining]:
    """The first missing replication of the middle cell of every line without a measured time."""
    lines: dict[tuple[str, str, str, int], list[Remaining]] = {}
    for item in remaining:
        if np.isnan(item.seconds) and item.missing:
            lines.setdefault(item.cell.line, []).append(item)
    middle = (sorted(line, key=lambda item: item.cell.work.horizon)[len(line) // 2] for line in lines.values())
    return [replace(item, missing=item.missing[:1]) for item in middle]


def jobs(remaining: Sequence[Remaining]) -> list[tuple[Cell, Job]]:
    """The missing replications in jobs of a few seconds; each has consecutive replications."""
    result = []
    for item in remaining:
        size = max(1, int(BUNDLE_SECONDS / item.seconds)) if item.seconds > 0.0 else 1
        for start, stop in _stretches(item.missing):
            for first in range(start, stop, size):
                some = range(first, min(first + size, stop))
                result.append((item.cell, replace(item.cell.work, replications=some)))
    return result


def _stretches(numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive numbers as (first, last + 1).

    >>> _stretches([0, 1, 2, 5, 6])
    [(0, 3), (5, 7)]
    """
    spans: list[tuple[int, int]] = []
    for i in numbers:
        if spans and spans[-1][1] == i:
            spans[-1] = (spans[-1][0], i + 1)
        else:
            spans.append((i, i + 1))
    return spans


def execute(
    remaining: Sequence[Remaining],
    store: Store,
    *,
    workers: int = -1,
    engine: str | None = None,
    progress: OnProgress | None = None,
) -> None:
    """Compute the missing replications and store them.

    Parameters
    ----------
    remaining : sequence of Remaining
        The missing replications.
    store : Store
        Where results are written.
    workers : int
        Processes; -1 for one per core.
    engine : str, optional
        Engine of the simulation.
    progress : callable, optional
        Called with the number of replications just done and their estimated seconds.
    """
    work = jobs(remaining)
    costs = {item.cell.key: item.seconds for item in remaining}
    for i, outcomes in run_jobs([job for _, job in work], workers=workers, engine=engine):
        cell, job = work[i]
        store.write(cell, dict(zip(job.replications, outcomes, strict=True)))
        if progress:
            progress(len(outcomes), len(outcomes) * float(np.nan_to_num(costs[cell.key])))


def results(cells: Iterable[Cell], store: Store, *, partial: bool = False) -> list[tuple[Cell, Result]]:
    """The cells with complete results, or with ``partial`` also incomplete ones, and their results."""
    all_results = ((cell, store.result(cell, partial=partial)) for cell in cells)
    return [(cell, result) for cell, result in all_results if result is not None]


def processes(workers: int) -> int:
    """The number of processes on this machine."""
    return int(joblib.cpu_count()) if workers_of(workers) == -1 else workers
