"""The customer's side: it clips and randomises the score, and sends nothing else."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from hushprice.arrays import Array, array
from hushprice.demand import Terms
from hushprice.errors import LARGEST_VALUE, InvalidInput, discreetly, positive_int
from hushprice.kernels import report as kernel
from hushprice.policies.base import Device
from hushprice.policies.exchange import Choices, Params, Propensity, Quotes, Records, Reports, Stages
from hushprice.policies.private.ball import BallPolicy
from hushprice.policies.private.base import PrivatePolicy
from hushprice.policies.private.reports import MixedReports, PrivateReports
from hushprice.privacy import Entropy, Ledger
from hushprice.privacy.entropy import Words, as_entropy
from hushprice.privacy.wire import Rows


class PrivateDevice(Device):
    """Prices from public params; reports a vector, clipped and randomised.

    A device implements :meth:`checked` and :meth:`randomised`.

    Parameters
    ----------
    policy : PrivatePolicy
        The policy, public as a whole.
    entropy : Entropy, optional
        Source of the noise. Default: the operating system's.
    ledger : Ledger, optional
        Each report is charged to it before it is made, and refused when its cap is reached.
    """

    policy: PrivatePolicy

    def __init__(self, policy: PrivatePolicy, entropy: Entropy | None = None, *, ledger: Ledger | None = None) -> None:
        super().__init__(policy)
        if ledger is not None and not isinstance(ledger, Ledger):
            raise InvalidInput(f"ledger must be a hushprice.privacy.Ledger, not {type(ledger).__name__}.")
        self.entropy, self.ledger = as_entropy(entropy), ledger

    def report(
        self,
        params: Params,
        z: Array,
        price: Array,
        y: Array,
        stage: Stages,
        *,
        public: Choices | None = None,
        terms: Terms | None = None,
    ) -> Reports:
        return self._privatized(params, *self._sales(z, price, y), stage, terms)

    def _privatized(
        self, params: Params, z: Array, price: Array, y: Array, stage: Stages, terms: Terms | None
    ) -> PrivateReports:
        """Randomised reports of sales that :meth:`_sales` accepted."""
        mechanism, params = self.policy.mechanism, self.checked(params)
        n, episode = len(z), positive_int("stage", stage)
        self.check_prices(params, z, price, terms)
        if self.ledger is not None:
            for _ in range(n):
                self.ledger.spend(mechanism)
        words = self.entropy.words(n * mechanism.words).reshape(n, mechanism.words)
        return PrivateReports(self.randomised(params, z, price, y, words, terms), episode)

    def check_prices(self, params: Params, z: Array, price: Array, terms: Terms | None) -> None:
        """Raise :class:`InvalidInput` for prices that no report can be made of, before the ledger is charged."""

    def _check_phase(self, params: Params) -> None:
        if params.phase not in self.policy.learner.phases:
            raise InvalidInput("A private device does not price in this phase, which is another policy's.")

    def checked(self, params: Params) -> Params:
        """Return the published params if they can be priced and reported with, else raise :class:`InvalidInput`."""
        raise NotImplementedError

    def randomised(
        self, params: Params, z: Array, price: Array, y: Array, words: Words, terms: Terms | None = None
    ) -> Rows:
        """Return reports of checked sales under checked params, one per row of random words. Deterministic."""
        raise NotImplementedError

    def quote(self, params: Params, z: Array, rng: np.random.Generator, terms: Terms | None = None) -> Quotes:
        self._check_phase(params)
        return super().quote(self.checked(params), self._contexts(z), rng, terms)

    def propensity(self, params: Params, z: Array, price: Array, terms: Terms | None = None) -> Propensity:
        return super().propensity(params, z, price, terms)

    def _sales(self, z: Array, price: Array, y: Array) -> tuple[Array, Array, Array]:
        """Checked contexts, prices and outcomes of equal length."""
        z, price, y = self._contexts(z), self._prices(price), self._outcomes(y)
        if not len(price) == len(y) == len(z):
            raise InvalidInput("A block of customers must have as many prices and outcomes as contexts.")
        return z, price, y

    def _contexts(self, z: Array) -> Array:
        d = self.policy.dim
        check = partial(array, "contexts", z, shape=(None, d), limit=LARGEST_VALUE)
        return discreetly(check, f"Contexts must be rows of {d} finite numbers below {LARGEST_VALUE:g} in size.")

    def _prices(self, price: Array) -> Array:
        low, high = self.policy.prices
        prices = discreetly(partial(array, "prices", price, shape=(None,)), "Prices must be finite numbers.")
        if not ((prices >= low) & (prices <= high)).all():
            raise InvalidInput(f"A price lies outside {self.policy.prices}.")
        return prices

    def _outcomes(self, y: Array) -> Array:
        family = self.policy.family
        check = partial(array, "outcomes", y, shape=(None,))
        return discreetly(lambda: family.check_outcome(check()), f"Outcomes must be possible in {family.name} demand.")


class ScoreDevice(PrivateDevice):
    """Reports the score at the published theta."""

    policy: BallPolicy

    def checked(self, params: Params) -> Params:
        theta = array("the published theta", params.theta, shape=(2 * self.policy.dim,))
        if not self.policy.in_theta(theta):
            raise InvalidInput("The published theta lies outside Theta: no price and no report is made from it.")
        return replace(params, theta=theta)

    def randomised(
        self, params: Params, z: Array, price: Array, y: Array, words: Words, terms: Terms | None = None
    ) -> Rows:
        """Return reports of the scores of checked sales at the published theta, one per row of random words.

        A learner that needs other reports overrides this by a deterministic function that calls
        :meth:`VectorMechanism.report_rows`.
        """
        policy, mechanism = self.policy, self.policy.mechanism
        rows = np.zeros((len(z), mechanism.width), dtype=np.int64)
        kernel.report_rows(
            policy.family.code, params.theta, z, price, y, *policy.price_scale, mechanism.spec, words, rows
        )
        return rows


class ByChoice(PrivateDevice):
    """Sends raw records of the customers who agreed to it, and randomised reports of the others."""

    def report(
        self,
        params: Params,
        z: Array,
        price: Array,
        y: Array,
        stage: Stages,
        *,
        public: Choices | None = None,
        terms: Terms | None = None,
    ) -> MixedReports:
        z, price, y = self._sales(z, price, y)
        chosen = np.zeros(len(z), dtype=np.bool_) if public is None else np.asarray(public)
        if chosen.dtype != np.bool_ or chosen.shape != (len(z),):
            raise InvalidInput("public must say True or False of each customer.")
        rest = ~chosen
        return MixedReports(
            self._privatized(params, z[rest], price[rest], y[rest], stage, None if terms is None else terms.rows(rest)),
            Records(z[chosen], price[chosen], y[chosen], positive_int("stage", stage)),
        )


class MixedDevice(ByChoice, ScoreDevice):
    """Reports the score at the published theta, or the raw record of a customer who agreed to it."""
