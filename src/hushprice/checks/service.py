"""The check that the pricing service can run a policy: all actions of an operator, on a SQLite file.

It needs the extra ``hushprice[service]``; without it ``policy_checks()`` omits this check.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from hushprice.arrays import Array
from hushprice.checks.live import world_for
from hushprice.checks.refusal import refused
from hushprice.errors import HushpriceError
from hushprice.policies import REGISTRY, Policy, PrivateReports
from hushprice.privacy import Report, UnsafeSeed

if TYPE_CHECKING:
    from hushprice.service import Definition, Service
    from hushprice.service.core.learner import Learner

T = TypeVar("T")
PRODUCT_NAME = "checked"
BATCH = 40  # customers sold to at once


def service_is_installed() -> bool:
    """Whether the extra ``hushprice[service]`` is installed."""
    return find_spec("sqlalchemy") is not None


def check_service(policy: Policy) -> None:
    """The service sells with the policy, shows its estimate, freezes it, rolls it back and restarts, bit for bit.

    A policy with a reason in ``not_served`` must be refused with this reason instead.

    Parameters
    ----------
    policy : Policy
        The policy to check.
    """
    with registered(policy):
        if policy.not_served:
            from hushprice.service import Definition

            text = refused(Definition.of, PRODUCT_NAME, {"policy": policy.name, **policy.config()})
            assert policy.not_served in text, f"the service refuses it, but not for its reason: {text}"
            return
        with tempfile.TemporaryDirectory() as folder:
            _check_served(policy, f"sqlite:///{Path(folder) / 'checked.db'}")


@contextmanager
def registered(policy: Policy) -> Iterator[None]:
    """Register the policy's class for a while: the service looks policies up by name."""
    before = REGISTRY.get(policy.name)
    REGISTRY[policy.name] = type(policy)
    try:
        yield
    finally:
        if before is None:
            del REGISTRY[policy.name]
        else:
            REGISTRY[policy.name] = before


def _check_served(policy: Policy, url: str) -> None:
    from hushprice.service import Store
    from hushprice.service.storage.replay import verify

    shop = Shop(policy, url, create=True)
    try:
        shop.sell(3 * BATCH)
        version, estimate = shop.version, shop.look()
        shop.check_frozen()
        shop.sell(10)
        shop.done("shadow mode", shop.service.set_mode(PRODUCT_NAME, "shadow", by="check"))
        shop.sell(5)
        shop.look()
        shop.done("live mode", shop.service.set_mode(PRODUCT_NAME, "live", by="check"))
        shop.check_guardrails()
        shop.done("a rollback", shop.service.roll_back(PRODUCT_NAME, version, by="check"))
        for before, after in zip(estimate, shop.look(), strict=True):
            assert np.array_equal(before, after), "after a rollback the estimate is not what it was"
        shop.sell(5)
        digest = shop.digest()
    finally:
        shop.service.stop()
    shop = Shop(policy, url, start=1_000.0)  # from the snapshot that was written at the end
    try:
        assert shop.digest() == digest, "a restart changed what was learned"
        shop.sell(BATCH)
        shop.check_frozen()
    finally:
        shop.service.stop()
    store = Store.open(url)
    try:
        verdict = verify(store, PRODUCT_NAME)
        assert verdict.ok, f"the log gives another state than the snapshots hold: {'; '.join(verdict.problems)}"
        assert verdict.compared is not None, "no snapshot could be compared with the log"
    finally:
        store.close()


def definition_of(policy: Policy) -> Definition:
    """A product definition with the policy. Features have names; the bands of private products need their ranges."""
    from hushprice.service import Definition

    features: list[dict[str, Any]] = [{"name": f"z{j}", "low": 0.0, "high": 1.0} for j in range(policy.dim)]
    if policy.needs_constant:  # otherwise the service adds one
        features[0] = {"name": "constant", "value": 1.0}
    plain = {"policy": policy.name, **policy.config(), "features": features}
    return Definition.of(PRODUCT_NAME, plain | {"outcomes": {"wait": 1e6, "then": "no-sale"}})


class Shop:
    """A service with one product, and customers who buy it.

    Parameters
    ----------
    policy : Policy
        The policy of the product.
    url : str
        The database.
    create : bool
        Whether to create the product; otherwise it exists in the database.
    start : float
        First time of the clock, which also seeds the customers.
    """

    def __init__(self, policy: Policy, url: str, *, create: bool = False, start: float = 0.0) -> None:
        from hushprice.service import Service, Store

        ticks = count(start)
        self.policy, self.market = policy, world_for(policy)
        self.rng = np.random.default_rng(int(start) + 5)
        self.device = policy.device(UnsafeSeed(int(start) + 6))
        self.service: Service = Service(Store.open(url), clock=lambda: float(next(ticks)), rng=self.rng)
        self.service.start()
        if create:
            self.done("a new product", self.service.create(definition_of(policy)))

    def done(self, what: str, future: Future[T]) -> T:
        """The answer to a command; an error names the command."""
        try:
            return future.result(120)
        except HushpriceError as problem:
            raise AssertionError(f"the service failed at {what}: {problem} (The logged error says where.)") from problem

    @property
    def version(self) -> int:
        """Number of the last event."""
        return self.service.view(PRODUCT_NAME).seq

    def digest(self) -> str:
        """SHA-256 of the learner's state."""
        return self.done("the digest", self.service.run(PRODUCT_NAME, lambda learner: learner.digest()))

    # -- selling --------------------------------------------------------------------------------------------------

    def sell(self, n: int) -> list[float]:
        """Sell to n customers, some at a time: the prices quoted."""
        prices: list[float] = []
        for start in range(0, n, BATCH):
            z = self.market.draw(self.rng, min(BATCH, n - start))
            prices += self._sell_private(z) if self.policy.private else self._sell_plain(z)
        return prices

    def _buy(self, z: Array, price: Array) -> Array:
        d, family = self.policy.dim, self.policy.family
        theta = self.market.theta
        y: Array = family.sample(z @ theta[:d] - price * (z @ theta[d:]), self.rng)
        return y

    def _sell_plain(self, z: Array) -> list[float]:
        from hushprice.service import OfferRequest, OutcomeItem

        futures = [self.service.offer(PRODUCT_NAME, OfferRequest(context=row.tolist())) for row in z]
        offers = [self.done("an offer", future) for future in futures]
        prices = np.array([offer.price for offer in offers])
        low, high = self.policy.prices
        assert ((prices >= low) & (prices <= high)).all(), f"a price left [{low}, {high}]"
        y = self._buy(z, prices)
        items = [OutcomeItem(offer.offer, float(one)) for offer, one in zip(offers, y, strict=True)]
        self.done("outcomes", self.service.outcomes(PRODUCT_NAME, items))
        return [float(one) for one in prices]

    def _sell_private(self, z: Array) -> list[float]:
        """Quote and report as devices do, by the latest published params."""
        from hushprice.service import ReportItem

        view = self.service.view(PRODUCT_NAME)
        params, price = view.params, np.full(len(z), view.params.level)
        if params.personal:
            price = self.device.quote(params, z, self.rng).price
        reports: list[Any] = [None] * len(z)
        if params.learn:
            reports = self._plain(self.device.report(params, z, price, self._buy(z, price), params.stage))
        ids = (self.rng.bytes(16).hex() for _ in reports)
        items = [ReportItem(key, view.version, report) for key, report in zip(ids, reports, strict=True)]
        self.done("reports", self.service.reports(PRODUCT_NAME, items))
        return [float(one) for one in price]

    def _plain(self, made: Any) -> list[dict[str, Any]]:
        private = self.policy.as_private()
        assert private is not None
        assert isinstance(made, PrivateReports), "the device of a private policy must make PrivateReports"
        return [Report(private.mechanism.kind, tuple(row)).to_dict() for row in made.rows.tolist()]

    # -- what an operator does ------------------------------------------------------------------------------------

    def look(self) -> tuple[Array, Array]:
        """Read summary, bands, progress and estimate, which must not change the state: (theta, covariance or empty)."""
        from hushprice.service.dashboard.bands import Facts
        from hushprice.service.dashboard.curve import curve
        from hushprice.service.dashboard.summary import summary

        before = self.digest()
        theta, covariance = self.done("the estimate", self.service.run(PRODUCT_NAME, _estimate))
        d = self.policy.dim
        assert theta.shape == (2 * d,), f"estimate() gives a theta of shape {theta.shape}, not {(2 * d,)}"
        assert np.isfinite(theta).all(), "estimate() gives a theta that is not finite"
        assert covariance.shape in ((0,), (2 * d, 2 * d)), f"estimate() gives a covariance of shape {covariance.shape}"
        page = self.done("the summary", self.service.run(PRODUCT_NAME, summary))
        facts = self.done("the bands", self.service.run(PRODUCT_NAME, Facts.of))
        json.dumps([page, curve(facts, self.market.draw(np.random.default_rng(1), 1)[0].tolist())], allow_nan=False)
        self.done("the progress", self.service.run(PRODUCT_NAME, lambda learner: learner.server.progress()))
        assert self.digest() == before, "looking at the summary, the bands or the estimate changed the server's state"
        return theta, covariance

    def check_frozen(self) -> None:
        """While frozen, equal customers get equal prices and nothing is learned; then unfreeze."""
        self.done("freezing", self.service.set_mode(PRODUCT_NAME, "frozen", by="check"))
        params, learned = self.service.view(PRODUCT_NAME).params, self.service.view(PRODUCT_NAME).counts["learned"]
        assert params.phase.certain, f"frozen, prices are still drawn: {params.phase.name}"
        assert not params.learn, "frozen, reports are still asked for"
        customer = self.market.draw(np.random.default_rng(2), 1)
        sell = self._sell_private if self.policy.private else self._sell_plain
        first, second = sell(customer), sell(customer)
        assert first == second, f"frozen, the same customer is quoted {first[0]} and then {second[0]}"
        assert self.service.view(PRODUCT_NAME).counts["learned"] == learned, "frozen, it learned from an outcome"
        self.look()
        self.done("unfreezing", self.service.set_mode(PRODUCT_NAME, "live", by="check"))

    def check_guardrails(self) -> None:
        """Prices stay within guardrails. (For private products the devices enforce them.)"""
        low, high = self.policy.prices
        low, high = low + 0.1 * (high - low), high - 0.1 * (high - low)
        self.done("guardrails", self.service.set_guardrails(PRODUCT_NAME, {"low": low, "high": high}, by="check"))
        prices = self.sell(10)
        if not self.policy.private:
            assert all(low <= price <= high for price in prices), f"a price left the guardrails [{low}, {high}]"


def _estimate(learner: Learner) -> tuple[Array, Array]:
    theta, covariance = learner.server.estimate()
    return theta.copy(), np.empty(0) if covariance is None else covariance.copy()
