"""Statistics of cells and their standard errors.

A statistic is any function of results. Its standard error is that of a jackknife over 50 groups of replications, so
that slopes, ratios and standard deviations need no formulas of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri, stdtr, stdtrit

from hushprice.arrays import Array
from hushprice.errors import InvalidInput
from hushprice.simulation import Result, fit_scaling

Pairs = list[tuple[Result, Result]]
JACKKNIFE_GROUPS = 50  # groups of replications for the jackknife
SUREST = 8.0  # largest normal score
SURE = 3.0  # standard errors that are significant with many replications


def sure(replications: int) -> float:
    """The number of standard errors with the significance of 3 known ones, by Student's t.

    >>> [round(sure(n), 1) for n in (500, 20, 5)]
    [3.2, 3.4, 6.6]
    """
    return float(-stdtrit(max(1, min(JACKKNIFE_GROUPS, replications) - 1), ndtr(-SURE)))


def jackknife(statistic: Callable[[Sequence[Result]], float], cells: Sequence[Result]) -> tuple[float, float, int]:
    """(value, standard error, replications) of a statistic; the error is NaN for fewer than three replications."""
    n = min(result.replications for result in cells)
    value = statistic(cells)
    groups = min(JACKKNIFE_GROUPS, n)
    if groups < 3:
        return value, math.nan, n
    left_out = [statistic([_without(result, k, groups) for result in cells]) for k in range(groups)]
    return value, math.sqrt((groups - 1) ** 2 / groups * float(np.var(left_out, ddof=1))), n


def _without(result: Result, k: int, groups: int) -> Result:
    return _selected(result, np.arange(result.replications) % groups != k)


def _selected(result: Result, mask: npt.NDArray[np.bool_]) -> Result:
    """The result of the replications in the mask."""
    return replace(
        result, paths=result.paths[mask], revenue=result.revenue[mask], exploration=result.exploration[mask],
        seconds=result.seconds[mask], deviation=result.deviation[mask], far=result.far[mask],
    )  # fmt: skip


def one(cells: Sequence[Result]) -> Result:
    """The only cell."""
    if len(cells) != 1:
        raise InvalidInput(f"A statistic of one cell was asked of {len(cells)}.")
    return cells[0]


def spread(values: Array) -> float:
    """Standard deviation; NaN for one replication."""
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan


def path_slope(result: Result, offset: float) -> float:
    """Slope of log(mean regret at t) - offset log log t in log t, over the checkpoints."""
    t = result.checkpoints.astype(float)
    response = np.log(result.path_mean()) - offset * np.log(np.log(t))
    return float(np.polyfit(np.log(t), response, 1)[0])


OF_CELLS: dict[str, Callable[[Sequence[Result], float], float]] = {
    "mean": lambda cells, _: float(one(cells).regret.mean()),
    "sd": lambda cells, _: spread(one(cells).regret),
    "seconds": lambda cells, _: float(one(cells).seconds.mean()),
    "seconds-sd": lambda cells, _: spread(one(cells).seconds),
    "slope-d": lambda cells, offset: fit_scaling(cells, offset=offset).slope_d,
    "slope-T": lambda cells, offset: fit_scaling(cells, offset=offset).slope_T,
    "path-slope": lambda cells, offset: path_slope(one(cells), offset),
}


def _ratios(pairs: Pairs) -> Array:
    return np.array([a.regret.mean() / b.regret.mean() for a, b in pairs])


OF_PAIRS: dict[str, Callable[[Pairs], float]] = {
    "ratio": lambda pairs: float(_ratios(pairs).mean()),
    "saving": lambda pairs: 100.0 * (1.0 - float(_ratios(pairs).mean())),
    "difference": lambda pairs: float(np.mean([a.regret.mean() - b.regret.mean() for a, b in pairs])),
    "seconds-ratio": lambda pairs: float(np.mean([a.seconds.mean() / b.seconds.mean() for a, b in pairs])),
}
RANGES = {"saving-range": "saving", "seconds-ratio-range": "seconds-ratio"}
"""Claims about every pair of cells, by the statistic of one pair."""


def folded(flat: Sequence[Result]) -> Pairs:
    """Pairs from their members, one after the other."""
    return [(flat[i], flat[i + 1]) for i in range(0, len(flat), 2)]


def lower(a: Result, b: Result, measure: str) -> float:
    """Significance of "a is lower than b": a normal score, positive if a is lower; 0 if it cannot be computed.

    measure: "regret" or "seconds" (means, on the same customers), "sd" (of the regret), "other customers" (means of
    regret of unrelated runs) or "a round" (the same for regret over T).
    """
    n = min(a.replications, b.replications)
    if measure == "sd":
        alike = [
            _selected(result, np.arange(result.replications) < n) for result in (a, b)
        ]  # the same replications, as rare ones dominate a standard deviation
        gap, se, n = jackknife(lambda some: spread(some[0].regret) - spread(some[1].regret), alike)
    elif measure in ("other customers", "a round"):
        one_a, one_b = (r.regret / (r.horizon if measure == "a round" else 1) for r in (a, b))
        gap = float(one_a.mean() - one_b.mean())
        se = math.hypot(*(spread(x) / math.sqrt(len(x)) for x in (one_a, one_b)))
    else:
        gaps = (a.seconds[:n] - b.seconds[:n]) if measure == "seconds" else (a.regret[:n] - b.regret[:n])
        gap, se = float(gaps.mean()), spread(gaps) / math.sqrt(n)
    if gap == 0.0 or n < 3 or math.isnan(se):
        return 0.0
    if se == 0.0:
        return math.copysign(SUREST, -gap)
    score = float(-ndtri(stdtr(n - 1, gap / se)))
    return max(-SUREST, min(SUREST, score))
