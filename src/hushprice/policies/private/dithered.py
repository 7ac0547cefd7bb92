"""The customer's side of private look-ahead: a price by a coin, a score of length at most 1, randomised."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from hushprice.arrays import Array, array
from hushprice.demand import Terms
from hushprice.errors import LARGEST_VALUE, InvalidInput, finite
from hushprice.kernels.dither import score as kernel
from hushprice.policies.exchange import Dither, Params, Propensity, Quotes
from hushprice.policies.private.device import ByChoice, PrivateDevice
from hushprice.privacy.entropy import Words
from hushprice.privacy.wire import Rows

if TYPE_CHECKING:
    from hushprice.policies.private.look_ahead_ldp import LookAheadLDP


class DitheredDevice(PrivateDevice):
    """Quotes one of two prices and reports the normalised score of its outcome."""

    policy: LookAheadLDP

    def checked(self, params: Params) -> Params:
        policy, dither = self.policy, params.dither
        if dither is None:
            raise InvalidInput("The published params say nothing of how prices are dithered.")
        low, high = policy.prices
        d = policy.dim
        theta = array("the published theta", params.theta, shape=(2 * d,), limit=LARGEST_VALUE)
        safe = Dither(
            delta=finite("the published delta", dither.delta, minimum=0.0, maximum=0.5 * (high - low)),
            pull=finite("the published pull", dither.pull, minimum=0.0, maximum=1.0),
            target=finite("the published target", dither.target, minimum=low, maximum=high),
            level=array("the published weights", dither.level, shape=(d, d), limit=LARGEST_VALUE),
            slope=array("the published weights", dither.slope, shape=(d, d), limit=LARGEST_VALUE),
        )
        return replace(params, theta=theta, dither=safe)

    def quote(self, params: Params, z: Array, rng: np.random.Generator, terms: Terms | None = None) -> Quotes:
        self._check_phase(params)
        params, z = self.checked(params), self._contexts(z)
        uniforms, prices = rng.random(len(z)), np.empty(len(z))
        kernel.dithered_quotes(self.policy.rule(params), z, uniforms, self._terms(terms, len(z)), prices)
        return Quotes(prices, params.stage, params.experiment)

    def propensity(self, params: Params, z: Array, price: Array, terms: Terms | None = None) -> Propensity:
        value = np.empty(len(z))
        kernel.dithered_propensities(self.policy.rule(params), z, price, self._terms(terms, len(z)), value)
        return Propensity(value, np.ones(len(z), dtype=np.bool_))

    def check_prices(self, params: Params, z: Array, price: Array, terms: Terms | None) -> None:
        if not (self.propensity(params, z, price, terms).value > 0.0).all():
            raise InvalidInput("A price is none that the published params lead to: no report was made.")

    def randomised(
        self, params: Params, z: Array, price: Array, y: Array, words: Words, terms: Terms | None = None
    ) -> Rows:
        policy, mechanism = self.policy, self.policy.mechanism
        rows, on = np.zeros((len(z), mechanism.width), dtype=np.int64), self._terms(terms, len(z))
        kernel.dithered_reports(policy.rule(params), z, price, y, on, mechanism.spec, words, rows)
        return rows

    def _terms(self, terms: Terms | None, n: int) -> Terms:
        policy = self.policy
        return (terms or policy.terms(n) or policy.plain_terms(n)).within(policy.prices)


class MixedDitheredDevice(ByChoice, DitheredDevice):
    """Reports the normalised score, or the raw record of a customer who agreed to it."""
