"""One replication: a policy sells to the customers of a market, round after round.

Randomness is data: replication i of a seed has one stream per purpose, ``SeedSequence(seed, spawn_key=(i, k))`` with
k = 0 for contexts, 1 for demand, 2 for the policy's price experiments, 3 for the noise of private reports, 4 for who
agrees to send raw records, 5 for a policy that is drawn anew in each replication and 6 for a truth that is. Customers
therefore do not depend on the policy, and nothing depends on which worker runs what.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np

from hushprice.arrays import Array
from hushprice.markets import Market
from hushprice.privacy import UnsafeSeed
from hushprice.simulation.near_truth import NearTruth, Simulated

CONTEXTS, DEMAND, EXPLORATION, PRIVACY, CHOICES, POLICY, TRUTH = range(7)


@dataclass(frozen=True)
class Outcome:
    """What one replication leaves behind: the regret path at the checkpoints, and means over its customers.

    ``deviation`` is the mean distance of a price from the greedy one, which the estimate of the moment makes best, in
    price ranges; ``far`` the share of prices more than a tenth of the range away from it.
    Seconds are CPU time of its thread, so that a busy machine does not make a policy look slow.
    """

    path: Array
    revenue: float
    exploration: float
    seconds: float
    deviation: float = math.nan
    far: float = math.nan


@dataclass
class Trace:
    """Prices and outcomes of every round, for tests and small studies."""

    prices: Array
    y: Array


def streams(seed: int, replication: int) -> tuple[np.random.SeedSequence, ...]:
    """Seed sequences of a replication for contexts, demand, exploration, privacy, choices, the policy and the truth."""
    return tuple(np.random.SeedSequence(seed, spawn_key=(replication, k)) for k in range(7))


def replicate(
    policy: Simulated,
    market: Market,
    *,
    horizon: int,
    seed: int,
    replication: int,
    checkpoints: np.ndarray[tuple[int], np.dtype[np.int64]],
    trace: Trace | None = None,
) -> Outcome:
    """Run one replication. Memory does not grow with the horizon but for what the policy itself records."""
    began = time.thread_time()
    seeds = streams(seed, replication)
    contexts, demand, exploration, choices = (
        np.random.Generator(np.random.PCG64(seeds[k])) for k in (CONTEXTS, DEMAND, EXPLORATION, CHOICES)
    )
    if isinstance(policy, NearTruth):
        policy = policy.draw(np.random.Generator(np.random.PCG64(seeds[POLICY])))
    market = market.truth(np.random.Generator(np.random.PCG64(seeds[TRUTH])))
    loop = policy.loop(UnsafeSeed(seeds[PRIVACY]))
    path = np.empty(len(checkpoints))
    regret, revenue, explored, deviation, far = 0.0, 0.0, 0, 0.0, 0.0
    done, k = 0, 0
    for block in market.blocks(contexts, demand, horizon, choices=choices):
        sold = loop.sell(block, exploration)
        prices = sold.price
        n, start = len(prices), 0
        while k < len(checkpoints) and checkpoints[k] <= done + n:
            stop = int(checkpoints[k]) - done
            regret += float(block.regret[start:stop].sum())
            path[k], start, k = regret, stop, k + 1
        regret += float(block.regret[start:].sum())
        revenue += block.earned(prices)
        explored += sold.explored
        deviation += sold.deviation
        far += sold.far
        if trace is not None:
            trace.prices[done : done + n], trace.y[done : done + n] = prices, block.y
        done += n
    seconds = time.thread_time() - began
    return Outcome(path, revenue, explored / horizon, seconds, deviation / horizon, far / horizon)
