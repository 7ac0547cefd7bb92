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

OnProgress = Callable[[int], None]


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
    progress: OnProgress | None = None,
) -> Result:
    """Run a policy in a market.

    Parameters
    ----------
    policy, market
        What is simulated; their dimension, prices, unit cost and rules must fit.
    horizon
        Number of customers in each replication.
    replications
        Number of independent replications.
    seed
        Seed of all random streams. Customers depend on it alone, not on the policy.
    workers
        Processes on this machine; -1 uses all cores. The numbers do not depend on it.
    checkpoints
        Rounds at which regret is recorded, or how many evenly spaced ones; the horizon is always one.
    engine
        None for this machine, ``"dask"`` for the current Dask client, ``"dask://host:port"`` for a scheduler.
    progress
        Called with the number of replications just finished.

    Returns
    -------
    Result
        Regret paths, revenue, share of experiments and CPU seconds of every replication.

    Raises
    ------
    InvalidInput
        If the policy does not fit the market, or a number is out of range.

    Examples
    --------
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
    """Run several policies on the same customers.

    Parameters
    ----------
    policies
        Policies by label, or a list of policies, which are then labelled with their names.
    market
        The market that all of them sell in.
    **options
        As for :func:`simulate`.

    Returns
    -------
    Comparison
        A result for each label.

    Raises
    ------
    InvalidInput
        If there is no policy, two have the same name, or one does not fit the market.
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
