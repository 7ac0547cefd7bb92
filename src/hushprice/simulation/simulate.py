"""Many replications of one policy, or of several on the same customers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy.typing as npt

from hushprice.errors import InvalidInput, positive_int
from hushprice.markets import Market
from hushprice.simulation.engine import Outcome
from hushprice.simulation.jobs import Job, check_pair, rounds_of, run_jobs, workers_of
from hushprice.simulation.near_truth import Simulated
from hushprice.simulation.results import Comparison, Result

Progress = Callable[[int], None]


def simulate(
    policy: Simulated,
    market: Market,
    *,
    horizon: int,
    replications: int = 100,
    seed: int = 0,
    workers: int = 1,
    checkpoints: int | npt.ArrayLike = 100,
    engine: str | None = None,
    progress: Progress | None = None,
) -> Result:
    """Run a policy in a market.

    checkpoints: rounds at which the regret path is kept, or how many, evenly spaced; the horizon is always one.
    workers: processes on this machine (-1 for all cores). engine: ``"dask"`` for the Dask client in force,
    ``"dask://host:port"`` for a scheduler. The numbers depend on neither. progress: called with the number of
    replications just finished.

    >>> from hushprice import markets, policies
    >>> market = markets.s1(dim=2)
    >>> policy = policies.ETC(family="logistic", dim=2, prices=market.prices, horizon=2000)
    >>> result = simulate(policy, market, horizon=2000, replications=3, seed=1)
    >>> result.regret.shape
    (3,)
    """
    horizon, replications = positive_int("horizon", horizon), positive_int("replications", replications)
    seed = positive_int("seed", seed, minimum=0)
    check_pair(policy, market)
    rounds, workers = rounds_of(checkpoints, horizon), workers_of(workers)
    jobs = [
        Job(policy=policy, market=market, horizon=horizon, seed=seed, checkpoints=rounds, replications=range(i, i + 1))
        for i in range(replications)
    ]
    done: dict[int, Outcome] = {}
    for i, (outcome,) in run_jobs(jobs, workers=workers, engine=engine):
        done[i] = outcome
        if progress:
            progress(1)
    return Result.of([done[i] for i in range(replications)], jobs[0])


def compare(policies: Mapping[str, Simulated] | Iterable[Simulated], market: Market, **options: Any) -> Comparison:
    """Run several policies on the same customers; options as for :func:`simulate`.

    Policies come with labels, or as a list and are then labelled with their names.
    """
    if not isinstance(policies, Mapping):
        listed = list(policies)
        policies = {getattr(policy, "name", str(policy)): policy for policy in listed}
        if len(policies) < len(listed):
            raise InvalidInput("Two of the policies have the same name: give them labels, as in {'a': ..., 'b': ...}.")
    if not policies:
        raise InvalidInput("Give at least one policy to compare.")
    for policy in policies.values():
        check_pair(policy, market)
    return Comparison({label: simulate(policy, market, **options) for label, policy in policies.items()})
