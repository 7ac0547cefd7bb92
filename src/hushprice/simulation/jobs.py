"""Replications in jobs, over the cores of a machine or a Dask cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace

import joblib
import numpy as np
import numpy.typing as npt

from hushprice.errors import HushpriceError, InvalidInput, positive_int
from hushprice.markets import Market
from hushprice.policies import Policy
from hushprice.policies.base import is_policy
from hushprice.simulation.engine import Outcome, replicate
from hushprice.simulation.near_truth import NearTruth, Simulated, Today, plain


@dataclass(frozen=True, kw_only=True, eq=False)
class Job:
    """Some replications of a policy in a market: the unit of work that is sent to a worker."""

    policy: Simulated
    market: Market
    horizon: int
    seed: int
    checkpoints: npt.NDArray[np.int64]
    replications: range


def run_jobs(
    jobs: Sequence[Job], *, workers: int = 1, engine: str | None = None
) -> Iterator[tuple[int, list[Outcome]]]:
    """Run jobs, begun in their order; gives (place in the sequence, outcomes) as they finish."""
    for job in jobs:
        _warm_up(job.policy, job.market)
    task = joblib.delayed(_task)
    with _engine(engine):
        parallel = joblib.Parallel(n_jobs=workers_of(workers), return_as="generator_unordered")
        try:
            yield from parallel(task(i, job) for i, job in enumerate(jobs))
        except BrokenProcessPool:
            raise HushpriceError(
                "A worker process died, for want of memory perhaps. Try again with fewer workers."
            ) from None


def _task(i: int, job: Job) -> tuple[int, list[Outcome]]:
    _warm_up(job.policy, job.market)
    outcomes = [
        replicate(
            job.policy, job.market, horizon=job.horizon, seed=job.seed, replication=r,
            checkpoints=job.checkpoints,
        )
        for r in job.replications
    ]  # fmt: skip
    return i, outcomes


_warm: set[tuple[type[Policy], str]] = set()


def _warm_up(policy: Simulated, market: Market) -> None:
    """Load or compile the kernels once per process, so that no replication's seconds include it."""
    if isinstance(policy, Today):
        return
    key = (type(plain(policy)), market.family.name)
    if key not in _warm:
        _warm.add(key)
        # planned for a short horizon, so that every phase of the policy is reached
        known = {f.name for f in fields(plain(policy))}
        brief = replace(plain(policy), horizon=16) if "horizon" in known else plain(policy)  # type: ignore[call-arg]
        short = np.array([2000], dtype=np.int64)
        replicate(brief, market, horizon=2000, seed=0, replication=0, checkpoints=short)


def check_pair(policy: Simulated, market: Market) -> None:
    """Refuse a policy that does not fit the market."""
    if not (is_policy(policy) or isinstance(policy, (NearTruth, Today))):
        raise InvalidInput(f"policy must be a hushprice policy, got {type(policy).__name__}.")
    if not isinstance(market, Market):
        raise InvalidInput(f"market must be a hushprice market such as markets.s1(dim=4), got {type(market).__name__}.")
    if isinstance(policy, Today):
        policy.check(market)
        return
    one = plain(policy)
    if one.dim != market.dim:
        raise InvalidInput(f"The policy has dim={one.dim} but the market's contexts have length {market.dim}.")
    if one.prices[0] < market.prices[0] or one.prices[1] > market.prices[1]:
        raise InvalidInput(f"The policy's prices {one.prices} leave the market's range {market.prices}.")
    if one.cost != market.cost:
        raise InvalidInput(f"The policy's unit cost is {one.cost:g} but the market's is {market.cost:g}.")
    if one.rules != market.rules:
        raise InvalidInput("The policy and the market have different rules: pass rules=market.rules to the policy.")


def rounds_of(checkpoints: int | npt.ArrayLike, horizon: int) -> npt.NDArray[np.int64]:
    """The rounds at which regret is recorded: a number of evenly spaced ones, or a list; the horizon is always one."""
    if np.ndim(checkpoints) == 0:
        count = min(positive_int("checkpoints", checkpoints), horizon)
        return np.unique(np.linspace(horizon / count, horizon, count).round().astype(np.int64))
    values = np.asarray(checkpoints)
    whole = values.ndim == 1 and values.dtype.kind in "iuf" and np.isfinite(values).all()
    if not whole or not (values == np.floor(values)).all():
        raise InvalidInput("checkpoints must be a number of them or a list of rounds.")
    rounds = np.unique(np.append(values.astype(np.int64), horizon))
    if rounds[0] < 1 or rounds[-1] > horizon:
        raise InvalidInput(f"checkpoints must be rounds between 1 and the horizon {horizon}.")
    return rounds


def workers_of(workers: int) -> int:
    """-1 for all cores, or a number of processes."""
    return -1 if workers == -1 else positive_int("workers", workers)


def check_engine(engine: str | None) -> None:
    """Refuse what is neither this machine nor a Dask cluster."""
    if engine not in (None, "dask") and not re.fullmatch(r"dask://[^/:]+:[0-9]+", str(engine)):
        raise InvalidInput(f"engine must be None, 'dask' or 'dask://host:port', got {engine!r}.")


@contextmanager
def _engine(engine: str | None) -> Iterator[None]:
    """The joblib backend: this machine's processes, or a Dask cluster."""
    if engine is None:
        # One thread per worker: the kernels use no other, and BLAS threads would compete for the cores.
        with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
            yield
        return
    check_engine(engine)
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
    try:
        client = Client("tcp://" + engine.removeprefix("dask://"))
    except (OSError, ValueError) as problem:
        raise HushpriceError(f"There is no Dask scheduler at {engine}: {problem}.") from None
    with client, joblib.parallel_config(backend="dask"):
        yield
