"""A policy in live use, customer by customer, next to the same customers in a simulation."""

from __future__ import annotations

import numpy as np

from hushprice import markets
from hushprice.arrays import Array
from hushprice.markets import Arrivals, Block, Market
from hushprice.policies import Offer, Policy
from hushprice.simulation import Trace, replicate, streams

HORIZON = 700


def world_for(policy: Policy) -> Market:
    """A market that fits the policy."""
    return markets.s1(dim=policy.dim, family=policy.family, cost=policy.cost, public=0.3)


def run_batch(policy: Policy, market: Market, *, horizon: int = HORIZON, seed: int = 5) -> Trace:
    """One replication by the simulation engine, with every price and outcome."""
    trace = Trace(np.empty(horizon), np.empty(horizon))
    last = np.array([horizon], dtype=np.int64)
    replicate(policy, market, horizon=horizon, seed=seed, replication=0, checkpoints=last, trace=trace)
    return trace


class LiveLoop:
    """The same customers as :func:`run_batch`, sold to one at a time."""

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
        """What customer t buys at this price."""
        return float(self._customers.buy(slice(t, t + 1), np.array([price]))[0])

    def offer(self, t: int) -> Offer:
        """What customer t is offered."""
        cost = None if self.cost is None else float(self.cost[t])
        segment = None if self.segment is None else self.market.segments[self.segment[t]]
        return self.pricer.offer(self.z[t], public=bool(self.public[t]), cost=cost, segment=segment)

    def run(self, start: int, stop: int) -> tuple[Array, Array]:
        """Offer and observe at once, customers start to stop."""
        prices, y = np.empty(stop - start), np.empty(stop - start)
        for t in range(start, stop):
            offer = self.offer(t)
            prices[t - start], y[t - start] = offer.price, self.outcome(t, offer.price)
            self.pricer.observe(offer, y[t - start])
        return prices, y
