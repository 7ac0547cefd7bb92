"""The loop over blocks of simulated customers, whose outcomes are known immediately.

A span is a run of customers under the same params. A policy that re-estimates every few customers overrides
:meth:`Loop.sell_span` with a compiled loop over the same steps, and :attr:`Loop.max_block` with the largest block that
its loop can take.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar, Protocol

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

    def sell(self, customers: Customers, rng: np.random.Generator) -> tuple[Array, int]:
        """Sell to a block of customers.

        Parameters
        ----------
        customers : Customers
            The block.
        rng : Generator
            Source of the price experiments.

        Returns
        -------
        prices : ndarray of shape (n,)
            The quoted prices.
        explored : int
            How many of them were experiments.
        """
        n, start, explored = len(customers.z), 0, 0
        prices = np.empty(n)
        plain = self.on_terms or (self.device.policy.rules is None and customers.cost is None)
        sell_span = self.sell_span if plain else partial(Loop.sell_span, self)
        while start < n:
            rows = slice(start, min(n, start + (self.max_block if plain else self.server.span)))
            prices[rows], experiments = sell_span(customers, rows, rng)
            explored += experiments
            start = rows.stop
        return prices, explored

    def sell_span(self, customers: Customers, rows: slice, rng: np.random.Generator) -> tuple[Array, int]:
        """:meth:`sell` for the customers in ``rows``, at most :attr:`max_block` of them."""
        device, server = self.device, self.server
        params, z, public = server.params, customers.z[rows], customers.public[rows]
        quotes = self.quote(params, z, rng, self.terms(customers, rows))
        y = customers.buy(rows, quotes.price)
        server.advance(rows.stop - rows.start)
        if isinstance(quotes.stage, int):
            if quotes.stage:
                server.absorb(device.report(params, z, quotes.price, y, quotes.stage, public=public))
        elif (learn := quotes.stage > 0).any():
            report = device.report(
                params, z[learn], quotes.price[learn], y[learn], quotes.stage[learn], public=public[learn]
            )
            server.absorb(report)
        return quotes.price, quotes.experiments

    def terms(self, customers: Customers, rows: slice) -> Terms | None:
        """The terms of the customers in ``rows``."""
        cost = None if customers.cost is None else customers.cost[rows]
        segment = None if customers.segment is None else customers.segment[rows]
        return self.device.policy.terms(rows.stop - rows.start, cost=cost, segment=segment, last=self.last)

    def quote(self, params: Params, z: Array, rng: np.random.Generator, terms: Terms | None) -> Quotes:
        """The device's quotes."""
        return self.device.quote(params, z, rng) if terms is None else self.device.quote(params, z, rng, terms)
