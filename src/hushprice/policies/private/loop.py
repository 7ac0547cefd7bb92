"""Simulation of policies that learn by SGD: a compiled loop runs the experiments, with the steps of both halves."""

from __future__ import annotations

from typing import Any

import numpy as np

from hushprice.kernels import private_loop as kernel
from hushprice.policies.exchange import Choices, Records
from hushprice.policies.loop import Customers, Loop, Quoted
from hushprice.policies.private.device import PrivateDevice
from hushprice.policies.private.server import MixedServer, SGDServer


class SGDLoop(Loop):
    """Simulates blocks of customers: quote, sell, report, absorb."""

    device: PrivateDevice
    server: SGDServer[Any]

    @property
    def max_block(self) -> int:
        return self.server.left

    def sell_span(self, customers: Customers, rows: slice, rng: np.random.Generator) -> Quoted:
        if not self.server.exploring:
            return super().sell_span(customers, rows, rng)
        server, mechanism, n = self.server, self.server.mechanism, rows.stop - rows.start
        z, public = customers.z[rows], self.public(customers.public[rows])
        private = n - int(np.count_nonzero(public))
        policy, terms, greedy = server.policy, self.terms(customers, rows), np.empty(n)
        prices = self.device.quote(server.params, z, rng, terms).price
        allowed = (terms or policy.plain_terms(n)).within(policy.prices)
        words = self.device.entropy.words(private * mechanism.words).reshape(private, mechanism.words)
        server.advance(n)
        kernel.experiments(
            policy.family.code, server.rate, mechanism.spec, z, public, words,
            (customers.demand(rows), prices, allowed), server.theta, server.t, greedy,
        )  # fmt: skip
        server.count(private)
        y = customers.buy(rows, prices)
        if private < n:
            self.store(Records(z[public], prices[public], y[public]))
        return Quoted(prices, greedy, n)

    def public(self, choices: Choices) -> Choices:
        """Return who sends raw records: nobody in a policy without public customers."""
        return np.zeros_like(choices)

    def store(self, records: Records) -> None:
        """Pass raw records of public customers to the server."""
        raise AssertionError("a policy without public customers has no raw records")


class MixedLoop(SGDLoop):
    """Simulates blocks of customers who choose whether to be public."""

    server: MixedServer

    def public(self, choices: Choices) -> Choices:
        return choices

    def store(self, records: Records) -> None:
        self.server.store(records)
