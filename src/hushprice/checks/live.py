"""A policy in live use, one customer at a time, and the simulation with the same customers."""

from __future__ import annotations

import numpy as np

from hushprice import markets
from hushprice.arrays import Array
from hushprice.markets import Arrivals, Block, Market
from hushprice.policies import Offer, Policy
from hushprice.simulation import Trace, replicate, streams

HORIZON = 700


def world_for(policy: Policy) -> Market:
    """A market with the policy's dim, family and cost.

    Parameters
    ----------
    policy : Policy
        The policy.

    Returns
    -------
    Market
        The market.
    """
    return markets.s1(dim=policy.dim, family=policy.family, cost=policy.cost, public=0.3)


def run_batch(policy: Policy, market: Market, *, horizon: int = HORIZON, seed: int = 5) -> Trace:
    """One replication by the simulation engine.

    Parameters
    ----------
    policy : Policy
        The policy.
    market : Market
        The market to sell in.
    horizon : int
        Number of customers.
    seed : int
        Seed of the run.

    Returns
    -------
    Trace
        All prices and outcomes.
    """
    trace = Trace(np.empty(horizon), np.empty(horizon))
    last = np.array([horizon], dtype=np.int64)
    replicate(policy, market, horizon=horizon, seed=seed, replication=0, checkpoints=last, trace=trace)
    return trace


class LiveLoop:
    """The customers of :func:`run_batch`, one at a time through a :class:`~hushprice.policies.Pricer`.

    Parameters
    ----------
    policy, market, horizon, seed
        As for :func:`run_batch`.
    """

    def __init__(self, policy: Policy, market: Market, *, horizon: int = HORIZON, seed: int = 5) -> None:
        contexts, demand, exploration, privacy, choices = streams(seed, 0)[:5]
        who, what, agree = (np.random.default_rng(s) for s in (contexts, demand, choices))
        blocks = list(market.blocks(who, what, horizon, choices=agree))
        self.z = np.concatenate([block.z for block in blocks])
        self.cost = None if blocks[0].cost is None else np.concatenate([block.cost for block in blocks])
        self.segment = None if blocks[0].segment is None else np.concatenate([block.segment for block in blocks])
        self.uniforms = np.concatenate([block.uniforms for block in blocks])
        self.public = np.concatenate([block.public for block in blocks])
        self._customers = Block(market, Arrivals(self.z, self.cost, self.segment), self.uniforms)
        self.market, self.pricer = market, policy.start(seed=exploration, unsafe_privacy_seed=privacy)

    def outcome(self, t: int, price: float) -> float:
        """The outcome of customer t at this price.

        Parameters
        ----------
        t : int
            Number of the customer, from 0.
        price : float
            The price.
        """
        return float(self._customers.buy(slice(t, t + 1), np.array([price]))[0])

    def offer(self, t: int) -> Offer:
        """The pricer's offer to customer t.

        Parameters
        ----------
        t : int
            Number of the customer, from 0.
        """
        cost = None if self.cost is None else float(self.cost[t])
        segment = None if self.segment is None else self.market.segments[self.segment[t]]
        return self.pricer.offer(self.z[t], public=bool(self.public[t]), cost=cost, segment=segment)

    def run(self, start: int, stop: int) -> tuple[Array, Array]:
        """Offer to customers start to stop and observe each outcome immediately: (prices, outcomes).

        Parameters
        ----------
        start, stop : int
            Numbers of the first customer and of the one after the last.

        Returns
        -------
        tuple of ndarray
            Prices and outcomes.
        """
        prices, y = np.empty(stop - start), np.empty(stop - start)
        for t in range(start, stop):
            offer = self.offer(t)
            prices[t - start], y[t - start] = offer.price, self.outcome(t, offer.price)
            self.pricer.observe(offer, y[t - start])
        return prices, y
