"""How regret grows with d and T: least squares of log(mean regret) on log d and log T with a known log-log offset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, finite, positive_int
from hushprice.files import without_nan
from hushprice.markets import Market
from hushprice.simulation.near_truth import Simulated
from hushprice.simulation.results import Result
from hushprice.simulation.simulate import OnProgress, simulate

DUST = 1e-6  # a regret this small is rounding


@dataclass(frozen=True, kw_only=True, eq=False)
class Scaling:
    """log(mean regret) = intercept + slope_d log d + slope_T log T + offset log log T, fitted to results.

    ``se_d`` and ``se_T`` are the standard errors of the least squares, NaN when there are no more points than
    coefficients. A slope is NaN when its variable never varies.

    Attributes
    ----------
    results : tuple of Result
        The results that it is fitted to.
    offset : float
        The coefficient of log log T, which is not fitted.
    intercept, slope_d, slope_T : float
        The fitted coefficients.
    se_d, se_T : float
        Standard errors of the slopes.
    """

    results: tuple[Result, ...]
    offset: float
    intercept: float
    slope_d: float
    slope_T: float  # noqa: N815 (the paper's T)
    se_d: float
    se_T: float  # noqa: N815

    def __repr__(self) -> str:
        like = " ".join(f"{name}^{slope:.2f}" for name, slope, _ in self.slopes())
        where = f"{self.results[0].policy} in {self.results[0].market}"
        return f"<Scaling of {where}: regret grows like {like} (log T)^{self.offset:g}>"

    def slopes(self) -> list[tuple[str, float, float]]:
        """(variable, slope, standard error) of those that were fitted."""
        both = (("d", self.slope_d, self.se_d), ("T", self.slope_T, self.se_T))
        return [known for known in both if np.isfinite(known[1])]

    def predict(self, d: Any, T: Any) -> Array:
        """The fitted regret; NaN away from the only value of a variable that never varied.

        Parameters
        ----------
        d, T : array_like
            Number of features, and of customers.

        Returns
        -------
        ndarray
            The regret, with d and T broadcast together.
        """
        slopes = np.nan_to_num([self.slope_d, self.slope_T])
        log_T = np.log(T)
        fitted = np.exp(self.intercept + slopes[0] * np.log(d) + slopes[1] * log_T) * log_T**self.offset
        for value, slope, name in ((d, self.slope_d, "dim"), (T, self.slope_T, "horizon")):
            if np.isnan(slope):
                fitted = np.where(np.equal(value, getattr(self.results[0], name)), fitted, np.nan)
        return np.asarray(fitted)[()]

    def to_dict(self) -> dict[str, Any]:
        """Slopes and the mean regret of every cell, as plain data."""
        numbers = ("offset", "intercept", "slope_d", "slope_T", "se_d", "se_T")
        plain = {name: getattr(self, name) for name in numbers}
        cleaned: dict[str, Any] = without_nan(plain | {"cells": [_cell(r) for r in self.results]})
        return cleaned


def _cell(result: Result) -> dict[str, Any]:
    s = result.summary()
    names = ("policy", "market", "dim", "horizon", "replications", "mean", "sd", "se", "exploration", "seconds")
    return {name: getattr(s, name) for name in names}


def fit_scaling(results: Iterable[Result], *, offset: float = 0.0) -> Scaling:
    """Fit the growth of regret to results of one policy at several d or T.

    Parameters
    ----------
    results : iterable of Result
        Results of one policy at several d or T.
    offset : float
        The coefficient of log log T, which is not fitted.

    Returns
    -------
    Scaling
        The fit.

    Examples
    --------
    >>> from hushprice import markets, policies, simulate
    >>> runs = []
    >>> for T in (1_000, 4_000, 16_000):
    ...     policy = policies.ETC(family="logistic", dim=1, prices=(0, 3), horizon=T)
    ...     runs.append(simulate(policy, markets.s1(dim=1), horizon=T, replications=30, seed=1))
    >>> 0.3 < fit_scaling(runs, offset=0.5).slope_T < 0.7
    True
    """
    cells = tuple(results) if isinstance(results, Iterable) else ()
    offset = finite("offset", offset)
    if not cells or not all(isinstance(r, Result) for r in cells):
        raise InvalidInput("A scaling fit needs results, as simulate gives them.")
    if len({r.policy for r in cells}) != 1 or len({r.market for r in cells}) != 1:
        raise InvalidInput("A scaling fit needs results of one policy in one market.")
    d, T = (np.array([getattr(r, name) for r in cells], dtype=float) for name in ("dim", "horizon"))
    mean = np.array([r.regret.mean() for r in cells])
    if (mean <= DUST).any() or (T < 3).any():
        raise InvalidInput("A scaling fit needs regrets above 0 (more than rounding) and horizons of at least 3.")
    varies = [len(np.unique(d)) > 1, len(np.unique(T)) > 1]
    if not any(varies):
        raise InvalidInput("A scaling fit needs at least two values of d or of T.")
    columns = [np.ones(len(cells))] + [np.log(v) for v, keep in zip((d, T), varies, strict=True) if keep]
    design = np.column_stack(columns)
    response = np.log(mean) - offset * np.log(np.log(T))
    coefficients, _, rank, _ = np.linalg.lstsq(design, response)
    if rank < design.shape[1]:
        raise InvalidInput("d and T vary together in these results: their slopes cannot be separated.")
    spare = len(cells) - design.shape[1]
    residual = response - design @ coefficients
    variance = residual @ residual / spare if spare > 0 else np.nan
    errors = np.sqrt(np.diag(np.linalg.inv(design.T @ design)) * variance)
    slopes, ses, place = [np.nan, np.nan], [np.nan, np.nan], 1
    for i in (0, 1):
        if varies[i]:
            slopes[i], ses[i], place = float(coefficients[place]), float(errors[place]), place + 1
    return Scaling(
        results=cells, offset=offset, intercept=float(coefficients[0]),
        slope_d=slopes[0], slope_T=slopes[1], se_d=ses[0], se_T=ses[1],
    )  # fmt: skip


def check_grid(dims: Sequence[int], horizons: Sequence[int], *, offset: float = 0.0) -> None:
    """Refuse a grid that no slope can be fitted to, before it is simulated."""
    finite("offset", offset)
    for T in horizons:
        positive_int("horizon", T, minimum=3)
    if not len(dims) or not len(horizons) or max(len(set(dims)), len(set(horizons))) < 2:
        raise InvalidInput("A scaling fit needs at least two values of d or of T.")


def scale(
    cell: Callable[[int, int], tuple[Simulated, Market]],
    *,
    dims: Sequence[int],
    horizons: Sequence[int],
    offset: float = 0.0,
    replications: int = 100,
    seed: int = 0,
    workers: int = 1,
    engine: str | None = None,
    progress: OnProgress | None = None,
) -> Scaling:
    """Simulate the policy and market that ``cell(d, T)`` gives, at every d and T, and fit the growth of regret.

    Parameters
    ----------
    cell : callable
        Gives (policy, market) for d and T.
    dims, horizons : sequence of int
        The values of d and of T, of which every pair is simulated.
    offset : float
        The coefficient of log log T, which is not fitted.
    replications : int
        Replications per pair.
    seed : int
        Seed of the simulations.
    workers : int
        Processes on this machine; -1 uses all cores. The numbers do not depend on it.
    engine : str, optional
        None for this machine, ``"dask"`` for the current Dask client, ``"dask://host:port"`` for a scheduler.
    progress : callable, optional
        Called with the number of replications just finished.

    Returns
    -------
    Scaling
        The fit, with the results.
    """
    check_grid(dims, horizons, offset=offset)
    results = []
    for d in (positive_int("dim", n) for n in dims):
        for T in (positive_int("horizon", n) for n in horizons):
            policy, market = cell(d, T)
            results.append(
                simulate(
                    policy, market, horizon=T, replications=replications, seed=seed, workers=workers, checkpoints=1,
                    engine=engine, progress=progress,
                )
            )  # fmt: skip
    return fit_scaling(results, offset=offset)
