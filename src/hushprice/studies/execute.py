"""Cells computed where they are missing: what is left to do, how long it will take, and doing it.

Before a long run, one replication of the middle cell of every line (same run, policy, market and d) is done and stored;
its seconds, by the customer, say what the rest will take. Cells are then computed in their order, in jobs of a few
seconds, each stored as soon as it is done: a run that is stopped goes on where it was, and how jobs are cut, or where
they run, changes no number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import joblib
import numpy as np

from hushprice.simulation import Job, Result, run_jobs, workers_of
from hushprice.studies.cells import Cell
from hushprice.studies.store import Store

BUNDLE_SECONDS = 8.0  # seconds of work that are sent at once, and lost when a run is killed
Progress = Callable[[int, float], None]


@dataclass(frozen=True)
class Remaining:
    """Replications of a cell that are missing, and what one of them takes."""

    cell: Cell
    missing: tuple[int, ...]
    seconds: float  # of computing, a replication; NaN when nothing like it has been run

    @property
    def cost(self) -> float:
        """Seconds of computing left."""
        return len(self.missing) * self.seconds


def outstanding(cells: Iterable[Cell], store: Store) -> list[Remaining]:
    """What is missing of these cells, each cell once, in their order."""
    longest: dict[str, tuple[Cell, tuple[int, ...], float]] = {}
    pace: dict[tuple[str, str, str, int], list[tuple[int, float]]] = {}
    for cell in cells:
        have = store.read(cell)
        seconds = float(np.mean([o.seconds for o in have.values()])) if have else float("nan")
        if have:
            pace.setdefault(cell.line, []).append((cell.work.horizon, seconds))
        missing = tuple(i for i in cell.work.replications if i not in have)
        if cell.key not in longest or len(longest[cell.key][1]) < len(missing):
            longest[cell.key] = (cell, missing, seconds)
    return [
        Remaining(cell, missing, _pace(cell, pace.get(cell.line, ())) if np.isnan(seconds) else seconds)
        for cell, missing, seconds in longest.values()
    ]


def _pace(cell: Cell, known: Sequence[tuple[int, float]]) -> float:
    """Seconds a replication, from those at the nearest horizon: proportional to the customers."""
    if not known:
        return float("nan")
    T, seconds = min(known, key=lambda pair: abs(np.log(pair[0] / cell.work.horizon)))
    return seconds * cell.work.horizon / T


def pilots(left: Sequence[Remaining]) -> list[Remaining]:
    """Of every line nothing is known of, the first replication missing of the cell in its middle."""
    lines: dict[tuple[str, str, str, int], list[Remaining]] = {}
    for item in left:
        if np.isnan(item.seconds) and item.missing:
            lines.setdefault(item.cell.line, []).append(item)
    middle = (sorted(line, key=lambda item: item.cell.work.horizon)[len(line) // 2] for line in lines.values())
    return [replace(item, missing=item.missing[:1]) for item in middle]


def jobs(left: Sequence[Remaining]) -> list[tuple[Cell, Job]]:
    """What is left, cut into jobs of consecutive replications of a few seconds."""
    cut = []
    for item in left:
        size = max(1, int(BUNDLE_SECONDS / item.seconds)) if item.seconds > 0.0 else 1
        for start, stop in _stretches(item.missing):
            for first in range(start, stop, size):
                some = range(first, min(first + size, stop))
                cut.append((item.cell, replace(item.cell.work, replications=some)))
    return cut


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
    left: Sequence[Remaining],
    store: Store,
    *,
    workers: int = -1,
    engine: str | None = None,
    progress: Progress | None = None,
) -> None:
    """Compute what is left. ``progress`` gets the replications just done and their estimated seconds."""
    work = jobs(left)
    costs = {item.cell.key: item.seconds for item in left}
    for i, outcomes in run_jobs([job for _, job in work], workers=workers, engine=engine):
        cell, job = work[i]
        store.write(cell, dict(zip(job.replications, outcomes, strict=True)))
        if progress:
            progress(len(outcomes), len(outcomes) * float(np.nan_to_num(costs[cell.key])))


def results(cells: Iterable[Cell], store: Store, *, partial: bool = False) -> list[tuple[Cell, Result]]:
    """The cells whose results are complete, or with ``partial`` begun."""
    all_results = ((cell, store.result(cell, partial=partial)) for cell in cells)
    return [(cell, result) for cell, result in all_results if result is not None]


def processes(workers: int) -> int:
    """How many processes that is on this machine."""
    return int(joblib.cpu_count()) if workers_of(workers) == -1 else workers
