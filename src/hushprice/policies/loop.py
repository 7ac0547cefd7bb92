"""The loop over blocks of simulated customers, whose outcomes are known immediately.

A span is a run of customers under the same params. A policy that re-estimates every few customers overrides
:meth:`Loop.sell_span` with a compiled loop over the same steps, and :attr:`Loop.max_block` with the largest block that
its loop can take.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np

from hushprice.arrays import Array
from hushprice.demand import Segments, Terms, fresh
from hushprice.kernels.state import SimulatedDemand
from hushprice.policies.base import Device, Server
from hushprice.policies.exchange import Choices, Params, Quotes


class Customers(Protocol):
    """A block of n simulated customers, as :class:`Loop` needs them; ``hushprice.markets.Block`` is one.

    Attributes
    ----------
    z : ndarray of shape (n, d)
        Contexts.
    public : ndarray of shape (n,)
        Who agreed to send raw records.
    cost : ndarray of shape (n,) or None
        Unit cost per customer, if customers have their own.
    segment : ndarray of shape (n,) or None
        Number of each customer's segment, if there are segments.
    """

    z: Array
    public: Choices
    cost: Array | None
    segment: Segments | None

    def demand(self, rows: slice) -> SimulatedDemand:
        """Demand of the customers in ``rows``, for compiled loops."""
        ...

    def buy(self, rows: slice, prices: Array) -> Array:
        """Outcomes of the customers in ``rows`` at these prices."""
        ...


class Quoted(NamedTuple):
    """Prices of customers handled together, with what they deviate from.

    Parameters
    ----------
    price : ndarray of shape (n,)
        The quoted prices.
    greedy : ndarray of shape (n,) or None
        The greedy prices, which the estimate of the moment makes best; None if the quoted prices are these; NaN if
        prices follow from no estimate.
    explored : int
        How many prices were experiments.
    """

    price: Array
    greedy: Array | None
    explored: int


class Sold(NamedTuple):
    """What was quoted to a block of customers.

    Parameters
    ----------
    price : ndarray of shape (n,)
        The quoted prices.
    explored : int
        How many of them were experiments.
    deviation, far : float
        The sum of their distances from the greedy prices, in price ranges, and how many were more than :data:`FAR`
        ranges away; NaN if there is no greedy price.
    """

    price: Array
    explored: int = 0
    deviation: float = 0.0
    far: float = 0.0


FAR = 0.1  # of the price range


class Loop:
    """Both halves of a policy, joined by simulated customers.

    Parameters
    ----------
    device : Device
        The device half.
    server : Server
        The server half.

    Attributes
    ----------
    on_terms : bool
        Whether the class's ``sell_span`` supports rules and costs of customers.
    """

    on_terms: ClassVar[bool] = True

    def __init__(self, device: Device, server: Server[Any]) -> None:
        self.device, self.server = device, server
        self.last = fresh(device.policy.rules)  # last price of each segment

    @property
    def max_block(self) -> int:
        """The most customers that :meth:`sell_span` can take at once."""
        return self.server.span

    def sell(self, customers: Customers, rng: np.random.Generator) -> Sold:
        """Sell to a block of customers.

        Parameters
        ----------
        customers : Customers
            The block.
        rng : Generator
            Source of the price experiments.

        Returns
        -------
        Sold
            The quoted prices, and how far they were from the greedy ones.
        """
        n, start, explored, deviation, far = len(customers.z), 0, 0, 0.0, 0.0
        prices = np.empty(n)
        low, high = self.device.policy.prices
        plain = self.on_terms or (self.device.policy.rules is None and customers.cost is None)
        sell_span = self.sell_span if plain else partial(Loop.sell_span, self)
        while start < n:
            rows = slice(start, min(n, start + (self.max_block if plain else self.server.span)))
            quoted = sell_span(customers, rows, rng)
            prices[rows] = quoted.price
            explored += quoted.explored
            if quoted.greedy is not None:
                distance = np.abs(quoted.price - quoted.greedy) / (high - low)
                deviation += float(distance.sum())
                far += np.where(np.isnan(distance), math.nan, distance > FAR).sum()
            start = rows.stop
        return Sold(prices, explored, deviation, far)

    def sell_span(self, customers: Customers, rows: slice, rng: np.random.Generator) -> Quoted:
        """:meth:`sell` for the customers in ``rows``, at most :attr:`max_block` of them."""
        device, server = self.device, self.server
        params, z, public = server.params, customers.z[rows], customers.public[rows]
        terms = self.terms(customers, rows)
        before = None if terms is None or not params.experiment else terms.before()
        quotes = self.quote(params, z, rng, terms)
        y = customers.buy(rows, quotes.price)
        server.advance(rows.stop - rows.start)
        if isinstance(quotes.stage, int):
            if quotes.stage:
                server.absorb(device.report(params, z, quotes.price, y, quotes.stage, public=public, terms=terms))
        elif (learn := quotes.stage > 0).any():
            report = device.report(
                params, z[learn], quotes.price[learn], y[learn], quotes.stage[learn], public=public[learn]
            )
            server.absorb(report)
        greedy = None if params.personal else np.full(len(z), math.nan)
        if params.experiment:
            greedy = device.greedy(params, z, quotes.price, before)
        return Quoted(quotes.price, greedy, quotes.experiments)

    def terms(self, customers: Customers, rows: slice) -> Terms | None:
        """The terms of the customers in ``rows``."""
        cost = None if customers.cost is None else customers.cost[rows]
        segment = None if customers.segment is None else customers.segment[rows]
        return self.device.policy.terms(rows.stop - rows.start, cost=cost, segment=segment, last=self.last)

    def quote(self, params: Params, z: Array, rng: np.random.Generator, terms: Terms | None) -> Quotes:
        """The device's quotes."""
        return self.device.quote(params, z, rng) if terms is None else self.device.quote(params, z, rng, terms)
