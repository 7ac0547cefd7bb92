"""Many replications, over the cores of a machine or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt

from hushprice.errors import HushpriceError, InvalidInput, positive_int
from hushprice.markets import Market
from hushprice.policies import Policy
from hushprice.simulation.engine import Outcome, replicate
from hushprice.simulation.results import Comparison, Result

Progress = Callable[[int], None]


def simulate(
    policy: Policy,
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
    _check_pair(policy, market)
    rounds = _checkpoints(checkpoints, horizon)
    _warm_up(policy, market)
    outcomes: list[Outcome | None] = [None] * replications
    task = joblib.delayed(_task)
    with _engine(engine, workers):
        parallel = joblib.Parallel(n_jobs=_workers(workers), return_as="generator_unordered")
        calls = (task(policy, market, horizon, seed, i, rounds) for i in range(replications))
        for i, outcome in parallel(calls):
            outcomes[i] = outcome
            if progress:
                progress(1)
    done = [outcome for outcome in outcomes if outcome is not None]
    return Result(
        policy=policy.name,
        market=market.name,
        dim=market.dim,
        horizon=horizon,
        seed=seed,
        config=policy.config(),
        checkpoints=rounds,
        paths=np.stack([o.path for o in done]),
        revenue=np.array([o.revenue for o in done]),
        exploration=np.array([o.exploration for o in done]),
        seconds=np.array([o.seconds for o in done]),
    )


def compare(policies: Mapping[str, Policy] | Iterable[Policy], market: Market, **options: Any) -> Comparison:
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
        _check_pair(policy, market)
    return Comparison({label: simulate(policy, market, **options) for label, policy in policies.items()})


def _task(
    policy: Policy, market: Market, horizon: int, seed: int, i: int, rounds: npt.NDArray[np.int64]
) -> tuple[int, Outcome]:
    _warm_up(policy, market)
    return i, replicate(policy, market, horizon=horizon, seed=seed, replication=i, checkpoints=rounds)


_warm: set[tuple[type[Policy], str]] = set()


def _warm_up(policy: Policy, market: Market) -> None:
    """Load or compile the kernels once a process, so that no replication's seconds hold it."""
    key = (type(policy), market.family.name)
    if key not in _warm:
        _warm.add(key)
        # planned for a short horizon, so that every phase of the policy is reached
        brief = replace(policy, horizon=16) if "horizon" in {f.name for f in fields(policy)} else policy  # type: ignore[call-arg]
        short = np.array([2000], dtype=np.int64)
        replicate(brief, market, horizon=2000, seed=0, replication=0, checkpoints=short)


def _check_pair(policy: Policy, market: Market) -> None:
    if not isinstance(policy, Policy):
        raise InvalidInput(f"policy must be a hushprice policy, got {type(policy).__name__}.")
    if not isinstance(market, Market):
        raise InvalidInput(f"market must be a hushprice market such as markets.s1(dim=4), got {type(market).__name__}.")
    if policy.dim != market.dim:
        raise InvalidInput(f"The policy has dim={policy.dim} but the market's contexts have length {market.dim}.")
    if policy.prices[0] < market.prices[0] or policy.prices[1] > market.prices[1]:
        raise InvalidInput(f"The policy's prices {policy.prices} leave the market's range {market.prices}.")
    if policy.cost != market.cost:
        raise InvalidInput(f"The policy's unit cost is {policy.cost:g} but the market's is {market.cost:g}.")


def _checkpoints(wanted: int | npt.ArrayLike, horizon: int) -> npt.NDArray[np.int64]:
    if np.ndim(wanted) == 0:
        count = min(positive_int("checkpoints", wanted), horizon)
        return np.unique(np.linspace(horizon / count, horizon, count).round().astype(np.int64))
    values = np.asarray(wanted)
    whole = values.ndim == 1 and values.dtype.kind in "iuf" and np.isfinite(values).all()
    if not whole or not (values == np.floor(values)).all():
        raise InvalidInput("checkpoints must be a number of them or a list of rounds.")
    rounds = np.unique(np.append(values.astype(np.int64), horizon))
    if rounds[0] < 1 or rounds[-1] > horizon:
        raise InvalidInput(f"checkpoints must be rounds between 1 and the horizon {horizon}.")
    return rounds


def _workers(workers: int) -> int:
    return -1 if workers == -1 else positive_int("workers", workers)


@contextmanager
def _engine(engine: str | None, workers: int) -> Iterator[None]:
    """The joblib backend: this machine's processes, or a Dask cluster."""
    if engine is None:
        # One thread a worker: the kernels use no other, and BLAS threads would only get in each other's way.
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            yield
        return
    if engine != "dask" and not str(engine).startswith("dask://"):
        raise InvalidInput(f"engine must be None, 'dask' or 'dask://host:port', got {engine!r}.")
    try:
        from dask.distributed import Client, get_client
    except ImportError:
        raise HushpriceError("A Dask engine needs Dask: pip install 'hushprice[dask]'.") from None
    if engine == "dask":
        try:
            get_client()
        except ValueError:
            raise InvalidInput(
                "engine='dask' needs a Dask client in force: create dask.distributed.Client first."
            ) from None
        with joblib.parallel_config(backend="dask"):
            yield
        return
    with Client("tcp://" + engine.removeprefix("dask://")), joblib.parallel_config(backend="dask"):
        yield
