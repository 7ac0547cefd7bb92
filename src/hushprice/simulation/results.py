"""What simulations give back."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from hushprice.arrays import Array
from hushprice.errors import InvalidInput, finite, unknown
from hushprice.files import without_nan
from hushprice.intervals import student
from hushprice.simulation.engine import Outcome
from hushprice.simulation.jobs import Job


@dataclass(frozen=True)
class Summary:
    """The figures of one policy in one market.

    Regret is the expected revenue lost against quoting every customer the best price: ``mean``, ``sd``, ``se``
    and ``median`` describe it over replications, and [``low``, ``high``] is an interval for its mean at ``level``.
    ``revenue`` (realised, net of unit cost), ``exploration`` (share of rounds whose price was not just the one that
    looks best: experiments, and every round of the policies that bend each price to learn, such as Semi-Myopic, UCB and
    Thompson sampling), ``deviation`` (mean distance of a price from the greedy one, which the estimate of the moment
    makes best, in price ranges), ``far`` (share of prices more than a tenth of the range away from it) and ``seconds``
    (of computing) are means over replications. ``p95`` is the regret that one replication in twenty exceeds.
    """

    policy: str
    market: str
    dim: int
    horizon: int
    replications: int
    mean: float
    sd: float
    se: float
    low: float
    high: float
    level: float
    median: float
    revenue: float
    exploration: float
    seconds: float
    p95: float = math.nan
    deviation: float = math.nan
    far: float = math.nan


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """Replications of one policy in one market.

    Attributes
    ----------
    policy, market : str
        Names of the policy and the market.
    dim, horizon : int
        Number of features, and of customers per replication.
    seed : int
        Seed of the simulation.
    config : dict
        The configuration of the policy.
    checkpoints : ndarray of int
        The rounds at which ``paths`` has the regret.
    paths : ndarray
        Cumulative regret: one row per replication, one column per checkpoint.
    revenue : ndarray
        Realised revenue net of unit cost, one number per replication.
    exploration : ndarray
        Share of rounds whose price was bent to learn, one number per replication.
    seconds : ndarray
        Computing time, one number per replication.
    deviation : ndarray
        Mean distance of a price from the greedy one, in price ranges, one number per replication; NaN if unknown.
    far : ndarray
        Share of prices more than a tenth of the range away from the greedy one, one number per replication; NaN if
        unknown.
    """

    policy: str
    market: str
    dim: int
    horizon: int
    seed: int
    config: dict[str, Any]
    checkpoints: npt.NDArray[np.int64]
    paths: Array
    revenue: Array
    exploration: Array
    seconds: Array
    deviation: Array
    far: Array

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], job: Job) -> Result:
        """From the outcomes of replications 0, 1, ... of what a job is about.

        Parameters
        ----------
        outcomes : sequence of Outcome
            The outcomes of replications 0, 1, ...
        job : Job
            The job that they belong to.
        """
        return cls(
            policy=job.policy.name,
            market=job.market.name,
            dim=job.market.dim,
            horizon=job.horizon,
            seed=job.seed,
            config=job.policy.config(),
            checkpoints=job.checkpoints,
            paths=np.stack([o.path for o in outcomes]),
            revenue=np.array([o.revenue for o in outcomes]),
            exploration=np.array([o.exploration for o in outcomes]),
            seconds=np.array([o.seconds for o in outcomes]),
            deviation=np.array([o.deviation for o in outcomes]),
            far=np.array([o.far for o in outcomes]),
        )

    def __repr__(self) -> str:
        s = self.summary()
        return (
            f"<Result {s.policy} in {s.market}, d={s.dim}, T={s.horizon}: mean regret {s.mean:.1f} "
            f"({s.low:.1f} to {s.high:.1f}) over {s.replications} replications>"
        )

    @property
    def regret(self) -> Array:
        """Regret at the horizon, one number per replication."""
        return self.paths[:, -1]

    @property
    def replications(self) -> int:
        """Number of replications."""
        return len(self.paths)

    def summary(self, *, level: float = 0.99) -> Summary:
        """Means, and a t interval of confidence ``level`` for the mean regret.

        Parameters
        ----------
        level : float
            Confidence level of the interval.
        """
        regret, n = self.regret, self.replications
        mean = float(regret.mean())
        sd = float(regret.std(ddof=1)) if n > 1 else float("nan")
        se = sd / float(np.sqrt(n))
        reach = _reach(se, n, level)
        return Summary(
            policy=self.policy,
            market=self.market,
            dim=self.dim,
            horizon=self.horizon,
            replications=n,
            mean=mean,
            sd=sd,
            se=se,
            low=mean - reach,
            high=mean + reach,
            level=level,
            median=float(np.median(regret)),
            revenue=float(self.revenue.mean()),
            exploration=float(self.exploration.mean()),
            seconds=float(self.seconds.mean()),
            p95=float(np.quantile(regret, 0.95)),
            deviation=float(self.deviation.mean()),
            far=float(self.far.mean()),
        )

    def path_mean(self) -> Array:
        """Mean regret at the checkpoints."""
        return np.asarray(self.paths.mean(axis=0))

    def path_sd(self) -> Array:
        """Standard deviation of the regret at the checkpoints (NaN for one replication)."""
        if self.replications == 1:
            return np.full(len(self.checkpoints), np.nan)
        return np.asarray(self.paths.std(axis=0, ddof=1))

    def path_quantiles(self, q: float | Sequence[float]) -> Array:
        """Quantiles of the regret at the checkpoints.

        Parameters
        ----------
        q : float or sequence of float
            Levels of the quantiles.

        Returns
        -------
        ndarray
            One row per level, one column per checkpoint; without rows for a single level.
        """
        return np.asarray(np.quantile(self.paths, q, axis=0))

    def to_dict(self) -> dict[str, Any]:
        """Summary, regrets and the mean path, as plain data (NaN as None)."""
        plain = {
            "summary": asdict(self.summary()),
            "seed": self.seed,
            "config": self.config,
            "regret": self.regret.tolist(),
            "path": {
                "round": self.checkpoints.tolist(),
                "mean": self.path_mean().tolist(),
                "sd": self.path_sd().tolist(),
            },
        }
        cleaned: dict[str, Any] = without_nan(plain)
        return cleaned


@dataclass(frozen=True, eq=False)
class Comparison(Mapping[str, Result]):
    """Results of several policies that sold to the same customers, by label.

    Attributes
    ----------
    results : dict of str to Result
        The results, by label.
    """

    results: dict[str, Result]

    def __repr__(self) -> str:
        """One line per policy."""
        return "\n".join(f"{label}: {result!r}" for label, result in self.results.items())

    def __getitem__(self, label: str) -> Result:
        return self.results[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def summaries(self) -> dict[str, Summary]:
        """A summary for each policy."""
        return {label: result.summary() for label, result in self.results.items()}

    def difference(self, first: str, second: str, *, level: float = 0.99) -> tuple[float, float, float]:
        """Mean of regret(first) - regret(second) with a paired interval: (mean, low, high).

        Parameters
        ----------
        first, second : str
            Labels of two results.
        level : float
            Confidence level of the interval.

        Returns
        -------
        tuple of float
            Mean, low and high.
        """
        for label in (first, second):
            if label not in self.results:
                raise unknown("policy in this comparison", label, self.results)
        gap = self.results[first].regret - self.results[second].regret
        se = float(gap.std(ddof=1) / np.sqrt(len(gap))) if len(gap) > 1 else float("nan")
        reach = _reach(se, len(gap), level)
        return float(gap.mean()), float(gap.mean() - reach), float(gap.mean() + reach)

    def to_json(self) -> str:
        """Everything a machine may want."""
        return json.dumps({label: result.to_dict() for label, result in self.results.items()}, indent=2)

    def to_csv(self) -> str:
        """One row per policy."""
        return csv_text([{"label": label, **asdict(s)} for label, s in self.summaries().items()])


def _reach(se: float, n: int, level: float) -> float:
    """Half the length of a t interval; NaN for one replication."""
    level = finite("level", level)
    if not 0.0 < level < 1.0:
        raise InvalidInput(f"level must lie between 0 and 1, got {level!r}.")
    return student(n - 1, level) * se


def percentage(value: float) -> str:
    """A share for a table; empty if it is unknown.

    Examples
    --------
    >>> percentage(0.125), percentage(math.nan)
    ('12.5%', '')
    """
    return "" if math.isnan(value) else f"{value:.1%}"


def csv_text(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows with the same keys as CSV, with a header."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return buffer.getvalue()
